#include <cuda/atomic>

#include "experiments/prototypes/copy_engine/kernels.h"
#include "gpt2/cuda/check.h"

namespace copy_engine {
namespace {

constexpr int kThreads = 256;

unsigned grid_for(int64_t elements) { return static_cast<unsigned>((elements + kThreads - 1) / kThreads); }

__device__ float value(int64_t index, int seed, int rank) {
  const auto i = static_cast<unsigned>(index);
  return static_cast<float>((i * 2654435761u + static_cast<unsigned>(seed) * 40503u + static_cast<unsigned>(rank) * 977u) >> 12 & 1023u);
}

__global__ void fill_kernel(float* out, int64_t from, int64_t elements, int seed, int rank) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < elements) out[from + i] = value(from + i, seed, rank);
}

__global__ void count_wrong_kernel(unsigned* wrong, const float* out, int64_t from, int64_t elements, int seed, unsigned ranks) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  float expected = 0;
  for (int r = 0; r < 2; ++r)
    if ((ranks >> r & 1u) != 0) expected += value(from + i, seed, r);
  if (out[from + i] != expected) atomicAdd(wrong, 1u);
}

__global__ void fill_random_kernel(__nv_bfloat16* out, int64_t elements, unsigned seed) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= elements) return;
  unsigned x = static_cast<unsigned>(i) * 747796405u + seed;
  x = ((x >> (x >> 28 & 15u)) ^ x) * 277803737u;
  out[i] = __float2bfloat16(static_cast<float>(x >> 8) * (2.0f / 16777216.0f) - 1.0f);
}

__global__ void add_kernel(float4* own, const float4* received, int64_t quads) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= quads) return;
  float4 a = own[i];
  const float4 b = received[i];
  a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
  own[i] = a;
}

__global__ void meet_kernel(unsigned* theirs, unsigned* mine) {
  cuda::atomic_ref<unsigned, cuda::thread_scope_system> here(*mine), there(*theirs);
  there.store(1, cuda::memory_order_release);
  while (here.load(cuda::memory_order_acquire) != 1) {
  }
  here.store(0, cuda::memory_order_release);
}

__global__ void round_kernel(uint2* here, uint2* there, const float4* masters, int64_t quads) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= quads) return;
  const float4 v = masters[i];
  const __nv_bfloat162 low = __floats2bfloat162_rn(v.x, v.y), high = __floats2bfloat162_rn(v.z, v.w);
  const uint2 out{reinterpret_cast<const unsigned&>(low), reinterpret_cast<const unsigned&>(high)};
  here[i] = out;
  if (there != nullptr) there[i] = out;
}

}  // namespace

void fill(float* out, int64_t from, int64_t elements, int seed, int rank, cudaStream_t stream) {
  fill_kernel<<<grid_for(elements), kThreads, 0, stream>>>(out, from, elements, seed, rank);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

void count_wrong(unsigned* wrong, const float* out, int64_t from, int64_t elements, int seed, unsigned ranks, cudaStream_t stream) {
  count_wrong_kernel<<<grid_for(elements), kThreads, 0, stream>>>(wrong, out, from, elements, seed, ranks);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

void fill_random(__nv_bfloat16* out, int64_t elements, unsigned seed, cudaStream_t stream) {
  fill_random_kernel<<<grid_for(elements), kThreads, 0, stream>>>(out, elements, seed);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

void add(float* own, const float* received, int64_t elements, cudaStream_t stream) {
  const int64_t quads = elements / 4;
  add_kernel<<<grid_for(quads), kThreads, 0, stream>>>(reinterpret_cast<float4*>(own), reinterpret_cast<const float4*>(received), quads);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

void meet_by_kernel(unsigned* theirs, unsigned* mine, cudaStream_t stream) {
  meet_kernel<<<1, 1, 0, stream>>>(theirs, mine);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

void round_to_both(__nv_bfloat16* here, __nv_bfloat16* there, const float* masters, int64_t elements, cudaStream_t stream) {
  const int64_t quads = elements / 4;
  round_kernel<<<grid_for(quads), kThreads, 0, stream>>>(reinterpret_cast<uint2*>(here), reinterpret_cast<uint2*>(there),
                                                         reinterpret_cast<const float4*>(masters), quads);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace copy_engine
