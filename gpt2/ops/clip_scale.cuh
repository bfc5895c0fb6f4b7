// What AdamW multiplies every gradient with, from the loss and the gradient norm of a step: whoever finishes the norm computes it.
#pragma once
#include "gpt2/ops/step_scalars.h"

namespace gpt2::ops {

// As StepStats::clip_scale. NaN passes both limits: the host stops a run whose numbers are not finite.
__device__ __forceinline__ float clip_scale_of(const StepScalars& k, double loss, double grad_norm) {
  if (loss > k.skip_above_loss || grad_norm > k.skip_above_grad_norm) return kLeftOut;
  return k.clip > 0 && grad_norm > static_cast<double>(k.clip) ? static_cast<float>(static_cast<double>(k.clip) / grad_norm) : 1.0f;
}

}  // namespace gpt2::ops
