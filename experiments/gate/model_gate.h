// Whole-model checks of any trainer against the oracle, through gpt2/trainer.h alone: logits, loss, every
// gradient tensor, the optimizer, accumulation, a training run, repeatability, and what must hold without an
// oracle (causality, padding). A trainer is built anew for each case; all its state is written first, so no
// check depends on the trainer's own initialization.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "experiments/gate/report.h"
#include "experiments/gate/step_audit.h"
#include "experiments/gate/workload.h"
#include "gpt2/trainer.h"

namespace gate {

using TrainerFactory = std::function<std::unique_ptr<gpt2::Trainer>(const gpt2::TrainerOptions&)>;

struct ModelGateOptions {
  std::string trainer = "fp32";
  std::string matmul = "fp32";
  std::map<std::string, std::string> variants;
  std::string recompute = "none";           // of the mixed trainer, as in gpt2::TrainerOptions
  std::string weight_rounding = "nearest";
  bool deterministic = true;                // repeatability is checked only of trainers that promise it
  uint64_t seed = 0;
  std::string model_name = "gate model";
  gpt2::ModelConfig config = gate_model();
  int64_t batch_size = 4;
  int64_t seq_len = 64;
  int64_t trajectory_steps = 20;
  bool with_small_cases = true;  // the odd sizes and stress cases, which bring their own model
  bool with_timed_steps = true;
  const DeviceHooks* device = nullptr;  // of a trainer on a device; must outlive the check
  std::function<void(const std::string&)> progress;  // called with what begins; may be empty
};

// Names of the checks, in order: forward, gradients, evaluate, grad norm, optimizer, accumulation, causality,
// padding, trajectory, fresh inputs, repeatability, one per small case, those of timed_steps.h, and what was
// looked at after every call: inputs, and with `device` launch error.
GateReport check_model(const TrainerFactory& make_trainer, const ModelGateOptions& options);

}  // namespace gate
