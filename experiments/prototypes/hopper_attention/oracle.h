// Attention by its definition on the device: one block for a row, sums in double. For shapes whose T x T matrices fit in memory.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops/attention.h"

namespace oracle {

using bf16 = __nv_bfloat16;
using gpt2::ops::AttentionShape;

struct Results {
  gpt2::cuda::DeviceBuffer<float> out, lse, dqkv;  // (B,T,C), (B,NH,T), (B,T,3C)
  gpt2::cuda::DeviceBuffer<bf16> out_rounded;
};
Results attention(const bf16* qkv, const bf16* dout, const AttentionShape& shape);

// Normally distributed values of mean 0, the first C of every `row` times `first`.
void fill(bf16* p, int64_t n, float scale, unsigned seed, int64_t row = 1, int64_t C = 0, float first = 1);

// Over all values and over those alone that belong to q, k or v of a (B,T,3C).
struct Difference {
  double rms = 0, largest = 0;  // over the rms of the reference
  int64_t where = -1;           // of the first that is wrong by more than a quarter of the rms, or no number
};
template <class T>
Difference difference(const T* x, const float* reference, int64_t n, int64_t row, int64_t from, int64_t to);

}  // namespace oracle
