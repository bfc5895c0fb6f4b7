// Norm of the whole gradient and the clip factor that follows from it, both left on the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace fp32 {

// *norm = sqrt(sum of squares of n gradients), *clip_scale = clip > 0 ? min(1, clip / norm) : 1. Sums in double, in a fixed order.
void grad_norm(double* norm, float* clip_scale, const float* gradients, int64_t n, float clip, void* scratch, cudaStream_t stream);
int64_t grad_norm_scratch_bytes(int64_t n);

}  // namespace fp32
