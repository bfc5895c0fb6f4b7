// GELU (tanh form, as GPT-2), residual sums, bias adds: one pack per thread, no reuse, all bandwidth.
// S is the storage type of activations and weights: float or bf16, both instantiated.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/ops/storage.cuh"

namespace gpt2::ops {

template <class S>
void gelu_forward(S* out, const S* inp, int64_t n, cudaStream_t stream);
// dinp may be dout.
template <class S>
void gelu_backward(S* dinp, const S* dout, const S* inp, int64_t n, cudaStream_t stream);
// R is the storage type of the residual stream: S, float or LowByte. out may be a. out_up, a_up: their upper halves with LowByte, else null;
// out_up may be a_up.
template <class S, class R>
void residual_forward(R* out, const R* a, const S* b, int64_t n, cudaStream_t stream, std::type_identity_t<S>* out_up = nullptr,
                      const std::type_identity_t<S>* a_up = nullptr);
// out (rows, columns) += bias (columns)
template <class S>
void add_bias(S* out, const S* bias, int64_t rows, int64_t columns, cudaStream_t stream);
// out[i] += in[i]: for epilogues that can only overwrite.
void add_floats(float* out, const float* in, int64_t n, cudaStream_t stream);

}  // namespace gpt2::ops
