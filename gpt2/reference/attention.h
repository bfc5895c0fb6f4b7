// Causal self-attention of the CPU reference. qkv (M, 3C) holds q, k, v side by side, head h at columns h*HS
// of each part (llm.c's layout); the probabilities are never stored: the backward pass computes them again
// from the log-sum-exp.
#pragma once
#include <cstdint>
#include <vector>

#include "gpt2/reference/gemm.h"

namespace gpt2::reference {

struct AttentionShape {
  int64_t batch, seq_len, heads, head_size;
  int64_t channels() const { return heads * head_size; }
};

// What one thread needs besides the tensors. The number of these caps the threads that attention uses.
template <typename Real>
class AttentionScratch {
 public:
  explicit AttentionScratch(const AttentionShape& shape);
  Real* scores() { return scores_.data(); }
  Real* score_gradients() { return score_gradients_.data(); }
  PackBuffers<Real>& buffers() { return buffers_; }
  int64_t bytes() const { return scores_.bytes() + score_gradients_.bytes() + buffers_.bytes(); }

 private:
  Buffer<Real> scores_, score_gradients_;
  PackBuffers<Real> buffers_;
};

// out (M, C), log_sum_exp (B, NH, T): of the scaled scores q·k / sqrt(HS) over the positions up to the row's
// own.
template <typename Real>
void attention_forward(const AttentionShape& shape, Real* out, Real* log_sum_exp, const Real* qkv,
                       std::vector<AttentionScratch<Real>>& scratch);
// dqkv (M, 3C) is overwritten.
template <typename Real>
void attention_backward(const AttentionShape& shape, Real* dqkv, const Real* dout, const Real* out, const Real* log_sum_exp,
                        const Real* qkv, std::vector<AttentionScratch<Real>>& scratch);

}  // namespace gpt2::reference
