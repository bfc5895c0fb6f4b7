// Every variant of an op at a model's shapes, from the gate's own list of cases: right first, then timed, variants in turn. A
// screening, not a verdict: one process, and a kernel alone meets caches, clocks and neighbours that a training step does not have.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpt2/config.h"

namespace experiments {

struct KernelBenchOptions {
  std::string trainer = "fp32";  // whose ops: "fp32" or "mixed"
  std::string matmul = "fp32";   // rate of the op's matrix products: one of that trainer's
  int rounds = 50;
  std::function<void(const std::string&)> progress;  // may be empty
};

struct KernelResult {
  std::string op, variant, shape;
  bool is_default = false;
  bool right = false;
  bool refused = false;                          // the variant does not do this shape; `wrong` says why
  double error = 0, budget = 0;                  // of the tensor closest to its budget
  std::string wrong;                             // which tensor, when not right; a variant that refuses the shape says why. Not timed then
  double median_ns = 0, p05_ns = 0, p95_ns = 0;  // 0 when not timed
  double bytes_per_s = 0, flops_per_s = 0;       // of the mathematics: min_bytes and flops of the case
};

// Names that bench_kernels takes for this trainer.
std::vector<std::string> kernel_ops(const std::string& trainer);

// One row per variant and place, fastest first within a place. Throws stepscope::InputError for an op that the trainer does not have,
// stepscope::MachineError without a device.
std::vector<KernelResult> bench_kernels(const std::string& op, const gpt2::ModelConfig& model, int64_t batch_size, int64_t seq_len,
                                        uint64_t seed, const KernelBenchOptions& options);

}  // namespace experiments
