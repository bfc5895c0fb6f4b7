// Backward of layer normalization over C channels (layernorm_forward.cuh).
//   dn = dout * weight;  dinp = rstd * (dn - mean(dn) - xhat * mean(dn * xhat));  dweight = sum dout * xhat;  dbias = sum dout
//
// S is the storage type of activations and weights, R that of the residual stream's gradient. Instances <S, R>: <float, float> of the
// fp32 trainer, <bf16, bf16>, <bf16, float> and <bf16, LowByte> of the mixed one.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "gpt2/ops/storage.cuh"
#include "gpt2/ops/variants.h"

namespace gpt2::ops {

// Why rows of C channels cannot be handled in storage S; empty when they can. `packs`: rows and tensors are aligned for packs of 16 bytes
// of S. The function below throws stepscope::InputError with these words.
template <class S>
std::optional<std::string> why_not(LayernormBackward variant, int64_t C, bool packs);

// What the backward writes. dweight, dbias and dinp_column_sums (C each) are written, or added to with `accumulate`.
template <class S, class R>
struct LayernormGradients {
  R* dinp = nullptr;  // (rows,C): written, or added to with `add_to_dinp` (the residual stream's gradient)
  // Null, or receives dinp rounded to S, where R is wider: matrix products need an operand of S. With LowByte the upper half of dinp.
  S* dinp_copy = nullptr;
  float* dweight = nullptr;
  float* dbias = nullptr;
  // Null, or the column sums of the final dinp as S stores it: the bias gradient of the projection in front of the residual sum.
  float* dinp_column_sums = nullptr;
  bool add_to_dinp = false;
  bool accumulate = false;
};
template <class S, class R>
void layernorm_backward(LayernormBackward variant, const LayernormGradients<S, R>& to, const S* dout, const S* inp, const float* mean,
                        const float* rstd, const S* weight, int64_t rows, int64_t C, float* scratch, cudaStream_t stream);
template <class S>
int64_t layernorm_backward_scratch_floats(LayernormBackward variant, int64_t rows, int64_t C);

}  // namespace gpt2::ops
