// Attention (attention.h) as batched matrix products over (T,T) scores of one layer, with a softmax kernel between them; any shape.
//
// S is the storage type of all but scores, dout v^T and lse, which are fp32: float or bf16, both instantiated.
//
// Scores are cut into blocks of rows: rows [begin, end) are computed for columns [0, end) only. Inside that block the entries above the
// diagonal exist and are written as exact zeros, because the products that follow read them; beyond column `end` nothing is ever
// written or read. Columns are cut at the same places, so dk and dv of columns [begin, end) read rows from `begin` on.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>

#include "gpt2/ops/attention.h"
#include "gpt2/ops/storage.cuh"

namespace gpt2::ops {

// One product for each of `batch` heads: c (m,n) = op(a) (m,k) op(b) (k,n), row-major. Leading dimensions and strides in elements.
template <class S>
struct HeadProduct {
  int64_t batch = 1;
  bool transpose_a = false;  // a is stored (k,m)
  bool transpose_b = false;  // b is stored (n,k)
  int64_t m = 0, n = 0, k = 0;
  const S* a = nullptr;
  int64_t lda = 0, stride_a = 0;
  const S* b = nullptr;
  int64_t ldb = 0, stride_b = 0;
  void* c = nullptr;
  bool c_is_fp32 = false;  // else S
  int64_t ldc = 0, stride_c = 0;
};
// A trainer's way to launch it.
template <class S>
using RunHeadProduct = std::function<void(const HeadProduct<S>&)>;

// Blocks of rows that do 10/16 of the work of whole matrices; 1 computes whole ones.
inline constexpr int64_t kCausalBlocks = 4;

// qkv (B,T,3C): q, k, v, each NH heads of HS. out (B,T,C), lse (B,NH,T).
template <class S>
void unfused_attention_forward(const RunHeadProduct<S>& product, S* out, float* lse, const S* qkv, const AttentionShape& shape,
                               int64_t blocks, void* scratch, cudaStream_t stream);
template <class S>
int64_t unfused_forward_scratch_bytes(const AttentionShape& shape);
// dqkv (B,T,3C) is written.
template <class S>
void unfused_attention_backward(const RunHeadProduct<S>& product, S* dqkv, const S* dout, const S* qkv, const S* out, const float* lse,
                                const AttentionShape& shape, int64_t blocks, void* scratch, cudaStream_t stream);
template <class S>
int64_t unfused_backward_scratch_bytes(const AttentionShape& shape);

}  // namespace gpt2::ops
