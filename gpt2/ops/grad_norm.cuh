// Norm of the whole gradient and the clip factor that follows from it, both left on the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/ops/step_scalars.h"
#include "gpt2/ops/storage.cuh"

namespace gpt2::ops {

// stats->grad_norm = sqrt(sum of squares of n fp32 gradients), stats->clip_scale = clip > 0 ? min(1, clip / norm) : 1 with the clip of
// `scalars`. Sums in double, in a fixed order, which S decides: a thread takes kPack<S> gradients at a time. S is the storage type of the
// trainer's weights, float or bf16, both instantiated.
template <class S>
void grad_norm(StepStats* stats, const float* gradients, int64_t n, const StepScalars* scalars, void* scratch, cudaStream_t stream);
template <class S>
int64_t grad_norm_scratch_bytes(int64_t n);

}  // namespace gpt2::ops
