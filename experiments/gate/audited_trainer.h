// A trainer with an eye on it: every call goes through to the real one, and is followed by two looks past it:
// are the tokens that it was given still what they were, and did a launch fail that nobody checked?
#pragma once
#include <memory>
#include <string>

#include "experiments/gate/step_audit.h"
#include "experiments/gate/watchdog.h"
#include "gpt2/trainer.h"

namespace gate {

struct TrainerAudit {
  int64_t tokens_changed = 0;
  std::string launch_error;  // the first one, with the call after which it was found
};

// `device` and `dog` may be null; they and `audit` must outlive the trainer.
std::unique_ptr<gpt2::Trainer> audited(std::unique_ptr<gpt2::Trainer> trainer, const DeviceHooks* device, TrainerAudit& audit,
                                       Watchdog* dog = nullptr);

}  // namespace gate
