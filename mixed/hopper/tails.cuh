// The tails of products: what becomes of the fp32 sums. A tail has
//   Row, row(r)        what it needs of a row; read once per tile and thread
//   Column, column(c)  what it needs of columns c and c + 1 (c is even)
//   pair               two neighbouring sums to results of one or two matrices (kOutputs); `given`: two bf16 of the matrix it reads (kGiven)
//   column_sum         kColumnSums: receives sums of a column's results over 128 rows, before rounding; row_sum likewise over a tile's width
// Rows and columns may lie outside the matrix: what a tail reads of them is its own affair, what it makes of them is not stored.
// GELU and its derivative as in gpt2/ops/elementwise.cu.
#pragma once
#include "mixed/hopper/product.cuh"

namespace hopper {

using gpt2::ops::bf16;

#ifdef __CUDACC__

__device__ __forceinline__ float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

constexpr float kSqrtTwoOverPi = 0.7978845608028654f, kCubic = 0.044715f;

// (1 + tanh(u)) / 2 of GELU(x) = x (1 + tanh(u)) / 2, u = sqrt(2/pi) (x + 0.044715 x^3).
__device__ __forceinline__ float gelu_gate(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-2.0f * kSqrtTwoOverPi * x * (1.0f + kCubic * x * x)));
}
__device__ __forceinline__ float gelu_slope(float x, float gate) {
  return gate + x * gate * (1.0f - gate) * (2.0f * kSqrtTwoOverPi) * (1.0f + 3.0f * kCubic * x * x);
}

struct One {
  float first[2];
};
struct Two {
  float first[2], second[2];
};
struct Nothing {};

// What most tails do not use.
struct TailBase {
  using Row = Nothing;
  using Column = Nothing;
  static constexpr int kOutputs = 1;
  static constexpr bool kGiven = false, kColumnSums = false, kRowSums = false;
  __device__ __forceinline__ Row row(int, const Shape&) const { return {}; }
  __device__ __forceinline__ Column column(int, const Shape&) const { return {}; }
};

struct Plain : TailBase {
  __device__ __forceinline__ One pair(Row, Column, float x, float y, uint32_t) const { return {{x, y}}; }
};

// first = GELU(product + bias), second = GELU'(product + bias).
struct GeluForward : TailBase {
  static constexpr int kOutputs = 2;
  using Column = uint32_t;  // two bf16
  const bf16* bias;
  explicit GeluForward(const bf16* b) : bias(b) {}
  __device__ __forceinline__ Column column(int c, const Shape& s) const {
    uint32_t two = 0;  // volatile: loads of all columns at once would take the registers that hold sums
    if (c < s.N) asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(two) : "l"(bias + c));
    return two;
  }
  __device__ __forceinline__ Two pair(Row, Column c, float x, float y, uint32_t) const {
    x += low_bf16(c);
    y += high_bf16(c);
    const float gx = gelu_gate(x), gy = gelu_gate(y);
    return {{x * gx, y * gy}, {gelu_slope(x, gx), gelu_slope(y, gy)}};
  }
};

// out = product * GELU'(x); partial[128-row tile][column]: the sums of out's columns over the tile, before rounding. kSlope: what is given is
// GELU'(x), else x.
template <bool kSlope>
struct GeluBackward : TailBase {
  static constexpr bool kGiven = true, kColumnSums = true;
  float* partial;
  explicit GeluBackward(float* p) : partial(p) {}
  __device__ __forceinline__ static float slope(float g) { return kSlope ? g : gelu_slope(g, gelu_gate(g)); }
  __device__ __forceinline__ One pair(Row, Column, float x, float y, uint32_t given) const {
    return {{x * slope(low_bf16(given)), y * slope(high_bf16(given))}};
  }
  __device__ __forceinline__ void column_sum(float sum, int tile, int c, const Shape& s) const {
    if (c < s.N && tile * kTileM < s.M) partial[static_cast<int64_t>(tile) * s.N + c] = sum;
  }
};

// out = exp(product - offset[row]) in columns below `kept`, 0 in the others; sums[tile of columns][row] over the tile's width, before
// rounding. *overflow becomes 1 where such a sum passes e^80 or is no number: 50257 of them are still finite in fp32 and bf16, and what lies
// beyond is for the caller to do otherwise.
struct ExpOverOffset : TailBase {
  static constexpr bool kRowSums = true;
  static constexpr float kLargest = 5.54e34f, kLog2E = 1.4426950408889634f;
  using Row = float;   // offset * log2(e)
  using Column = int;  // how many of the two columns are kept
  const float* offset;
  float* sums;
  int* overflow;
  int kept;
  ExpOverOffset(const float* o, float* s, int* f, int k) : offset(o), sums(s), overflow(f), kept(k) {}
  __device__ __forceinline__ Row row(int r, const Shape& s) const { return r < s.M ? __ldg(offset + r) * kLog2E : 0.0f; }
  __device__ __forceinline__ Column column(int c, const Shape&) const { return kept - c; }
  __device__ __forceinline__ static float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  __device__ __forceinline__ One pair(Row r, Column left, float x, float y, uint32_t) const {
    return {{left > 0 ? power_of_two(fmaf(x, kLog2E, -r)) : 0.0f, left > 1 ? power_of_two(fmaf(y, kLog2E, -r)) : 0.0f}};
  }
  __device__ __forceinline__ void row_sum(float sum, int r, int tile, const Shape& s) const {
    if (r >= s.M) return;
    sums[static_cast<int64_t>(tile) * s.M + r] = sum;
    if (!(sum <= kLargest)) *overflow = 1;
  }
};

#endif  // __CUDACC__

}  // namespace hopper
