// From logits to the next token, and from a trainer to text. Draws come from a counter-based generator, so a
// sample is repeatable.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/counter_rng.h"
#include "gpt2/trainer.h"

namespace gpt2 {

struct SamplingOptions {
  float temperature = 1.0f;                 // 0: the most likely token (ties: the lowest id)
  int64_t top_k = 50;                       // 0: all tokens
  const std::atomic<bool>* stop = nullptr;  // ends it between two tokens; nullptr: nothing does
};

// `logits`: V values. Throws std::runtime_error when one of them is not finite.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, CounterRng& rng);

// `prompt` (at least one token) followed by `count` new ones, or by fewer where it was stopped. At most seq_len tokens of context are kept.
std::vector<int32_t> generate(Trainer& trainer, std::span<const int32_t> prompt, int64_t count, const SamplingOptions& options,
                              CounterRng& rng);

}  // namespace gpt2
