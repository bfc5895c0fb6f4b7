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
  bool ladder = false;   // the rungs of docs/learn before the variants, in the order of the chapter; fp32 products of the fp32 trainer only
  std::string solution;  // a CUDA source file with a reader's own rung (experiments/learn/ladder.h); needs `ladder`
  // Of this device, for what a ladder predicts. Measured before: measuring ends whatever the process has on the device.
  double copy_bytes_per_s = 0, fp32_flops_per_s = 0;
  std::function<void(const std::string&)> progress;  // may be empty
};

struct KernelResult {
  std::string op, variant, shape;
  bool is_default = false;
  bool is_rung = false;           // of a ladder, no variant of the trainer
  bool teaches_an_error = false;  // a rung that the check must refuse
  std::string idea;               // of a rung: one line
  double predicted_ns = 0;        // of a rung; 0: nobody predicted
  bool right = false;
  bool refused = false;                          // the variant does not do this shape; `wrong` says why
  double error = 0, budget = 0;                  // of the tensor closest to its budget
  std::string wrong;                             // which tensor, when not right; a variant that refuses the shape says why. Not timed then
  double median_ns = 0, p05_ns = 0, p95_ns = 0;  // 0 when not timed
  double bytes_per_s = 0, flops_per_s = 0;       // of the mathematics: min_bytes and flops of the case
};

// Names that bench_kernels takes for this trainer.
std::vector<std::string> kernel_ops(const std::string& trainer);

// Throws stepscope::InputError for an op that the trainer does not have, for a ladder that the op does not have and for a solution that is no
// file; needs no device.
void check_kernel_options(const std::string& op, const KernelBenchOptions& options);

// One row per variant and place, fastest first within a place; with a ladder its rungs first, each in its order. Throws
// stepscope::InputError as check_kernel_options does and for a solution that does not compile, stepscope::MachineError without a device.
std::vector<KernelResult> bench_kernels(const std::string& op, const gpt2::ModelConfig& model, int64_t batch_size, int64_t seq_len,
                                        uint64_t seed, const KernelBenchOptions& options);

}  // namespace experiments
