// Norm of the whole gradient and the clip factor that follows from it, both left on the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "mixed/step_scalars.h"

namespace mixed {

// stats->grad_norm = sqrt(sum of squares of n fp32 gradients), stats->clip_scale = clip > 0 ? min(1, clip / norm) : 1 with the clip of
// `scalars`. Sums in double, in a fixed order.
void grad_norm(StepStats* stats, const float* gradients, int64_t n, const StepScalars* scalars, void* scratch, cudaStream_t stream);
int64_t grad_norm_scratch_bytes(int64_t n);

}  // namespace mixed
