// What the mixed-precision kernels share: bf16 storage moved in packs and computed on as float.
//
// Every kernel of this folder loads into float, computes in float (sums over more than a few hundred rows in double or in two stages)
// and rounds once, to nearest even, when it stores.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/cuda/launch.cuh"

namespace mixed {

using bf16 = __nv_bfloat16;

using gpt2::cuda::aligned_16;
using gpt2::cuda::ceil_div;
using gpt2::cuda::grid_blocks;
using gpt2::cuda::kWarp;
using gpt2::cuda::row_threads;
#ifdef __CUDACC__
using gpt2::cuda::block_max;
using gpt2::cuda::block_sum;
using gpt2::cuda::warp_max;
using gpt2::cuda::warp_sum;
#endif

#ifdef __CUDACC__

// N consecutive values as floats, from storage of either type. N == 8 moves 16 bytes of bf16 (or twice 16 of float) per instruction and
// needs 16-byte aligned addresses; N == 1 needs nothing.
template <int N>
struct Pack {
  float v[N];
};

template <int N>
__device__ __forceinline__ Pack<N> load(const bf16* p) {
  Pack<N> out;
  if constexpr (N == 8) {
    const uint4 raw = *reinterpret_cast<const uint4*>(p);
    const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out.v[2 * i] = __uint_as_float(word[i] << 16);  // a bf16 is the upper half of a float
      out.v[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = __bfloat162float(p[i]);
  }
  return out;
}

template <int N>
__device__ __forceinline__ Pack<N> load(const float* p) {
  Pack<N> out;
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const float4 f = reinterpret_cast<const float4*>(p)[i];
      out.v[4 * i] = f.x, out.v[4 * i + 1] = f.y, out.v[4 * i + 2] = f.z, out.v[4 * i + 3] = f.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = p[i];
  }
  return out;
}

// Two floats to a word of two bf16, the first in the lower half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <int N>
__device__ __forceinline__ void store(bf16* p, const Pack<N>& x) {
  if constexpr (N == 8) {
    *reinterpret_cast<uint4*>(p) =
        make_uint4(pack_bf16(x.v[0], x.v[1]), pack_bf16(x.v[2], x.v[3]), pack_bf16(x.v[4], x.v[5]), pack_bf16(x.v[6], x.v[7]));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) p[i] = __float2bfloat16_rn(x.v[i]);
  }
}

template <int N>
__device__ __forceinline__ void store(float* p, const Pack<N>& x) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      reinterpret_cast<float4*>(p)[i] = make_float4(x.v[4 * i], x.v[4 * i + 1], x.v[4 * i + 2], x.v[4 * i + 3]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) p[i] = x.v[i];
  }
}

// The value that storage of type S will hold.
template <class S>
__device__ __forceinline__ float rounded(float x) {
  if constexpr (sizeof(S) == 2)
    return __bfloat162float(__float2bfloat16_rn(x));
  else
    return x;
}

#endif  // __CUDACC__

// Whether rows of `columns` values at these addresses can be moved in packs of 8.
template <class... Pointers>
bool can_pack(int64_t columns, const Pointers*... pointers) {
  return columns % 8 == 0 && aligned_16(pointers...);
}

}  // namespace mixed
