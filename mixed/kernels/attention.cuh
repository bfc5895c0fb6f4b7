// Attention (gpt2/ops/attention.h) of the mixed-precision trainer.
//
// Variants: `cudnn` (attention_cudnn.cpp; HS a multiple of 8 up to 128), `hopper`
// (mixed/hopper/attention.h; compute capability 9.0, HS 64), `flash` (own tensor-core kernels that never write scores to
// memory; HS up to 128), `unfused` (gpt2/ops/attention_unfused.cuh: batched products with fp32 scores in scratch;
// any shape). `plan` says which plan of cuDNN runs; the other variants have none to choose.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "gpt2/ops/attention.h"
#include "mixed/hopper/column_sums.h"
#include "mixed/kernels/common.cuh"
#include "mixed/kernels/softmax_bias.cuh"
#include "mixed/matmul.h"
#include "mixed/variants.h"

namespace mixed {

using gpt2::ops::AttentionShape;

// qkv (B,T,3C) -> out (B,T,C), lse (B,NH,T).
void attention_forward(AttentionForward variant, AttentionPlan plan, MatmulEngine& engine, bf16* out, float* lse, const bf16* qkv,
                       const AttentionShape& shape, void* scratch, cudaStream_t stream);
int64_t attention_forward_scratch_bytes(AttentionForward variant, AttentionPlan plan, const AttentionShape& shape);

// dqkv (B,T,3C) is written. sums: null, or with `hopper` alone attention_sum_rows rows of sums of dqkv's columns (mixed/hopper/attention.h).
void attention_backward(AttentionBackward variant, AttentionPlan plan, MatmulEngine& engine, bf16* dqkv, const bf16* dout, const bf16* qkv,
                        const bf16* out, const float* lse, const AttentionShape& shape, void* scratch, cudaStream_t stream,
                        const hopper::ColumnSums& sums = {});
int64_t attention_backward_scratch_bytes(AttentionBackward variant, AttentionPlan plan, const AttentionShape& shape);

// Whether attention's backward sums dqkv's columns, and the sums as it leaves them in the scratch memory, behind what it takes itself.
bool sums_columns(BiasGradient bias);
int64_t attention_sums_bytes(BiasGradient bias, const AttentionShape& shape);  // 0 where it does not
// Null where it does not; of q's columns alone with softmax_identities.
hopper::ColumnSums attention_sums(BiasGradient bias, AttentionBackward variant, AttentionPlan plan, const AttentionShape& shape,
                                  void* scratch);
// dbias (3C) = the sum of them; added to when `accumulate`.
void add_attention_sums(float* dbias, const float* sums, const AttentionShape& shape, bool accumulate, cudaStream_t stream);
// dbias (3C) of the layer that makes qkv: of all columns as above; of q's alone the same for q, and k and v as kernels/softmax_bias.cuh says,
// from what `behind` has summed up by then.
void attention_bias_gradient(float* dbias, const hopper::ColumnSums& sums, const LinearBehind& behind, const AttentionShape& shape,
                             bool accumulate, cudaStream_t stream);

// Why heads of this size cannot be computed by `flash`; empty when they can.
std::optional<std::string> why_not_flash(int64_t head_size);

// Launched through the functions above.
void flash_attention_forward(bf16* out, float* lse, const bf16* qkv, const AttentionShape& shape, cudaStream_t stream);
void flash_attention_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse, const AttentionShape& shape,
                              void* scratch, cudaStream_t stream);
int64_t flash_backward_scratch_bytes(const AttentionShape& shape);

}  // namespace mixed
