// What the gate feeds a trainer: models that look trained (no zero bias, no unit layernorm, attention that
// attends), and token streams with the cases that break kernels. A fresh GPT-2 is too kind: its biases are
// zero and its attention uniform, so that a dropped bias or a wrong scale would not show.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/gate/moment_bits.h"
#include "gpt2/trainer.h"

namespace gate {

enum class Stress {
  none,
  repeated_tokens,
  edge_targets,
  large_logits,
  sharp_attention,
  offset_stream,
  offset_gradient,
  faint_stream,
  gelu_tail,
  far_mean,
  low_logits,
  one_high_logit,
  equal_logits,
  flat_attention,
  denormals,
  equal_tokens,
  distinct_tokens,
  mixed_tokens,
};
// One sentence for each: what is out of the ordinary in such a model or its tokens, and why it hurts.
const char* sentence(Stress stress);

struct Case {
  std::string name;  // "shape B=3 T=65"
  gpt2::ModelConfig config;
  int64_t batch_size = 4;
  int64_t seq_len = 64;
  Stress stress = Stress::none;
  bool forward_only = false;    // logits and loss are compared, gradients are not: what it stresses is in the forward pass
  int64_t micro_batches = 1;    // the most that a step has: gpt2::TrainerOptions::micro_batches of the trainer
  std::string only_gradient{};  // of this tensor alone the gradient is compared, and nothing else; empty: all are
};

// One micro-batch that owns its tokens.
struct Tokens {
  std::vector<int32_t> inputs, targets;
  gpt2::Batch batch() const { return {inputs, targets}; }
};

// The gate's small model: 2 layers, 4 heads, 64 channels, vocabulary 509 padded to 512, up to 128 tokens.
gpt2::ModelConfig gate_model();
// One layer as wide as GPT-2's largest model has them: 25 heads, 1,600 channels. 33M parameters.
gpt2::ModelConfig wide_layer();
// What timed steps are checked with on a device: 64M parameters, mostly embedding.
gpt2::ModelConfig timed_model();
// Odd sizes and stress cases, all small.
std::vector<Case> small_cases();
// Shapes of whole steps: B*T = 63, 195, 256 and 4096, and B*T = 254 with a head of 64 channels, which the others have not.
std::vector<Case> step_cases();
// One head of 64 channels, T = 127; and the same with logits so large that exp() of many of them is beyond fp32.
Case head_of_64();
Case overflowing_rows();
// A given state of AdamW in the middle of a run: small random moments, some below the normal numbers, v >= 0. They have the significant
// bits that the trainer stores, at most 16, so that it keeps them.
struct Moments {
  std::vector<float> m, v;
};
Moments given_moments(const Case& c, uint64_t seed, const MomentBits& bits);

// fp32 parameters of a model that looks trained; depends on (config, seed, stress). Padded vocabulary rows
// are zero.
std::vector<float> trained_like_parameters(const Case& c, uint64_t seed);
// `settings` for AdamW's step `t`. Late ones have slower betas: with the usual ones nothing is left to correct there, whatever the correction is.
gpt2::AdamW slower_if_late(gpt2::AdamW settings, int64_t t);

// Random tokens with repeats; `number` picks the micro-batch.
Tokens random_tokens(const Case& c, uint64_t seed, uint64_t number);

}  // namespace gate
