// The rungs of the ladders in docs/learn: plain kernels that no trainer uses, each one idea beyond the one before. One signature per op,
// which a reader's own solution has as well (docs/learn/README.md). All arrays are fp32 and row-major on the device; every launch goes to
// `stream` and returns without waiting.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace learn {

// out = (inp - mean) * rstd * weight + bias by rows of C; rstd = 1 / sqrt(variance + 1e-5). inp, out: (rows, C); mean, rstd: (rows).
using LayernormForward = void(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias, int64_t rows,
                              int64_t C, cudaStream_t stream);
LayernormForward layernorm_thread_per_row, layernorm_three_kernels, layernorm_warp_two_passes, layernorm_moments;

// dinp, dweight and dbias are written. dout, inp, dinp: (rows, C); dweight, dbias: (C).
using LayernormBackward = void(float* dinp, float* dweight, float* dbias, const float* dout, const float* inp, const float* mean,
                               const float* rstd, const float* weight, int64_t rows, int64_t C, cudaStream_t stream);
LayernormBackward layernorm_backward_atomics, layernorm_backward_block_atomics;

// out = inp weightᵀ + bias. inp: (rows, in), weight: (out_columns, in), out: (rows, out_columns); bias: (out_columns) or null.
using LinearForward = void(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in,
                           int64_t out_columns, cudaStream_t stream);
LinearForward linear_scattered, linear_coalesced, linear_shared_tiles, linear_register_tiles;

// Causal attention of NH heads of C / NH <= 128 channels. qkv: (B, T, 3C), queries, keys and values; out: (B, T, C);
// lse: (B, NH, T), the logarithm of the sum of exp(score) of a row, scores divided by sqrt(C / NH).
using AttentionForward = void(float* out, float* lse, const float* qkv, int64_t B, int64_t T, int64_t C, int64_t NH, cudaStream_t stream);
AttentionForward attention_thread_per_query, attention_warp_per_query, attention_key_tiles;

// losses[r] = -log softmax(logits[r])[targets[r]]; logits become (softmax - one-hot) * scale. logits: (rows, Vp), of which the first V
// columns count and the others become 0.
using Classifier = void(float* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp, float scale,
                        cudaStream_t stream);
Classifier classifier_written_out, classifier_online;

}  // namespace learn
