// The gate for one build of the fp32 trainer, patched or not, as run_bugs.sh reads it: "failed: CHECK |
// TENSOR | …" for each failing check. Exit 0: passed, 1: something failed, 3: no GPU. The seed is the first
// argument, or new each time.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "experiments/gate/model_gate.h"
#include "experiments/gate/op_gate.h"
#include "fp32/trainer.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/errors.h"

namespace {

int64_t print_failures(const gate::GateReport& report) {
  for (const gate::CheckResult& r : report.results)
    if (!r.passed)
      fmt::print("failed: {} | {} | {} > {} {} | {}\n", r.name, r.tensor, r.error, r.budget, r.unit,
                 r.detail);
  if (report.results.empty()) fmt::print("failed: nothing was checked\n");
  return report.passed() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto why = gpt2::cuda::why_no_device()) {
    fmt::print(stderr, "no GPU: {}\n", *why);
    return 3;
  }
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::random_device{}();
  fmt::print("seed {}\n", seed);
  int64_t failed = 0;
  try {
    gate::OpGateOptions ops;
    ops.seed = seed;
    failed += print_failures(gate::check_ops(ops));
    std::fflush(stdout);
    gate::ModelGateOptions model;
    model.seed = seed;
    failed += print_failures(
        gate::check_model([](const gpt2::TrainerOptions& o) { return fp32::make_fp32_trainer(o); }, model));
  } catch (const std::exception& e) {  // after a kernel that faulted every further call throws
    fmt::print("failed: exception | {}\n", e.what());
    ++failed;
  }
  fmt::print("{}\n", failed == 0 ? "passed" : "not passed");
  return failed == 0 ? 0 : 1;
}
