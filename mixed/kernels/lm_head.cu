#include "mixed/kernels/lm_head.cuh"

#include <algorithm>

namespace mixed {
namespace {

using gpt2::ops::StepScalars;

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// Tiles of the product's columns, each with a sum for every row.
int64_t tiles_of(int64_t padded) { return ceil_div<int64_t>(padded, kHeadTile); }

struct Scratch {
  explicit Scratch(const Head& h) : memory(static_cast<float*>(h.scratch)), rows(h.rows), tiles(tiles_of(h.padded)) {}
  float* target() const { return memory; }           // (rows): logit of the target
  float* offset() const { return memory + rows; }    // (rows)
  float* sums() const { return memory + 2 * rows; }  // (tiles, rows)
  int* overflow() const { return reinterpret_cast<int*>(memory + (2 + tiles) * rows); }
  float* memory;
  int64_t rows, tiles;
};

// One warp per row; lanes take packs of eight in turn.
__device__ __forceinline__ int64_t row_of_warp() { return int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; }

// x . w of one row each, in fp32 and a fixed order; in every lane.
__device__ __forceinline__ float dot(const bf16* x, const bf16* w, int64_t channels) {
  float sum = 0;
  for (int64_t c = threadIdx.x % kWarp * 8; c < channels; c += kWarp * 8) {
    const auto a = load<8>(x + c), b = load<8>(w + c);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(a.v[i], b.v[i], sum);
  }
  return warp_sum(sum);
}

__global__ void __launch_bounds__(kThreads) head_offsets_kernel(float* __restrict__ target, float* __restrict__ offset,
                                                                int* __restrict__ overflow, const __grid_constant__ Head h) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *overflow = 0;
  const int64_t row = row_of_warp();
  if (row >= h.rows) return;
  const float logit = dot(h.x + row * h.channels, h.weight + h.targets[row] * h.channels, h.channels);
  if (threadIdx.x % kWarp == 0) target[row] = offset[row] = logit;
}

// Blocks stride over the rows; works only on rows that were too large, where there are any. One warp per logit.
__global__ void __launch_bounds__(kThreads)
    head_largest_logits_kernel(float* __restrict__ offset, const float* __restrict__ sums, int64_t tiles, const int* __restrict__ overflow,
                               const __grid_constant__ Head h) {
  if (*overflow == 0) return;
  __shared__ float shared[kWarp];
  for (int64_t row = blockIdx.x; row < h.rows; row += gridDim.x) {
    bool too_large = false;
    for (int64_t tile = threadIdx.x; tile < tiles; tile += kThreads)
      too_large = too_large || !(sums[tile * h.rows + row] <= hopper::kLargestExponentials);
    if (__syncthreads_or(too_large ? 1 : 0) == 0) continue;
    float largest = -INFINITY;
    for (int64_t j = threadIdx.x / kWarp; j < h.vocabulary; j += kWarps)
      largest = fmaxf(largest, dot(h.x + row * h.channels, h.weight + j * h.channels, h.channels));
    largest = block_max(largest, shared);
    if (threadIdx.x == 0) offset[row] = largest;
  }
}

__global__ void __launch_bounds__(kThreads)
    head_losses_kernel(float* __restrict__ losses, float* __restrict__ factors, const float* __restrict__ target,
                       const float* __restrict__ offset, const float* __restrict__ sums, int64_t tiles,
                       const StepScalars* __restrict__ scalars, const __grid_constant__ Head h) {
  const int64_t row = row_of_warp();
  const int lane = threadIdx.x % kWarp;
  if (row >= h.rows) return;
  float sum = 0;
  for (int64_t tile = lane; tile < tiles; tile += kWarp) sum += sums[tile * h.rows + row];
  sum = warp_sum(sum);
  const float above = target[row] - offset[row];  // 0, but where the row was too large
  const float one_hot = expf(above) - sum;
  const bf16 stored = __float2bfloat16_rn(one_hot);
  float factor = scalars->gradient_scale / sum;
  if (__bfloat162float(stored) != 0) factor *= one_hot / __bfloat162float(stored);
  if (lane == 0) {
    losses[row] = logf(sum) - above;
    factors[row] = factor;
    h.exponentials[row * h.padded + h.targets[row]] = stored;
  }
  bf16* x = h.x + row * h.channels;
  for (int64_t c = lane * 8; c < h.channels; c += kWarp * 8) {
    auto v = load<8>(x + c);
#pragma unroll
    for (int i = 0; i < 8; ++i) v.v[i] *= factor;
    store(x + c, v);
  }
}

__global__ void __launch_bounds__(kThreads) scale_rows_kernel(bf16* dx, const float* __restrict__ factors, int64_t rows, int64_t channels) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  const float factor = factors[row];
  for (int64_t c = threadIdx.x % kWarp * 8; c < channels; c += kWarp * 8) {
    auto d = load<8>(dx + row * channels + c);
#pragma unroll
    for (int i = 0; i < 8; ++i) d.v[i] *= factor;
    store(dx + row * channels + c, d);
  }
}

unsigned row_blocks(int64_t rows) { return grid_blocks(ceil_div<int64_t>(rows, kWarps)); }

constexpr int64_t kMostRepairBlocks = 1056;  // eight for each of an H200's 132 multiprocessors

}  // namespace

int64_t head_scratch_bytes(int64_t rows, int64_t padded) {
  return ((2 + tiles_of(padded)) * rows + 1) * static_cast<int64_t>(sizeof(float));
}

void head_forward(HopperProducts& products, const Head& h, cudaStream_t stream) {
  const Scratch s(h);
  head_offsets_kernel<<<row_blocks(h.rows), kThreads, 0, stream>>>(s.target(), s.offset(), s.overflow(), h);
  STEPSCOPE_CHECK_LAUNCH();
  hopper::Problem p;
  p.m = static_cast<int>(h.rows), p.n = static_cast<int>(h.padded), p.k = static_cast<int>(h.channels);
  p.a = h.x, p.b = h.weight, p.out = h.exponentials;
  p.offset = s.offset(), p.row_sums = s.sums(), p.overflow = s.overflow(), p.kept = static_cast<int>(h.vocabulary);
  products.run(p, hopper::Tail::exponential, stream);
  head_largest_logits_kernel<<<grid_blocks(std::min(h.rows, kMostRepairBlocks)), kThreads, 0, stream>>>(s.offset(), s.sums(), s.tiles,
                                                                                                        s.overflow(), h);
  STEPSCOPE_CHECK_LAUNCH();
  p.only_if = s.overflow();
  products.run(p, hopper::Tail::exponential, stream);
}

void head_losses(float* losses, float* factors, const Head& h, const StepScalars* scalars, cudaStream_t stream) {
  const Scratch s(h);
  head_losses_kernel<<<row_blocks(h.rows), kThreads, 0, stream>>>(losses, factors, s.target(), s.offset(), s.sums(), s.tiles, scalars, h);
  STEPSCOPE_CHECK_LAUNCH();
}

void scale_rows(bf16* dx, const float* factors, int64_t rows, int64_t channels, cudaStream_t stream) {
  scale_rows_kernel<<<row_blocks(rows), kThreads, 0, stream>>>(dx, factors, rows, channels);
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace mixed
