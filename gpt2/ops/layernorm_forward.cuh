// Layer normalization over C channels, eps 1e-5, with the residual sum that may come before it.
//   xhat = (x - mean) * rstd;  out = xhat * weight + bias
//
// S is the storage type of activations and weights, R that of the residual stream. Instances <S, R>: <float, float> of the fp32 trainer,
// <bf16, bf16>, <bf16, float> and <bf16, LowByte> of the mixed one. Where the stream keeps more than S, the backward pass is left a copy
// rounded to S, `kept`: half the memory, and its rounding is one of many there. With LowByte that copy is the upper half of the stream.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "gpt2/ops/storage.cuh"
#include "gpt2/ops/variants.h"

namespace gpt2::ops {

// Why rows of C channels cannot be handled in storage S; empty when they can. `packs`: rows and tensors are aligned for packs of 16 bytes
// of S. The functions below throw stepscope::InputError with these words.
template <class S>
std::optional<std::string> why_not(LayernormForward variant, int64_t C, bool packs);

// out (rows,C), mean (rows), rstd (rows). mean and rstd may be null when only `out` is wanted again (activation recompute).
// kept (rows,C): null, or receives inp rounded to S, where R is wider; with LowByte null. inp_up (rows,C): the upper halves of inp with
// LowByte, else null.
template <class S, class R>
void layernorm_forward(LayernormForward variant, S* out, float* mean, float* rstd, const R* inp, std::type_identity_t<S>* kept,
                       const S* weight, const S* bias, int64_t rows, int64_t C, cudaStream_t stream,
                       const std::type_identity_t<S>* inp_up = nullptr);

// sum (rows,C) = a + branch, rounded to R; then layernorm of that rounded sum. One read of a and branch, one write of sum, kept and
// out. sum may be a. a_up: as inp_up; kept is then the upper half of sum, and may be a_up.
template <class S, class R>
void residual_layernorm_forward(LayernormForward variant, R* sum, std::type_identity_t<S>* kept, S* out, float* mean, float* rstd,
                                const R* a, const S* branch, const S* weight, const S* bias, int64_t rows, int64_t C, cudaStream_t stream,
                                const std::type_identity_t<S>* a_up = nullptr);

}  // namespace gpt2::ops
