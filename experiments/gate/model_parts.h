// Parts of the model gate that need nothing of its state.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "experiments/gate/report.h"
#include "experiments/gate/workload.h"
#include "gpt2/trainer.h"

namespace gate {

// "fresh model": mean and deviation of each tensor of a fresh model, in deviations of what as many draws have.
std::vector<CheckResult> check_fresh_model(const gpt2::ModelConfig& config, uint64_t seed);

// "repeatability": two steps of three micro-batches each in flight give the same bits as one after the other. While the first still waits
// for its later tokens, the second is handed over. `parameters`: that both runs start from, with moments of zero.
std::vector<CheckResult> check_queued_micro_batches(gpt2::Trainer& trainer, const Case& c, uint64_t seed, std::span<const float> parameters,
                                                    const gpt2::AdamW& adamw);

}  // namespace gate
