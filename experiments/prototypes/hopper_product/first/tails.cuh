// The tails of products: what becomes of 8 neighbouring results of a row, which come rounded to bf16 in 16 bytes. Each has
//   Ahead   what it reads of its own for these 8;       fetch reads it, a group of rows before it is used
//   begin   once per tile and lane;                      row   for 8 results;         end   once per tile, all finisher warps
// `inside`: the row and the columns are of the matrix. GELU and its derivative as in gpt2/ops/elementwise.cu.
#pragma once
#include "experiments/prototypes/hopper_product/first/product.cuh"

namespace hopper_first {

using gpt2::ops::bf16;

#ifdef __CUDACC__

using gpt2::ops::load;
using gpt2::ops::store;
using Eight = gpt2::ops::Pack<8>;

__device__ __forceinline__ Eight unpack(const uint4& raw) { return load<8>(reinterpret_cast<const bf16*>(&raw)); }

constexpr float kSqrtTwoOverPi = 0.7978845608028654f, kCubic = 0.044715f;

// (1 + tanh(u)) / 2 of GELU(x) = x (1 + tanh(u)) / 2, u = sqrt(2/pi) (x + 0.044715 x^3).
__device__ __forceinline__ float gelu_gate(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-2.0f * kSqrtTwoOverPi * x * (1.0f + kCubic * x * x)));
}
__device__ __forceinline__ float gelu_slope(float x, float gate) {
  return gate + x * gate * (1.0f - gate) * (2.0f * kSqrtTwoOverPi) * (1.0f + 3.0f * kCubic * x * x);
}

struct Plain {
  bf16* out;
  int64_t width;
  struct Ahead {};
  __device__ void begin(int, bool) {}
  __device__ Ahead fetch(int, int, bool) const { return {}; }
  __device__ void row(int r, int c, bool inside, const uint4& raw, const Ahead&) const {
    if (inside) *reinterpret_cast<uint4*>(out + r * width + c) = raw;
  }
  __device__ void end(float*, int, int, const Shape&) const {}
};

// out = GELU(product + bias), slope = GELU'(product + bias).
struct GeluForward {
  bf16* out;
  bf16* slope;
  const bf16* bias;
  int64_t width;
  Eight added;
  struct Ahead {};
  __device__ void begin(int c, bool inside) { added = unpack(inside ? *reinterpret_cast<const uint4*>(bias + c) : make_uint4(0, 0, 0, 0)); }
  __device__ Ahead fetch(int, int, bool) const { return {}; }
  __device__ void row(int r, int c, bool inside, const uint4& raw, const Ahead&) const {
    Eight y = unpack(raw), slopes;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float x = y.v[i] + added.v[i], gate = gelu_gate(x);
      y.v[i] = x * gate;
      slopes.v[i] = gelu_slope(x, gate);
    }
    if (!inside) return;
    store(out + r * width + c, y);
    store(slope + r * width + c, slopes);
  }
  __device__ void end(float*, int, int, const Shape&) const {}
};

// out = product * GELU'(x); partial[128-row tile][column]: the sums of out's columns over the tile, before rounding. kSlope: `given` holds
// GELU'(x), else x.
template <bool kSlope>
struct GeluBackward {
  bf16* out;
  const bf16* given;
  float* partial;
  int64_t width;
  Eight sum;
  using Ahead = uint4;
  __device__ void begin(int, bool) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.v[i] = 0;
  }
  __device__ Ahead fetch(int r, int c, bool inside) const {
    return inside ? *reinterpret_cast<const uint4*>(given + r * width + c) : make_uint4(0, 0, 0, 0);
  }
  __device__ void row(int r, int c, bool inside, const uint4& raw, const Ahead& ahead) {
    Eight d = unpack(raw);
    const Eight x = unpack(ahead);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      d.v[i] *= kSlope ? x.v[i] : gelu_slope(x.v[i], gelu_gate(x.v[i]));
      sum.v[i] += d.v[i];
    }
    if (inside) store(out + r * width + c, d);
  }
  // One warp after the other, so that the order of a sum is always the same.
  __device__ void end(float* shared, int tile, int n, const Shape& s) const {
    constexpr int kLanes = kTileN / 8;
    const int thread = static_cast<int>(threadIdx.x) - 32, warp = thread / 32, lane = thread % 32;
#pragma unroll 1
    for (int w = 0; w < kFinisherWarps; ++w) {
      if (warp == w && lane < kLanes) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float* at = shared + lane + kLanes * i;
          *at = w == 0 ? sum.v[i] : *at + sum.v[i];
        }
      }
      asm volatile("bar.sync 1, %0;" ::"n"(32 * kFinisherWarps) : "memory");
    }
    if (thread < kTileN && n + thread < s.N && tile * kTileM < s.M)
      partial[static_cast<int64_t>(tile) * s.N + n + thread] = shared[thread % 8 * kLanes + thread / 8];
    asm volatile("bar.sync 1, %0;" ::"n"(32 * kFinisherWarps) : "memory");
  }
};

#endif  // __CUDACC__

}  // namespace hopper_first
