// Every op of the CPU reference that is neither a matrix product nor attention, forward and backward, on all
// threads. All sums over tokens run in a fixed order: bitwise the same result for any number of threads.
// Shapes: M = B*T tokens; tensors row-major; `accumulate` adds to a parameter gradient instead of overwriting
// it.
#pragma once
#include <cstdint>
#include <span>

#include "gpt2/tensor_table.h"

namespace gpt2::reference {

// out (M, C) = wte[token] + wpe[position]; position = row % seq_len
template <typename Real>
void embedding_forward(Real* out, std::span<const int32_t> tokens, const Real* wte, const Real* wpe, int64_t seq_len, int64_t C);
// dwte (Vp, C) is always added to: the lm head has written it before. dwpe (max_seq_len, C): rows beyond
// seq_len get zero.
template <typename Real>
void embedding_backward(Real* dwte, Real* dwpe, const Real* dout, std::span<const int32_t> tokens, int64_t seq_len, int64_t max_seq_len,
                        int64_t C, bool accumulate);

// out = (x - mean) * rstd * weight + bias over C, eps 1e-5 inside the root, variance without Bessel's
// correction. mean, rstd (M) are kept for the backward pass.
template <typename Real>
void layernorm_forward(Real* out, Real* mean, Real* rstd, const Real* x, const Real* weight, const Real* bias, int64_t M, int64_t C);
// dx (+)= …: `add_to_dx` because the residual stream's gradient passes by the norm and through it.
template <typename Real>
void layernorm_backward(Real* dx, bool add_to_dx, Real* dweight, Real* dbias, bool accumulate, const Real* dout, const Real* x,
                        const Real* mean, const Real* rstd, const Real* weight, int64_t M, int64_t C);

template <typename Real>
void residual_forward(Real* out, const Real* a, const Real* b, int64_t count);
template <typename Real>
void gelu_forward(Real* out, const Real* x, int64_t count);
// In place: grad (in: of the output, out: of the input).
template <typename Real>
void gelu_backward(Real* grad, const Real* x, int64_t count);

// dbias (columns) (+)= sum over rows of dout (rows, columns)
template <typename Real>
void bias_backward(Real* dbias, const Real* dout, int64_t rows, int64_t columns, bool accumulate);

// Mean cross-entropy of softmax(logits) over V columns of rows of Vp: padding columns take no part. With
// `gradient_scale` != 0 the V columns are replaced by gradient_scale * (softmax - onehot); padding stays as
// it is.
template <typename Real>
double softmax_cross_entropy(Real* logits, std::span<const int32_t> targets, int64_t V, int64_t Vp, double gradient_scale);

// Root of the sum of squares, accumulated in double.
template <typename Real>
double norm(std::span<const Real> values);

// The numbers of one AdamW update (the formula is in gpt2/trainer.h). Doubles: the oracle must not inherit
// the rounding of trainer.h's floats (0.9f is 2.6e-8 off, which ten steps make visible).
struct AdamWNumbers {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  // min(1, clip / norm)
  int64_t t = 1;              // of the bias correction, from 1
};
// One parameter range; `decayed` as its row of the tensor table says.
template <typename Real>
void adamw(std::span<Real> parameters, std::span<Real> m, std::span<Real> v, std::span<const Real> gradients, const AdamWNumbers& numbers,
           bool decayed);

}  // namespace gpt2::reference
