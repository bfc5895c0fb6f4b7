// Is a trainer that is being timed still the trainer that was checked? Steps in the way that an arm takes
// them, two in flight and nothing in between, and after them a stretch of steps that a fresh trainer then
// takes again, one at a time: losses, gradient norms and the whole state must come out the same. So a trainer
// that is right for its first calls only, that skips work once it is warm, or that hands out what it computed
// before, differs from one that has just begun.
//
// Names of the checks: "timed steps", and those of findings() in step_audit.h.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "experiments/gate/report.h"
#include "experiments/gate/step_audit.h"
#include "gpt2/trainer.h"

namespace gate {

using MakeTrainer = std::function<std::unique_ptr<gpt2::Trainer>()>;

struct AgainOptions {
  int steps = 12;
  int64_t micro_batches = 1;
  uint64_t seed = 0;       // of the tokens
  int64_t first_step = 1;  // t of AdamW
  gpt2::AdamW adamw;
  bool deterministic = true;  // then bit for bit, else within wide limits
};

// Takes `steps` more steps of `trainer` (each a step range, so that a collector sees them), destroys it (two of them need not
// fit in memory) and takes the same steps with `make_fresh()`. Holds the state three times in host memory meanwhile.
std::vector<CheckResult> check_steps_again(std::unique_ptr<gpt2::Trainer> trainer, const MakeTrainer& make_fresh,
                                           const AgainOptions& options);

struct TimedStepsOptions {
  AgainOptions again;
  int blocks = 3, block_steps = 5;  // before it, audited; four times as many where the first do not pass, as a busy machine disturbs some
  const DeviceHooks* device = nullptr;
  std::function<bool(const std::string& check)> wanted = [](const std::string&) { return true; };
};

// From a fresh model: blocks of steps with an audit of each, then check_steps_again.
std::vector<CheckResult> check_timed_steps(const MakeTrainer& make_trainer, const TimedStepsOptions& options);

}  // namespace gate
