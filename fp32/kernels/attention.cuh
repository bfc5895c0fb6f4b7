// Causal multi-head attention, forward and backward.
//   s = q k^T / sqrt(HS) for keys up to the query; p = softmax(s); out = p v; lse = log(sum(exp(s)))
//   D = sum(dout * out);  dv = p^T dout;  ds = p * (dout v^T - D) / sqrt(HS);  dq = ds k;  dk = ds^T q
// The forward leaves only out and lse (B,NH,T); the backward makes p again from lse, so no (T,T) matrix outlives an op and forward
// and backward variants mix freely.
//
// Variants: `flash` (attention_fused.cu) never writes scores to memory (own fp32 arithmetic whatever --matmul says; HS up to 128). `unfused` computes whole
// (T,T) matrices with batched products; `unfused_causal_blocks` the same in four blocks of rows, each only as wide as its last row
// needs: 10/16 of the work and traffic.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "fp32/matmul.h"
#include "fp32/variants.h"

namespace fp32 {

struct AttentionShape {
  int64_t B, T, C, NH;
  int64_t HS() const { return C / NH; }
};

// qkv (B,T,3C): q, k, v, each NH heads of HS. out (B,T,C), lse (B,NH,T).
void attention_forward(AttentionForward variant, MatmulEngine& engine, float* out, float* lse, const float* qkv,
                       const AttentionShape& shape, float* scratch, cudaStream_t stream);
int64_t attention_forward_scratch_floats(AttentionForward variant, const AttentionShape& shape);

// dqkv (B,T,3C) is written.
void attention_backward(AttentionBackward variant, MatmulEngine& engine, float* dqkv, const float* dout, const float* qkv, const float* out,
                        const float* lse, const AttentionShape& shape, float* scratch, cudaStream_t stream);
int64_t attention_backward_scratch_floats(AttentionBackward variant, const AttentionShape& shape);

// Why heads of this size cannot be computed by `flash`; empty when they can.
std::optional<std::string> why_not_flash(int64_t head_size);

// The two families; `blocks` is the number of row blocks. Launched through the two functions above.
void unfused_attention_forward(MatmulEngine& engine, float* out, float* lse, const float* qkv, const AttentionShape& shape, int64_t blocks,
                               float* scratch, cudaStream_t stream);
void unfused_attention_backward(MatmulEngine& engine, float* dqkv, const float* dout, const float* qkv, const float* out, const float* lse,
                                const AttentionShape& shape, int64_t blocks, float* scratch, cudaStream_t stream);
int64_t unfused_forward_scratch_floats(const AttentionShape& shape);
int64_t unfused_backward_scratch_floats(const AttentionShape& shape);

void fused_attention_forward(float* out, float* lse, const float* qkv, const AttentionShape& shape, cudaStream_t stream);
void fused_attention_backward(float* dqkv, const float* dout, const float* qkv, const float* out, const float* lse,
                              const AttentionShape& shape, float* scratch, cudaStream_t stream);
int64_t fused_backward_scratch_floats(const AttentionShape& shape);

}  // namespace fp32
