// GELU (tanh form, as GPT-2), residual sums, bias adds: one pack per thread, no reuse, all bandwidth.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace fp32 {

void gelu_forward(float* out, const float* inp, int64_t n, cudaStream_t stream);
// dinp may be dout.
void gelu_backward(float* dinp, const float* dout, const float* inp, int64_t n, cudaStream_t stream);
void residual_forward(float* out, const float* a, const float* b, int64_t n, cudaStream_t stream);
// out (rows, columns) += bias (columns)
void add_bias(float* out, const float* bias, int64_t rows, int64_t columns, cudaStream_t stream);

}  // namespace fp32
