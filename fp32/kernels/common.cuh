// What all kernels share: packed loads and stores, sums in a fixed order, launch checks.
//
// Two facts to rely on: warp_sum and block_sum give EVERY thread the same bits (a butterfly adds the same pairs in every lane, and
// float addition commutes), and their order depends on the block size only, so results repeat from run to run.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/cuda/check.h"

namespace fp32 {

inline constexpr int kWarp = 32;

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

template <class T>
__device__ __forceinline__ T warp_sum(T v) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

// Sum over the block; blockDim.x is a multiple of 32, all threads call. `shared` holds 32 values and may be reused by the next call.
template <class T>
__device__ __forceinline__ T block_sum(T v, T* shared) {
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  v = warp_sum(v);
  __syncthreads();  // an earlier call's values may still be read
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  return warp_sum(lane < static_cast<int>(blockDim.x) / kWarp ? shared[lane] : T(0));
}

__device__ __forceinline__ float block_max(float v, float* shared) {
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  v = warp_max(v);
  __syncthreads();
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  return warp_max(lane < static_cast<int>(blockDim.x) / kWarp ? shared[lane] : -INFINITY);
}

#endif  // __CUDACC__

template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// Whether rows of `columns` floats at these addresses can be moved in packs of 4.
template <class... Pointers>
bool can_pack(int64_t columns, const Pointers*... pointers) {
  return columns % 4 == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Number of blocks as a grid dimension. Throws stepscope::InputError beyond the 2^31 - 1 of gridDim.x.
unsigned grid_blocks(int64_t blocks);

// Threads for one row of `packs` packs: whole warps, at most `most`.
inline unsigned row_threads(int64_t packs, int64_t most = 256) {
  const int64_t whole_warps = ceil_div<int64_t>(packs, kWarp) * kWarp;
  return static_cast<unsigned>(whole_warps < most ? whole_warps : most);
}

}  // namespace fp32

// After every launch.
#define FP32_CHECK_LAUNCH() STEPSCOPE_CUDA_CHECK(cudaGetLastError())
