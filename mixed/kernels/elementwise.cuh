// GELU (tanh form, as GPT-2), residual sums, bias adds: one pack per thread, no reuse, all bandwidth.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "mixed/kernels/common.cuh"

namespace mixed {

void gelu_forward(bf16* out, const bf16* inp, int64_t n, cudaStream_t stream);
// dinp may be dout.
void gelu_backward(bf16* dinp, const bf16* dout, const bf16* inp, int64_t n, cudaStream_t stream);
// R is the storage type of the residual stream: bf16 or float, both instantiated. out may be a.
template <class R>
void residual_forward(R* out, const R* a, const bf16* b, int64_t n, cudaStream_t stream);
// out (rows, columns) += bias (columns)
void add_bias(bf16* out, const bf16* bias, int64_t rows, int64_t columns, cudaStream_t stream);
// out[i] += in[i]: for epilogues that can only overwrite.
void add_floats(float* out, const float* in, int64_t n, cudaStream_t stream);

}  // namespace mixed
