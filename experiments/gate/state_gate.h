// A checkpoint and the state that some other program computed from it (logits, loss, gradients; llm.c's
// format, any size): does the oracle, or a trainer, compute the same? This is how the oracle itself is held
// against an independent implementation.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "experiments/gate/model_gate.h"

namespace gate {

struct StateFiles {
  std::filesystem::path checkpoint, state;
};

// The double-precision oracle against the files; budget kOracleAgainstState on every tensor.
GateReport check_oracle_against_state(const StateFiles& files);

// A trainer against the files, under the trainer's budgets.
GateReport check_trainer_against_state(const TrainerFactory& make_trainer, const StateFiles& files, const std::string& trainer,
                                       const std::string& matmul, const std::map<std::string, std::string>& variants);

}  // namespace gate
