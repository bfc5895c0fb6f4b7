#include <cuda_bf16.h>

#include <cuda/atomic>

#include "gpt2/cuda/check.h"
#include "gpt2/distributed/peer_kernels.h"

namespace gpt2::distributed {
namespace {

constexpr int kThreads = 256;
constexpr int kTurnsBetweenLooks = 64;  // at the host's word, which is far away

using Flag = ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_system>;

__global__ void wait_for_ranks_kernel(const __grid_constant__ Meeting m) {
  const uint32_t now = *m.generation + 1;
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer == 0) *m.generation = now;
  if (peer >= m.ranks || peer == m.rank) return;
  Flag(*m.theirs[peer]).store(now, ::cuda::memory_order_release);
  const Flag flag(m.flags[peer * kFlagStride]);
  // A rank may already be one meet further.
  for (uint32_t turn = 0; static_cast<int32_t>(flag.load(::cuda::memory_order_acquire) - now) < 0; ++turn)
    if (turn % kTurnsBetweenLooks == kTurnsBetweenLooks - 1 && *const_cast<const volatile uint32_t*>(m.aborted) != 0) return;
}

__device__ __forceinline__ float wide(float x) { return x; }
__device__ __forceinline__ double wide(double x) { return x; }
__device__ __forceinline__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void store(float& to, float x) { to = x; }
__device__ __forceinline__ void store(double& to, double x) { to = x; }
__device__ __forceinline__ void store(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

template <class T, int N>
struct alignas(N * sizeof(T)) Several {
  T v[N];
};

// N elements per thread.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(T* __restrict__ own, const unsigned char* __restrict__ parts, int64_t stride, int64_t count, int rank, int ranks) {
  using Pack = Several<T, N>;
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i >= count) return;
  Pack& mine = reinterpret_cast<Pack*>(own)[i];
  const Pack brought = mine;
  decltype(wide(T{})) sum[N];
  for (int r = 0; r < ranks; ++r) {
    const Pack part = r == rank ? brought : reinterpret_cast<const Pack*>(parts + (r < rank ? r : r - 1) * stride)[i];
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = r == 0 ? wide(part.v[k]) : sum[k] + wide(part.v[k]);
  }
  Pack result;
#pragma unroll
  for (int k = 0; k < N; ++k) store(result.v[k], sum[k]);
  mine = result;
}

template <class T, int N>
void launch_packs(void* own, const void* parts, int64_t stride, int64_t packs, int rank, int ranks, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((packs + kThreads - 1) / kThreads);
  add_parts_kernel<T, N>
      <<<blocks, kThreads, 0, stream>>>(static_cast<T*>(own), static_cast<const unsigned char*>(parts), stride, packs, rank, ranks);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void launch(void* own, const void* parts, int64_t stride, int64_t elements, int rank, int ranks, cudaStream_t stream) {
  constexpr int kPack = 16 / sizeof(T);
  const bool packs = elements % kPack == 0 && stride % 16 == 0 && reinterpret_cast<uintptr_t>(own) % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(parts) % 16 == 0;
  if (packs) return launch_packs<T, kPack>(own, parts, stride, elements / kPack, rank, ranks, stream);
  launch_packs<T, 1>(own, parts, stride, elements, rank, ranks, stream);
}

}  // namespace

void meet(const Meeting& meeting, cudaStream_t stream) {
  wait_for_ranks_kernel<<<1, 32, 0, stream>>>(meeting);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

void add_parts(Element type, void* own, const void* parts, int64_t stride, int64_t elements, int rank, int ranks, cudaStream_t stream) {
  switch (type) {
    case Element::fp32:
      return launch<float>(own, parts, stride, elements, rank, ranks, stream);
    case Element::bf16:
      return launch<__nv_bfloat16>(own, parts, stride, elements, rank, ranks, stream);
    case Element::fp64:
      return launch<double>(own, parts, stride, elements, rank, ranks, stream);
  }
}

}  // namespace gpt2::distributed
