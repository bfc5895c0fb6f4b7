// The loop around the trainer: schedule, loader, accumulation, checkpoint and resume. A short run of train_loop.h on
// token files that the gate writes byte by byte; what the trainer is handed in each step is compared with a second
// reading of those files and a second writing of the schedules (known_model.h).
//
// Names of the checks: schedule, loader, loop, resume, outliers, not finite. What asks nothing of the trainer under the gate is in
// loop_scripted.h; both stand on loop_run.h.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "experiments/gate/report.h"
#include "gpt2/train_loop.h"
#include "gpt2/trainer.h"

namespace gate {

using TrainFunction =
    std::function<gpt2::RunResult(gpt2::Trainer&, const gpt2::LoopOptions&, const std::function<void(const gpt2::StepLog&)>&)>;

struct LoopGateOptions {
  uint64_t seed = 0;
  bool accumulates = true;    // false: runs have steps of one micro-batch only
  bool deterministic = true;  // a resumed run is then the same bit for bit
  std::function<bool(const std::string&)> wanted = [](const std::string&) { return true; };
  TrainFunction train = gpt2::train;  // tests hand in broken ones, and broken rates
  std::function<float(const gpt2::LearningRate&, int64_t step)> rate_at = &gpt2::LearningRate::at;
};

// Builds one of a small model (vocab_size up to 65535, batches of any size) for steps of at most so many micro-batches.
using MakeLoopTrainer = std::function<std::unique_ptr<gpt2::Trainer>(int64_t micro_batches)>;

std::vector<CheckResult> check_loop(const MakeLoopTrainer& make_trainer, const LoopGateOptions& options);

}  // namespace gate
