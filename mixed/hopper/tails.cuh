// The tails of products: what becomes of the fp32 sums. A tail has
//   Row, row(r)        what it needs of a row; read once per tile and thread
//   Column, column     what it needs of columns c and c + 1 (c is even), and where kPerColumn says so, of_column(c): a value per column that
//                      waits in shared memory
//   eight              eight sums to results of one or two matrices (kOutputs). Sum 4 h + 2 i + e is of row i and column e of column pair h;
//                      `given`: two bf16 each of the matrix it reads (kGiven), given[2 h + i]
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

// GELU(x) = x g, g = (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), u = sqrt(2/pi) (x + 0.044715 x^3); GELU'(x) = g + 2 u' x g (1 - g). A warp
// makes them alone on its scheduler, beside the tensor cores: each instruction counts, and so does its latency. Hence eight at a time, and
// `volatile`, without which the compiler makes one after the other to save registers.
struct Gelu {
  float value[8], slope[8];
};
__device__ __forceinline__ Gelu gelu_and_slope(const float (&x)[8]) {
  constexpr float kTwoU = 2 * 0.7978845608028654f, kLog2E = 1.4426950408889634f, kCubic = 0.044715f;
  float squared[8], power[8], gate[8];  // 2^inf = inf, 1 / inf = 0
#pragma unroll
  for (int i = 0; i < 8; ++i) squared[i] = x[i] * x[i];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(power[i]) : "f"(x[i] * fmaf(squared[i], -kTwoU * kLog2E * kCubic, -kTwoU * kLog2E)));
#pragma unroll
  for (int i = 0; i < 8; ++i) asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(gate[i]) : "f"(1.0f + power[i]));
  Gelu y;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    y.value[i] = x[i] * gate[i];
    y.slope[i] = fmaf(fmaf(-y.value[i], gate[i], y.value[i]), fmaf(squared[i], 3 * kCubic * kTwoU, kTwoU), gate[i]);
  }
  return y;
}

struct Nothing {};

// What most tails do not use.
struct TailBase {
  using Row = Nothing;
  using Column = Nothing;
  static constexpr int kOutputs = 1;
  static constexpr bool kGiven = false, kPerColumn = false, kColumnSums = false, kRowSums = false;
  __device__ __forceinline__ Row row(int, const Shape&) const { return {}; }
  // `kept`: of_column(c) and of_column(c + 1)
  __device__ __forceinline__ Column column(int, const float*) const { return {}; }
};

struct Plain : TailBase {
  __device__ __forceinline__ void eight(const Row (&)[2], const Column (&)[2], const float (&x)[8], const uint32_t (&)[4], float (&y)[8],
                                        float (&)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = x[i];
  }
};

// first = GELU(product + bias), second = GELU'(product + bias).
struct GeluForward : TailBase {
  static constexpr int kOutputs = 2;
  static constexpr bool kPerColumn = true;
  using Column = float2;
  const bf16* bias;
  explicit GeluForward(const bf16* b) : bias(b) {}
  __device__ __forceinline__ float of_column(int c, const Shape& s) const { return c < s.N ? __bfloat162float(bias[c]) : 0.0f; }
  __device__ __forceinline__ Column column(int, const float* kept) const { return *reinterpret_cast<const float2*>(kept); }
  __device__ __forceinline__ void eight(const Row (&)[2], const Column (&of)[2], const float (&x)[8], const uint32_t (&)[4], float (&y)[8],
                                        float (&slope)[8]) const {
    float with_bias[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) with_bias[i] = x[i] + (i % 2 == 0 ? of[i / 4].x : of[i / 4].y);
    const Gelu made = gelu_and_slope(with_bias);
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = made.value[i], slope[i] = made.slope[i];
  }
};

// out = product * GELU'(x), which the forward pass kept; partial[128-row tile][column]: the sums of out's columns over the tile, before
// rounding. A tail that made GELU' from x took half as long again as all of cuBLASLt's product.
struct GeluBackward : TailBase {
  static constexpr bool kGiven = true, kColumnSums = true;
  float* partial;
  explicit GeluBackward(float* p) : partial(p) {}
  __device__ __forceinline__ void eight(const Row (&)[2], const Column (&)[2], const float (&x)[8], const uint32_t (&given)[4],
                                        float (&y)[8], float (&)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = x[i] * (i % 2 == 0 ? low_bf16(given[i / 2]) : high_bf16(given[i / 2]));
  }
  __device__ __forceinline__ void column_sum(float sum, int tile, int c, const Shape& s) const {
    if (c < s.N && tile * kTileM < s.M) partial[static_cast<int64_t>(tile) * s.N + c] = sum;
  }
};

// out = exp(product - offset[row]) in columns below `kept`, 0 in the others; sums[tile of columns][row] over the tile's width, before
// rounding. *overflow becomes 1 where such a sum passes kLargestExponentials or is no number: the caller gives such a row another offset.
struct ExpOverOffset : TailBase {
  static constexpr bool kRowSums = true;
  static constexpr float kLog2E = 1.4426950408889634f;
  using Row = float;   // offset * log2(e)
  using Column = int;  // how many of the two columns are kept
  const float* offset;
  float* sums;
  int* overflow;
  int kept;
  ExpOverOffset(const float* o, float* s, int* f, int k) : offset(o), sums(s), overflow(f), kept(k) {}
  __device__ __forceinline__ Row row(int r, const Shape& s) const { return r < s.M ? __ldg(offset + r) * kLog2E : 0.0f; }
  __device__ __forceinline__ Column column(int c, const float*) const { return kept - c; }
  __device__ __forceinline__ static float power_of_two(float x) {
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  __device__ __forceinline__ void eight(const Row (&offsets)[2], const Column (&left)[2], const float (&x)[8], const uint32_t (&)[4],
                                        float (&y)[8], float (&)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = left[i / 4] > i % 2 ? power_of_two(fmaf(x[i], kLog2E, -offsets[i / 2 % 2])) : 0.0f;
  }
  __device__ __forceinline__ void row_sum(float sum, int r, int tile, const Shape& s) const {
    if (r >= s.M) return;
    sums[static_cast<int64_t>(tile) * s.M + r] = sum;
    if (!(sum <= kLargestExponentials)) *overflow = 1;
  }
};

#endif  // __CUDACC__

}  // namespace hopper
