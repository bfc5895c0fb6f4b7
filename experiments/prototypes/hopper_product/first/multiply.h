// The first form of this product (commit 37e8aea), kept as it was but for its namespace and its copy of the instructions, so that one run can time
// both. Goes when a form is chosen.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace hopper_first {

enum class Tail { plain, gelu, gelu_backward_of_slope, gelu_backward_of_x };

// out[m][n] = tail(sum over k of a[m][k] b), bf16, 16-byte aligned, n and k multiples of 8. b is [n][k], or [k][n] if `across`.
struct Problem {
  int m, n, k;
  const __nv_bfloat16 *a, *b;
  bool across;
  __nv_bfloat16* out;
  const __nv_bfloat16* bias;   // [n]; gelu
  __nv_bfloat16* slope;        // [m][n], gelu writes GELU'
  const __nv_bfloat16* given;  // [m][n], GELU' or x; gelu_backward_*
  float* partial;              // [ceil(m / 128)][n], sums of columns; gelu_backward_*
};

// Queues it on the current device, which must be of compute capability 9.0. gelu takes b as [n][k], gelu_backward as [k][n]. Throws
// gpt2::cuda::CallError.
void multiply(const Problem& p, Tail tail, cudaStream_t stream);

}  // namespace hopper_first
