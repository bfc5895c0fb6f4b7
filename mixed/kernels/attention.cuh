// Causal multi-head attention, forward and backward.
//   s = q k^T / sqrt(HS) for keys up to the query; p = softmax(s); out = p v; lse = log(sum(exp(s)))
//   D = sum(dout * out);  dv = p^T dout;  ds = p * (dout v^T - D) / sqrt(HS);  dq = ds k;  dk = ds^T q
// The forward leaves only out and lse (B,NH,T; natural logarithm, fp32); the backward makes p again from lse, so forward and backward
// variants mix freely.
//
// Variants: `cudnn` (attention_cudnn.cpp; HS a multiple of 8 up to 128), `flash` (own tensor-core kernels that never write scores to
// memory; HS up to 128), `unfused` (batched products with fp32 scores in scratch; any shape).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "mixed/kernels/common.cuh"
#include "mixed/matmul.h"
#include "mixed/variants.h"

namespace mixed {

struct AttentionShape {
  int64_t B, T, C, NH;
  int64_t HS() const { return C / NH; }
};

// qkv (B,T,3C): q, k, v, each NH heads of HS. out (B,T,C), lse (B,NH,T).
void attention_forward(AttentionForward variant, MatmulEngine& engine, bf16* out, float* lse, const bf16* qkv, const AttentionShape& shape,
                       void* scratch, cudaStream_t stream);
int64_t attention_forward_scratch_bytes(AttentionForward variant, const AttentionShape& shape);

// dqkv (B,T,3C) is written.
void attention_backward(AttentionBackward variant, MatmulEngine& engine, bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out,
                        const float* lse, const AttentionShape& shape, void* scratch, cudaStream_t stream);
int64_t attention_backward_scratch_bytes(AttentionBackward variant, const AttentionShape& shape);

// Why heads of this size cannot be computed by `flash`; empty when they can.
std::optional<std::string> why_not_flash(int64_t head_size);

// The families, launched through the functions above.
void flash_attention_forward(bf16* out, float* lse, const bf16* qkv, const AttentionShape& shape, cudaStream_t stream);
void flash_attention_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse, const AttentionShape& shape,
                              void* scratch, cudaStream_t stream);
int64_t flash_backward_scratch_bytes(const AttentionShape& shape);

void unfused_attention_forward(MatmulEngine& engine, bf16* out, float* lse, const bf16* qkv, const AttentionShape& shape, void* scratch,
                               cudaStream_t stream);
void unfused_attention_backward(MatmulEngine& engine, bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse,
                                const AttentionShape& shape, void* scratch, cudaStream_t stream);
int64_t unfused_forward_scratch_bytes(const AttentionShape& shape);
int64_t unfused_backward_scratch_bytes(const AttentionShape& shape);

}  // namespace mixed
