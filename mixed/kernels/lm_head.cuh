// The language model head without logits (lm_head=hopper), of the passes that go backward: a product whose tail writes exponentials where
// logits would stand, and sums their rows.
//
// Of a row r with target y: z = X W^T, loss = log(sum_j exp(z_j)) - z_y. With any offset o in its exponentials,
//   e_j = exp(z_j - o),  s = sum_j e_j,  loss = log(s) + o - z_y.
// With o = z_y no maximum is needed before the product is made: s = exp(loss). With g the scale of the gradient and v = g / s,
//   dlogits = g (softmax - onehot(y)) = v e',  where e' is e, but e'_y = e_y - s, and so
//   dX_r = v_r (e' W)_r    a plain product, and the factor goes onto the rows of its result
//   dW   = e'^T (v X)      a plain product of rows of X with the factor on them
// so nothing is cancelled after a rounding: the one-hot part is put in where it belongs before e' is used. e'_y is the largest of most rows,
// so v takes back what its rounding to bf16 changes: v = g / s * e'_y / bf16(e'_y).
//
// e is bf16, which has the exponents of fp32, so a row whose loss passes 40 or so is too large for it. The product tells (hopper::Problem::
// overflow); then, on the device and without the host, such rows get their largest logit as their offset and the product is made again.
// Rows that were not too large come out with the same bits as before.
#pragma once
#include <cstdint>

#include "gpt2/ops/step_scalars.h"
#include "mixed/hopper_products.h"
#include "mixed/kernels/common.cuh"

namespace mixed {

struct Head {
  int64_t rows, channels, vocabulary, padded;  // channels, padded: multiples of 8
  bf16* x;                                     // (rows, channels)
  const bf16* weight;                          // (padded, channels)
  const int* targets;                          // (rows)
  bf16* exponentials;                          // (rows, padded)
  void* scratch;                               // head_scratch_bytes, which head_losses reads as head_forward left it
};
int64_t head_scratch_bytes(int64_t rows, int64_t padded);

// exponentials = e, 0 in padded columns; offsets and sums of rows in the scratch memory.
void head_forward(HopperProducts& products, const Head& head, cudaStream_t stream);
// losses (rows), factors (rows) = v with g = scalars->gradient_scale; exponentials = e', x = v x.
void head_losses(float* losses, float* factors, const Head& head, const gpt2::ops::StepScalars* scalars, cudaStream_t stream);
// dx (rows, channels): row r times factors[r].
void scale_rows(bf16* dx, const float* factors, int64_t rows, int64_t channels, cudaStream_t stream);

}  // namespace mixed
