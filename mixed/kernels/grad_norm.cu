// Two stages: blocks stride over the gradients, one block adds up the blocks.
#include "mixed/kernels/grad_norm.cuh"

#include "mixed/kernels/common.cuh"

namespace mixed {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kMostBlocks = 528;  // four for each of an H200's 132 multiprocessors

// Blocks stride over packs; each thread sums squares in double (free: the kernel waits for memory). Writes partial[block].
template <int N>
__global__ void __launch_bounds__(kThreads) squares_kernel(double* __restrict__ partial, const float* __restrict__ gradients, int64_t n) {
  __shared__ double shared[kWarp];
  const int64_t stride = gridDim.x * static_cast<int64_t>(kThreads) * N;
  double sum = 0;
#pragma unroll 4
  for (int64_t i = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N; i < n; i += stride) {
    const Pack<N> g = load<N>(gradients + i);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += static_cast<double>(g.v[k]) * static_cast<double>(g.v[k]);
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block.
__global__ void __launch_bounds__(kThreads)
    finish_norm_kernel(StepStats* stats, const double* __restrict__ partial, int64_t partials, const StepScalars* __restrict__ scalars) {
  __shared__ double shared[kWarp];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < partials; i += kThreads) sum += partial[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x != 0) return;
  const double result = sqrt(sum);
  const float clip = scalars->clip;
  stats->grad_norm = result;
  stats->clip_scale = clip > 0 && result > static_cast<double>(clip) ? static_cast<float>(static_cast<double>(clip) / result) : 1.0f;
}

// ---------------------------------------------------------------------------------------------------------------------

int64_t block_count(int64_t n) {
  const int64_t wanted = ceil_div<int64_t>(n, kThreads * 8);
  return wanted < kMostBlocks ? wanted : kMostBlocks;
}

}  // namespace

int64_t grad_norm_scratch_bytes(int64_t n) { return block_count(n) * static_cast<int64_t>(sizeof(double)); }

void grad_norm(StepStats* stats, const float* gradients, int64_t n, const StepScalars* scalars, void* scratch, cudaStream_t stream) {
  auto* partial = static_cast<double*>(scratch);
  const int64_t blocks = block_count(n);
  if (can_pack(n, gradients))
    squares_kernel<8><<<grid_blocks(blocks), kThreads, 0, stream>>>(partial, gradients, n);
  else
    squares_kernel<1><<<grid_blocks(blocks), kThreads, 0, stream>>>(partial, gradients, n);
  STEPSCOPE_CHECK_LAUNCH();
  finish_norm_kernel<<<1, kThreads, 0, stream>>>(stats, partial, blocks, scalars);
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace mixed
