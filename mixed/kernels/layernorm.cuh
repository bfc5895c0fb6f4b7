// Layer normalization over C channels, eps 1e-5, forward and backward, with the residual sum that comes before it.
//   xhat = (x - mean) * rstd;  out = xhat * weight + bias
//   dn = dout * weight;  dinp = rstd * (dn - mean(dn) - xhat * mean(dn * xhat));  dweight = sum dout * xhat;  dbias = sum dout
//
// R is the storage type of the residual stream and of its gradient: bf16 or float, both instantiated. Where the stream is float, the
// backward pass is left a copy rounded to bf16, `kept`: half the memory, and its rounding is one of many there.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "mixed/kernels/common.cuh"
#include "mixed/variants.h"

namespace mixed {

// out (rows,C), mean (rows), rstd (rows). mean and rstd may be null when only `out` is wanted again (activation recompute).
// kept (rows,C): null, or receives inp rounded to bf16.
template <class R>
void layernorm_forward(LayernormForward variant, bf16* out, float* mean, float* rstd, const R* inp, bf16* kept, const bf16* weight,
                       const bf16* bias, int64_t rows, int64_t C, cudaStream_t stream);

// Why rows of C channels cannot be handled; empty when they can. `packs`: rows and tensors are aligned for packs of 8. The functions
// here throw stepscope::InputError with these words.
std::optional<std::string> why_not(LayernormForward variant, int64_t C, bool packs);
std::optional<std::string> why_not(LayernormBackward variant, int64_t C, bool packs);

// sum (rows,C) = a + branch, rounded to R; then layernorm of that rounded sum. One read of a and branch, one write of sum, kept and
// out. sum may be a.
template <class R>
void residual_layernorm_forward(LayernormForward variant, R* sum, bf16* kept, bf16* out, float* mean, float* rstd, const R* a,
                                const bf16* branch, const bf16* weight, const bf16* bias, int64_t rows, int64_t C, cudaStream_t stream);

// dinp (rows,C) is written, or added to when `add_to_dinp` (the residual stream's gradient).
// dinp_copy: null, or receives dinp rounded to bf16 (for R = float, whose matrix products need a bf16 operand).
// dweight and dbias (C): written, or added to when `accumulate`.
// dinp_column_sums (C; null = not wanted): column sums of the final dinp as stored, which are the bias gradient of the projection in
// front of the residual sum; written, or added to when `accumulate`.
template <class R>
void layernorm_backward(LayernormBackward variant, R* dinp, bf16* dinp_copy, float* dweight, float* dbias, float* dinp_column_sums,
                        const bf16* dout, const bf16* inp, const float* mean, const float* rstd, const bf16* weight, int64_t rows,
                        int64_t C, bool add_to_dinp, bool accumulate, float* scratch, cudaStream_t stream);
int64_t layernorm_backward_scratch_floats(LayernormBackward variant, int64_t rows, int64_t C);

}  // namespace mixed
