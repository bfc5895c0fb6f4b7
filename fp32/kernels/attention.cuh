// Attention (gpt2/ops/attention.h) of the fp32 trainer.
//
// Variants: `flash` never writes scores to memory; with --matmul fp32 its products are in fp32 arithmetic (attention_flash.cu, HS up to 128),
// with tf32 on tensor cores (attention_tf32.cu, HS up to 64).
// `unfused` computes whole (T,T) matrices with batched products (gpt2/ops/attention_unfused.cuh); `unfused_causal_blocks` the same in
// four blocks of rows, each only as wide as its last row needs: 10/16 of the work and traffic.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "fp32/matmul.h"
#include "fp32/variants.h"
#include "gpt2/ops/attention.h"

namespace fp32 {

using gpt2::ops::AttentionShape;

// qkv (B,T,3C) -> out (B,T,C), lse (B,NH,T).
void attention_forward(AttentionForward variant, MatmulEngine& engine, float* out, float* lse, const float* qkv,
                       const AttentionShape& shape, void* scratch, cudaStream_t stream);
int64_t attention_forward_scratch_bytes(AttentionForward variant, const AttentionShape& shape);
// dqkv (B,T,3C) is written.
void attention_backward(AttentionBackward variant, MatmulEngine& engine, float* dqkv, const float* dout, const float* qkv, const float* out,
                        const float* lse, const AttentionShape& shape, void* scratch, cudaStream_t stream);
int64_t attention_backward_scratch_bytes(AttentionBackward variant, const AttentionShape& shape);
// Why heads of this size cannot be computed by `flash` at this rate, on a device that gives a block so much shared memory; empty when they can.
std::optional<std::string> why_not_flash(MatmulRate rate, int64_t head_size, int64_t shared_bytes_per_block);

// Launched through the functions above. `scratch`: flash_backward_scratch_bytes().
void fp32_flash_forward(float* out, float* lse, const float* qkv, const AttentionShape& shape, cudaStream_t stream);
void tf32_flash_forward(float* out, float* lse, const float* qkv, const AttentionShape& shape, cudaStream_t stream);
void fp32_flash_backward(float* dqkv, const float* dout, const float* qkv, const float* out, const float* lse, const AttentionShape& shape,
                         void* scratch, cudaStream_t stream);
void tf32_flash_backward(float* dqkv, const float* dout, const float* qkv, const float* out, const float* lse, const AttentionShape& shape,
                         void* scratch, cudaStream_t stream);
int64_t flash_backward_scratch_bytes(const AttentionShape& shape);
// Shared memory that a block of the backward takes, which is more than the forward's, for heads of at most 128 channels.
int64_t fp32_flash_shared_bytes(int64_t head_size);

}  // namespace fp32
