// Layer normalization over C channels, eps 1e-5, forward and backward.
//   xhat = (x - mean) * rstd;  out = xhat * weight + bias
//   dn = dout * weight;  dinp = rstd * (dn - mean(dn) - xhat * mean(dn * xhat));  dweight = sum dout * xhat;  dbias = sum dout
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "fp32/variants.h"

namespace fp32 {

// out (rows,C), mean (rows), rstd (rows)
void layernorm_forward(LayernormForward variant, float* out, float* mean, float* rstd, const float* inp, const float* weight,
                       const float* bias, int64_t rows, int64_t C, cudaStream_t stream);

// dinp is written, or added to when `add_to_dinp` (the residual stream's gradient); dweight and dbias are written, or added to when
// `accumulate`.
void layernorm_backward(LayernormBackward variant, float* dinp, float* dweight, float* dbias, const float* dout, const float* inp,
                        const float* mean, const float* rstd, const float* weight, int64_t rows, int64_t C, bool add_to_dinp,
                        bool accumulate, float* scratch, cudaStream_t stream);
// Why rows of C channels cannot be handled; empty when they can. `packs`: rows and tensors are aligned for packs of 4.
std::optional<std::string> why_not(LayernormBackward variant, int64_t C, bool packs);
int64_t layernorm_backward_scratch_floats(LayernormBackward variant, int64_t rows, int64_t C);

}  // namespace fp32
