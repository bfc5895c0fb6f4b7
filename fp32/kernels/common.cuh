// What the FP32 kernels share: packed loads and stores; sums and launch arithmetic come from gpt2/cuda/launch.cuh.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/cuda/launch.cuh"

namespace fp32 {

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

// N consecutive floats. N == 4 moves 16 bytes per instruction and needs a 16-byte aligned address; N == 1 needs nothing.
template <int N>
struct Pack {
  float v[N];
};

template <int N>
__device__ __forceinline__ Pack<N> load(const float* p) {
  Pack<N> out;
  if constexpr (N == 4) {
    const float4 f = *reinterpret_cast<const float4*>(p);
    out.v[0] = f.x, out.v[1] = f.y, out.v[2] = f.z, out.v[3] = f.w;
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = p[i];
  }
  return out;
}

template <int N>
__device__ __forceinline__ void store(float* p, const Pack<N>& x) {
  if constexpr (N == 4) {
    *reinterpret_cast<float4*>(p) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) p[i] = x.v[i];
  }
}

#endif  // __CUDACC__

// Whether rows of `columns` floats at these addresses can be moved in packs of 4.
template <class... Pointers>
bool can_pack(int64_t columns, const Pointers*... pointers) {
  return columns % 4 == 0 && gpt2::cuda::aligned_16(pointers...);
}

}  // namespace fp32

// After every launch.
#define FP32_CHECK_LAUNCH() STEPSCOPE_CHECK_LAUNCH()
