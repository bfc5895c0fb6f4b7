// The numbers of one step that kernels of every trainer read from device memory instead of from their arguments, so that a captured
// CUDA graph can serve every step. Written by the host into pinned memory, copied before the graph is launched.
#pragma once
#include <cstdint>
#include <limits>

#include "gpt2/trainer.h"

namespace gpt2::ops {

struct StepScalars {
  double loss_scale = 1;     // of the sum of token losses: 1 / tokens of the step
  float gradient_scale = 1;  // of dlogits: the same number; bf16 has the exponents of fp32 and needs no loss scale
  float learning_rate = 0;
  float beta1 = 0, beta2 = 0, one_minus_beta1 = 1, one_minus_beta2 = 1;
  float correction1 = 1, correction2 = 1;  // 1 - beta^t, computed in double on the host: float loses four digits at t = 1
  float eps = 0, weight_decay = 0;
  float clip = 0;  // <= 0: none
  double skip_above_loss = std::numeric_limits<double>::infinity(), skip_above_grad_norm = std::numeric_limits<double>::infinity();
  uint32_t rounding_seed = 0;  // of stochastic rounding; a function of the step, so that a resumed run repeats it
};

// Of a step whose micro-batches have `rows` tokens each.
StepScalars scalars_of(const gpt2::StepPlan& plan, int64_t rows);

// StepStats::clip_scale of a step whose update is left out. Weights that are rounded at random are rounded again all the same: the next step
// reads them with its own random bits, also in a run that is resumed there.
inline constexpr float kLeftOut = -1.0f;

// What a step leaves on the device for the host to read.
struct StepStats {
  double loss = 0;
  double grad_norm = 0;
  float clip_scale = 0;
};

}  // namespace gpt2::ops
