// One warp sums a block; one block of threads adds up the blocks.
#include "gpt2/ops/arena_norm.cuh"

#include "gpt2/ops/clip_scale.cuh"

namespace gpt2::ops {
namespace {

using distributed::ArenaBlock;
using distributed::kBlock;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kFinishThreads = 1024;

__device__ __forceinline__ double square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

// This lane's part of a block's sum: elements N l to N l + N - 1 of every 32 N. N values are 16 bytes.
template <int N, class S>
__device__ __forceinline__ double lane_squares(const S* g, int valid, int lane) {
  constexpr int kPerTurn = kWarp * N;  // elements that a warp loads at once
  double sum = 0;
  if (valid == kBlock) {
#pragma unroll
    for (int at = 0; at < static_cast<int>(kBlock); at += kPerTurn) {
      const Pack<N> x = load<N>(g + at + N * lane);
#pragma unroll
      for (int k = 0; k < N; ++k) sum += square(x.v[k]);
    }
  } else {
    for (int at = N * lane; at < valid; at += kPerTurn)
      for (int k = at; k < at + N && k < valid; ++k) sum += square(to_float(g[k]));
  }
  return sum;
}

// One warp per arena block, in double.
__global__ void __launch_bounds__(kThreads)
    block_squares_kernel(double* __restrict__ sums, double* __restrict__ loss_out, const BlockGradients gradients,
                         const ArenaBlock* __restrict__ blocks, int64_t count, const StepStats* __restrict__ stats) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *loss_out = stats->loss;
  const int64_t i = blockIdx.x * static_cast<int64_t>(kWarps) + threadIdx.x / kWarp;
  if (i >= count) return;
  const int lane = threadIdx.x % kWarp;
  const ArenaBlock block = blocks[i];
  const double mine = block.arena < gradients.narrow_elements
                          ? lane_squares<kPack<bf16>>(gradients.narrow + block.arena, block.valid, lane)
                          : lane_squares<kPack<float>>(gradients.wide + (block.arena - gradients.narrow_elements), block.valid, lane);
  const double sum = warp_sum(mine);
  if (lane == 0) sums[i] = sum;
}

// One block.
__global__ void __launch_bounds__(kFinishThreads)
    finish_rank_norm_kernel(StepStats* stats, const __grid_constant__ RankSums of, const StepScalars* __restrict__ scalars) {
  __shared__ double shared[kWarp];
  double sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < of.count; i += kFinishThreads) sum += of.sums[of.order[i]];
  sum = block_sum(sum, shared);
  if (threadIdx.x != 0) return;
  double loss = 0;
  for (int r = 0; r < of.ranks; ++r) loss += of.losses[r * of.loss_stride];
  const double result = sqrt(sum);
  stats->loss = loss;
  stats->grad_norm = result;
  stats->clip_scale = clip_scale_of(*scalars, loss, result);
}

// Eight values per thread.
template <class Out, class In>
__global__ void __launch_bounds__(kThreads) convert_kernel(Out* __restrict__ out, const In* __restrict__ in, int64_t count) {
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * 8;
  if (first + 8 <= count)
    store(out + first, load<8>(in + first));
  else
    for (int64_t i = first; i < count; ++i) store(out + i, load<1>(in + i));
}

template <class Out, class In>
void convert(Out* out, const In* in, int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  convert_kernel<<<grid_blocks(ceil_div<int64_t>(count, kThreads * 8)), kThreads, 0, stream>>>(out, in, count);
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace

void block_squares(double* sums, double* loss_out, const BlockGradients& gradients, const ArenaBlock* blocks, int64_t count,
                   const StepStats* stats, cudaStream_t stream) {
  block_squares_kernel<<<grid_blocks(ceil_div<int64_t>(count, kWarps)), kThreads, 0, stream>>>(sums, loss_out, gradients, blocks, count,
                                                                                               stats);
  STEPSCOPE_CHECK_LAUNCH();
}

void finish_rank_norm(StepStats* stats, const RankSums& sums, const StepScalars* scalars, cudaStream_t stream) {
  finish_rank_norm_kernel<<<1, kFinishThreads, 0, stream>>>(stats, sums, scalars);
  STEPSCOPE_CHECK_LAUNCH();
}

void narrow_gradients(bf16* out, const float* in, int64_t count, cudaStream_t stream) { convert(out, in, count, stream); }
void widen_gradients(float* out, const bf16* in, int64_t count, cudaStream_t stream) { convert(out, in, count, stream); }

}  // namespace gpt2::ops
