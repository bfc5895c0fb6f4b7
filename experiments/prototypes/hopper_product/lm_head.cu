#include "experiments/prototypes/hopper_product/lm_head.h"
#include "gpt2/ops/storage.cuh"

namespace hopper {
namespace {

using gpt2::ops::bf16;
using gpt2::ops::kWarp;
using gpt2::ops::load;
using gpt2::ops::store;

constexpr int kWarps = 8;

// One warp per row; lanes take packs of eight in turn.
__device__ __forceinline__ int64_t row_of_warp() { return int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; }

__global__ void __launch_bounds__(kWarps* kWarp) offsets_kernel(float* __restrict__ offset, Head h) {
  const int64_t row = row_of_warp();
  const int lane = threadIdx.x % kWarp;
  if (row >= h.rows) return;
  const bf16 *x = h.x + row * h.channels, *w = h.w + h.targets[row] * h.channels;
  float sum = 0;
  for (int64_t c = lane * 8; c < h.channels; c += kWarp * 8) {
    const auto a = load<8>(x + c), b = load<8>(w + c);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(a.v[i], b.v[i], sum);
  }
  sum = gpt2::ops::warp_sum(sum);
  if (lane == 0) offset[row] = sum;
}

__global__ void __launch_bounds__(kWarps* kWarp)
    losses_kernel(float* __restrict__ losses, float* __restrict__ factors, bf16* __restrict__ scaled, const float* __restrict__ row_sums,
                  int widths, const float* __restrict__ gradient_scale, Head h) {
  const int64_t row = row_of_warp();
  const int lane = threadIdx.x % kWarp;
  if (row >= h.rows) return;
  float sum = 0;
  for (int i = lane; i < widths; i += kWarp) sum += row_sums[i * h.rows + row];
  sum = gpt2::ops::warp_sum(sum);
  const float factor = *gradient_scale / sum;
  if (lane == 0) {
    losses[row] = logf(sum);
    factors[row] = factor;
  }
  for (int64_t c = lane * 8; c < h.channels; c += kWarp * 8) {
    auto x = load<8>(h.x + row * h.channels + c);
#pragma unroll
    for (int i = 0; i < 8; ++i) x.v[i] *= factor;
    store(scaled + row * h.channels + c, x);
  }
}

__global__ void __launch_bounds__(kWarps* kWarp)
    input_gradient_kernel(bf16* dx, const float* __restrict__ factors, const float* __restrict__ gradient_scale, Head h) {
  const int64_t row = row_of_warp();
  if (row >= h.rows) return;
  const float factor = factors[row], g = *gradient_scale;
  const bf16* w = h.w + h.targets[row] * h.channels;
  for (int64_t c = threadIdx.x % kWarp * 8; c < h.channels; c += kWarp * 8) {
    auto d = load<8>(dx + row * h.channels + c);
    const auto target = load<8>(w + c);
#pragma unroll
    for (int i = 0; i < 8; ++i) d.v[i] = factor * d.v[i] - g * target.v[i];
    store(dx + row * h.channels + c, d);
  }
}

unsigned blocks(const Head& h) { return gpt2::cuda::grid_blocks(gpt2::cuda::ceil_div<int64_t>(h.rows, kWarps)); }

}  // namespace

void head_offsets(float* offset, const Head& head, cudaStream_t stream) {
  offsets_kernel<<<blocks(head), kWarps * kWarp, 0, stream>>>(offset, head);
  STEPSCOPE_CHECK_LAUNCH();
}

void head_losses(float* losses, float* factors, bf16* scaled, const float* row_sums, int widths, const float* gradient_scale,
                 const Head& head, cudaStream_t stream) {
  losses_kernel<<<blocks(head), kWarps * kWarp, 0, stream>>>(losses, factors, scaled, row_sums, widths, gradient_scale, head);
  STEPSCOPE_CHECK_LAUNCH();
}

void head_input_gradient(bf16* dx, const float* factors, const float* gradient_scale, const Head& head, cudaStream_t stream) {
  input_gradient_kernel<<<blocks(head), kWarps * kWarp, 0, stream>>>(dx, factors, gradient_scale, head);
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace hopper
