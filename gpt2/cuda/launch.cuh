// What the kernels of every trainer share whatever their storage type: sums in a fixed order and launch arithmetic.
//
// Two facts to rely on: warp_sum and block_sum give EVERY thread the same bits (a butterfly adds the same pairs in every lane, and
// float addition commutes), and their order depends on the block size only, so results repeat from run to run.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/cuda/check.h"

namespace gpt2::cuda {

inline constexpr int kWarp = 32;

#ifdef __CUDACC__

// The first statement of a kernel that may be placed before the kernels in front of it have ended (mixed/graph_edges.h): returns when they
// have, and what they wrote can be read. Costs nothing where the kernel was launched the usual way.
__device__ __forceinline__ void wait_for_kernels_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
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

// Whether every address is a multiple of 16 bytes, what the widest load needs.
template <class... Pointers>
bool aligned_16(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Number of blocks as a grid dimension. Throws stepscope::InputError beyond the 2^31 - 1 of gridDim.x.
unsigned grid_blocks(int64_t blocks);

// Threads for one row of `packs` packs: whole warps, at most `most`.
inline unsigned row_threads(int64_t packs, int64_t most = 256) {
  const int64_t whole_warps = ceil_div<int64_t>(packs, kWarp) * kWarp;
  return static_cast<unsigned>(whole_warps < most ? whole_warps : most);
}

}  // namespace gpt2::cuda

// After every launch.
#define STEPSCOPE_CHECK_LAUNCH() STEPSCOPE_CUDA_CHECK(cudaGetLastError())
