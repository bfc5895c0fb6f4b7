// Two stages: blocks stride over the gradients, one block adds up the blocks.
#include "gpt2/ops/grad_norm.cuh"

#include "gpt2/ops/clip_scale.cuh"

namespace gpt2::ops {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kMostBlocks = 528;  // four for each of an H200's 132 multiprocessors

// Blocks stride over packs; each thread sums squares in double (free: the kernel waits for memory). Writes partial[block].
template <int N>
__global__ void __launch_bounds__(kThreads) squares_kernel(double* __restrict__ partial, const float* __restrict__ gradients, int64_t n) {
  cuda::wait_for_kernels_before();
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

// Blocks stride over one span after the other; each thread sums squares in double. Writes partial[block].
template <int N>
__global__ void __launch_bounds__(kThreads)
    span_sums_kernel(double* __restrict__ partial, const float* __restrict__ gradients, const __grid_constant__ GradientSpans spans) {
  cuda::wait_for_kernels_before();
  __shared__ double shared[kWarp];
  const int64_t stride = gridDim.x * static_cast<int64_t>(kThreads) * N;
  double sum = 0;
  for (int s = 0; s < spans.count; ++s) {
    const float* span = gradients + spans.first[s];
#pragma unroll 4
    for (int64_t i = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N; i < spans.size[s]; i += stride) {
      const Pack<N> g = load<N>(span + i);
#pragma unroll
      for (int k = 0; k < N; ++k) sum += static_cast<double>(g.v[k]) * static_cast<double>(g.v[k]);
    }
  }
  sum = block_sum(sum, shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// One block.
__global__ void __launch_bounds__(kThreads)
    finish_norm_kernel(StepStats* stats, const double* __restrict__ partial, int64_t partials, const StepScalars* __restrict__ scalars) {
  cuda::wait_for_kernels_before();
  __shared__ double shared[kWarp];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < partials; i += kThreads) sum += partial[i];
  sum = block_sum(sum, shared);
  if (threadIdx.x != 0) return;
  const double result = sqrt(sum);
  stats->grad_norm = result;
  stats->clip_scale = clip_scale_of(*scalars, stats->loss, result);
}

// ---------------------------------------------------------------------------------------------------------------------

template <class S>
int64_t block_count(int64_t n) {
  const int64_t wanted = ceil_div<int64_t>(n, kThreads * kPack<S>);
  return wanted < kMostBlocks ? wanted : kMostBlocks;
}

}  // namespace

template <class S>
int64_t grad_norm_scratch_bytes(int64_t n) {
  return block_count<S>(n) * static_cast<int64_t>(sizeof(double));
}

template <class S>
void grad_norm(StepStats* stats, const float* gradients, int64_t n, const StepScalars* scalars, void* scratch, cudaStream_t stream) {
  auto* partial = static_cast<double*>(scratch);
  const int64_t blocks = block_count<S>(n);
  if (can_pack<S>(n, gradients))
    squares_kernel<kPack<S>><<<grid_blocks(blocks), kThreads, 0, stream>>>(partial, gradients, n);
  else
    squares_kernel<1><<<grid_blocks(blocks), kThreads, 0, stream>>>(partial, gradients, n);
  STEPSCOPE_CHECK_LAUNCH();
  finish_norm_kernel<<<1, kThreads, 0, stream>>>(stats, partial, blocks, scalars);
  STEPSCOPE_CHECK_LAUNCH();
}

void squares_of_spans(double* partial, const float* gradients, const GradientSpans& spans, cudaStream_t stream) {
  constexpr int kN = kPack<float>;
  bool packs = aligned_16(gradients);
  for (int s = 0; s < spans.count; ++s) packs = packs && spans.first[s] % kN == 0 && spans.size[s] % kN == 0;
  if (packs)
    span_sums_kernel<kN><<<grid_blocks(kPartialsOfSpans), kThreads, 0, stream>>>(partial, gradients, spans);
  else
    span_sums_kernel<1><<<grid_blocks(kPartialsOfSpans), kThreads, 0, stream>>>(partial, gradients, spans);
  STEPSCOPE_CHECK_LAUNCH();
}

void finish_grad_norm(StepStats* stats, const double* partial, int64_t partials, const StepScalars* scalars, cudaStream_t stream) {
  finish_norm_kernel<<<1, kThreads, 0, stream>>>(stats, partial, partials, scalars);
  STEPSCOPE_CHECK_LAUNCH();
}

template void grad_norm<float>(StepStats*, const float*, int64_t, const StepScalars*, void*, cudaStream_t);
template void grad_norm<bf16>(StepStats*, const float*, int64_t, const StepScalars*, void*, cudaStream_t);
template int64_t grad_norm_scratch_bytes<float>(int64_t);
template int64_t grad_norm_scratch_bytes<bf16>(int64_t);

}  // namespace gpt2::ops
