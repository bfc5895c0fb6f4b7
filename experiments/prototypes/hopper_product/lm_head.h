// The language model head without logits: what lies between the product with Tail::exponential and the two plain products behind it.
//
// Of a row r with target y: z = X W^T, loss = log(sum_j exp(z_j)) - z_y. With the offset z_y in every exponential,
//   e_j = exp(z_j - z_y),  s = sum_j e_j,  loss = log(s):
// no maximum is needed, and e is at most s = exp(loss). With g the scale of the gradient (1 / rows) and v = g / s,
//   dlogits = g (softmax - onehot(y)) = v e - g onehot(y), and so
//   dX_r = v_r (E W)_r - g W_y            the factor goes onto the rows of the result: head_input_gradient
//   dW   = E^T (v X) - g onehot^T X       the factor goes onto the rows of X: head_losses; the one-hot part is a sum of rows by target, which
//                                         embedding_backward makes in a fixed order
// E is bf16, which has the exponents of fp32: a row is too large where its loss passes 80. Then the product reports overflow, and the whole
// micro-batch takes the plain path, so that a run repeats bit for bit.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace hopper {

struct Head {
  int64_t rows, channels;  // channels: a multiple of 8
  const __nv_bfloat16* x;  // [rows][channels]
  const __nv_bfloat16* w;  // [vocabulary][channels]
  const int* targets;      // [rows]
};

// offset[r] = X_r . W_y, in fp32 and a fixed order.
void head_offsets(float* offset, const Head& head, cudaStream_t stream);
// s_r = the sum of row_sums[0 .. widths - 1][r] in that order; losses[r] = log(s_r), factors[r] = g / s_r, scaled[r] = factors[r] X_r.
// `gradient_scale` lies on the device, so that one captured graph serves every step.
void head_losses(float* losses, float* factors, __nv_bfloat16* scaled, const float* row_sums, int widths, const float* gradient_scale,
                 const Head& head, cudaStream_t stream);
// dx holds E W and becomes the gradient of X.
void head_input_gradient(__nv_bfloat16* dx, const float* factors, const float* gradient_scale, const Head& head, cudaStream_t stream);

}  // namespace hopper
