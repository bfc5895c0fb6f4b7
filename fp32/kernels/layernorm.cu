// Layernorm kernels. Mean and variance are taken in two passes over the row (the second finds it in L1): the one-pass formula
// E[x^2] - E[x]^2 cancels when the mean is large against the deviation.
#include "fp32/kernels/layernorm.cuh"

#include <string>

#include "base/errors.h"
#include "fp32/kernels/common.cuh"
#include "gpt2/ops/column_sums.cuh"

namespace fp32 {
namespace {

constexpr float kEps = 1e-5f;

template <int N>
__device__ __forceinline__ void normalize_pack(float* out, const float* inp, const float* weight, const float* bias, float mean,
                                               float rstd) {
  const Pack<N> x = load<N>(inp);
  const Pack<N> w = load<N>(weight);
  const Pack<N> b = load<N>(bias);
  Pack<N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y.v[k] = (x.v[k] - mean) * rstd * w.v[k] + b.v[k];
  store(out, y);
}

// One warp per row, lanes over channels; blockDim.x / 32 rows per block.
template <int N>
__global__ void warp_per_row_forward_kernel(float* __restrict__ out, float* __restrict__ mean_out, float* __restrict__ rstd_out,
                                            const float* __restrict__ inp, const float* __restrict__ weight, const float* __restrict__ bias,
                                            int64_t rows, int64_t C) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const float* x_row = inp + row * C;

  float sum = 0;
#pragma unroll 4
  for (int64_t c = lane * N; c < C; c += kWarp * N) {
    const Pack<N> x = load<N>(x_row + c);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += x.v[k];
  }
  const float mean = warp_sum(sum) / static_cast<float>(C);

  float squares = 0;
#pragma unroll 4
  for (int64_t c = lane * N; c < C; c += kWarp * N) {
    const Pack<N> x = load<N>(x_row + c);
#pragma unroll
    for (int k = 0; k < N; ++k) squares += (x.v[k] - mean) * (x.v[k] - mean);
  }
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(C) + kEps);

#pragma unroll 4
  for (int64_t c = lane * N; c < C; c += kWarp * N) normalize_pack<N>(out + row * C + c, x_row + c, weight + c, bias + c, mean, rstd);
  if (lane == 0) {
    mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
}

// One block per row, threads over channels.
template <int N>
__global__ void block_per_row_forward_kernel(float* __restrict__ out, float* __restrict__ mean_out, float* __restrict__ rstd_out,
                                             const float* __restrict__ inp, const float* __restrict__ weight,
                                             const float* __restrict__ bias, int64_t C) {
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  const float* x_row = inp + row * C;

  float sum = 0;
  for (int64_t c = threadIdx.x * N; c < C; c += blockDim.x * N) {
    const Pack<N> x = load<N>(x_row + c);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += x.v[k];
  }
  const float mean = block_sum(sum, shared) / static_cast<float>(C);

  float squares = 0;
  for (int64_t c = threadIdx.x * N; c < C; c += blockDim.x * N) {
    const Pack<N> x = load<N>(x_row + c);
#pragma unroll
    for (int k = 0; k < N; ++k) squares += (x.v[k] - mean) * (x.v[k] - mean);
  }
  const float rstd = 1.0f / sqrtf(block_sum(squares, shared) / static_cast<float>(C) + kEps);

  for (int64_t c = threadIdx.x * N; c < C; c += blockDim.x * N)
    normalize_pack<N>(out + row * C + c, x_row + c, weight + c, bias + c, mean, rstd);
  if (threadIdx.x == 0) {
    mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
}

// Blocks stride over groups of ROWS rows; a thread owns PACKS packs of channels in every row, so dweight and dbias of those channels
// add up in its registers. Sums over a row go through shared memory, ROWS rows per barrier, in two alternating buffers: a thread that
// runs ahead writes the other one. Writes dinp and one partial (dweight, dbias) per block: partial[block] is 2 C floats.
template <int N, int PACKS, int ROWS>
__global__ void __launch_bounds__(512)
    fused_rows_backward_kernel(float* __restrict__ dinp, float* __restrict__ partial, const float* __restrict__ dout,
                               const float* __restrict__ inp, const float* __restrict__ mean, const float* __restrict__ rstd,
                               const float* __restrict__ weight, int64_t rows, int64_t C, bool add_to_dinp) {
  constexpr int kMaxWarps = 512 / kWarp;
  __shared__ float sums[2][kMaxWarps][2 * ROWS];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int warps = blockDim.x / kWarp;

  Pack<N> w[PACKS]{};
  Pack<N> dweight[PACKS]{};
  Pack<N> dbias[PACKS]{};
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t c = (p * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
    if (c < C) w[p] = load<N>(weight + c);
  }

  int buffer = 0;
  for (int64_t first = blockIdx.x * static_cast<int64_t>(ROWS); first < rows; first += gridDim.x * static_cast<int64_t>(ROWS)) {
    Pack<N> xhat[ROWS][PACKS]{};
    Pack<N> dn[ROWS][PACKS]{};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int64_t row = first + r;
      float sum_dn = 0;
      float sum_dn_xhat = 0;
      if (row < rows) {
        const float m = mean[row];
        const float s = rstd[row];
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
          const int64_t c = (p * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
          if (c >= C) continue;
          const Pack<N> x = load<N>(inp + row * C + c);
          const Pack<N> d = load<N>(dout + row * C + c);
#pragma unroll
          for (int k = 0; k < N; ++k) {
            xhat[r][p].v[k] = (x.v[k] - m) * s;
            dn[r][p].v[k] = d.v[k] * w[p].v[k];
            sum_dn += dn[r][p].v[k];
            sum_dn_xhat += dn[r][p].v[k] * xhat[r][p].v[k];
            dweight[p].v[k] += d.v[k] * xhat[r][p].v[k];
            dbias[p].v[k] += d.v[k];
          }
        }
      }
      sum_dn = warp_sum(sum_dn);
      sum_dn_xhat = warp_sum(sum_dn_xhat);
      if (lane == 0) {
        sums[buffer][warp][2 * r] = sum_dn;
        sums[buffer][warp][2 * r + 1] = sum_dn_xhat;
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const int64_t row = first + r;
      if (row >= rows) break;
      float mean_dn = 0;
      float mean_dn_xhat = 0;
      for (int i = 0; i < warps; ++i) {
        mean_dn += sums[buffer][i][2 * r];
        mean_dn_xhat += sums[buffer][i][2 * r + 1];
      }
      mean_dn /= static_cast<float>(C);
      mean_dn_xhat /= static_cast<float>(C);
      const float s = rstd[row];
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
        const int64_t c = (p * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
        if (c >= C) continue;
        float* target = dinp + row * C + c;
        Pack<N> result{};
        if (add_to_dinp) result = load<N>(target);
#pragma unroll
        for (int k = 0; k < N; ++k) result.v[k] += (dn[r][p].v[k] - mean_dn - xhat[r][p].v[k] * mean_dn_xhat) * s;
        store(target, result);
      }
    }
    buffer ^= 1;
  }

#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t c = (p * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
    if (c >= C) continue;
    float* mine = partial + blockIdx.x * 2 * C;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      mine[c + k] = dweight[p].v[k];
      mine[C + c + k] = dbias[p].v[k];
    }
  }
}

// One warp per row: dinp only. Reads the row twice, the second time from L1.
template <int N>
__global__ void rows_backward_kernel(float* __restrict__ dinp, const float* __restrict__ dout, const float* __restrict__ inp,
                                     const float* __restrict__ mean, const float* __restrict__ rstd, const float* __restrict__ weight,
                                     int64_t rows, int64_t C, bool add_to_dinp) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const float m = mean[row];
  const float s = rstd[row];
  float sum_dn = 0;
  float sum_dn_xhat = 0;
  for (int64_t c = lane * N; c < C; c += kWarp * N) {
    const Pack<N> x = load<N>(inp + row * C + c);
    const Pack<N> d = load<N>(dout + row * C + c);
    const Pack<N> w = load<N>(weight + c);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float dn = d.v[k] * w.v[k];
      sum_dn += dn;
      sum_dn_xhat += dn * ((x.v[k] - m) * s);
    }
  }
  const float mean_dn = warp_sum(sum_dn) / static_cast<float>(C);
  const float mean_dn_xhat = warp_sum(sum_dn_xhat) / static_cast<float>(C);
  for (int64_t c = lane * N; c < C; c += kWarp * N) {
    const Pack<N> x = load<N>(inp + row * C + c);
    const Pack<N> d = load<N>(dout + row * C + c);
    const Pack<N> w = load<N>(weight + c);
    float* target = dinp + row * C + c;
    Pack<N> result{};
    if (add_to_dinp) result = load<N>(target);
#pragma unroll
    for (int k = 0; k < N; ++k) result.v[k] += (d.v[k] * w.v[k] - mean_dn - (x.v[k] - m) * s * mean_dn_xhat) * s;
    store(target, result);
  }
}

// Block (32, 8): 32 columns, one slab of rows (blockIdx.y); thread (x, y) sums rows y, y + 8, … of the slab. Partials as in the fused
// kernel: partial[slab] is dweight (C), dbias (C).
__global__ void columns_backward_kernel(float* __restrict__ partial, const float* __restrict__ dout, const float* __restrict__ inp,
                                        const float* __restrict__ mean, const float* __restrict__ rstd, int64_t rows, int64_t C,
                                        int64_t rows_per_slab) {
  __shared__ float sums[2][8][kWarp];
  const int64_t c = blockIdx.x * static_cast<int64_t>(kWarp) + threadIdx.x;
  const int64_t begin = blockIdx.y * rows_per_slab;
  const int64_t end = min(begin + rows_per_slab, rows);
  float dweight = 0;
  float dbias = 0;
  if (c < C) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += 8) {
      const float d = dout[row * C + c];
      dweight += d * ((inp[row * C + c] - mean[row]) * rstd[row]);
      dbias += d;
    }
  }
  sums[0][threadIdx.y][threadIdx.x] = dweight;
  sums[1][threadIdx.y][threadIdx.x] = dbias;
  __syncthreads();
  if (threadIdx.y >= 2 || c >= C) return;
  float total = 0;
  for (int y = 0; y < 8; ++y) total += sums[threadIdx.y][y][threadIdx.x];
  partial[blockIdx.y * 2 * C + threadIdx.y * C + c] = total;
}

// ---------------------------------------------------------------------------------------------------------------------

constexpr int kRowsPerBlock = 4;  // warp-per-row kernels: 128 threads
constexpr int64_t kFusedThreads = 512;

int64_t partial_count(LayernormBackward variant, int64_t rows, int64_t C) {
  switch (variant) {
    case LayernormBackward::separate_columns:
      return gpt2::ops::slab_count<float>(rows, C);
    case LayernormBackward::fused_rows:
      break;
  }
  const int64_t groups = ceil_div<int64_t>(rows, 4);
  return groups < 528 ? groups : 528;  // four blocks for each of an H200's 132 multiprocessors
}

template <int N>
void launch_forward(LayernormForward variant, float* out, float* mean, float* rstd, const float* inp, const float* weight,
                    const float* bias, int64_t rows, int64_t C, cudaStream_t stream) {
  switch (variant) {
    case LayernormForward::warp_per_row:
      warp_per_row_forward_kernel<N><<<grid_blocks(ceil_div<int64_t>(rows, kRowsPerBlock)), kRowsPerBlock * kWarp, 0, stream>>>(
          out, mean, rstd, inp, weight, bias, rows, C);
      break;
    case LayernormForward::block_per_row:
      block_per_row_forward_kernel<N><<<grid_blocks(rows), row_threads(C / N), 0, stream>>>(out, mean, rstd, inp, weight, bias, C);
      break;
  }
  FP32_CHECK_LAUNCH();
}

template <int N>
void launch_fused_rows(float* dinp, float* partial, int64_t blocks, const float* dout, const float* inp, const float* mean,
                       const float* rstd, const float* weight, int64_t rows, int64_t C, bool add_to_dinp, cudaStream_t stream) {
  const int64_t packs = C / N;
  if (packs <= kFusedThreads) {
    fused_rows_backward_kernel<N, 1, 4><<<grid_blocks(blocks), row_threads(packs, kFusedThreads), 0, stream>>>(
        dinp, partial, dout, inp, mean, rstd, weight, rows, C, add_to_dinp);
  } else {
    fused_rows_backward_kernel<N, 4, 1>
        <<<grid_blocks(blocks), kFusedThreads, 0, stream>>>(dinp, partial, dout, inp, mean, rstd, weight, rows, C, add_to_dinp);
  }
  FP32_CHECK_LAUNCH();
}

template <int N>
void launch_separate_columns(float* dinp, float* partial, int64_t slabs, const float* dout, const float* inp, const float* mean,
                             const float* rstd, const float* weight, int64_t rows, int64_t C, bool add_to_dinp, cudaStream_t stream) {
  const dim3 grid(grid_blocks(ceil_div<int64_t>(C, kWarp)), static_cast<unsigned>(slabs));
  columns_backward_kernel<<<grid, dim3(kWarp, 8), 0, stream>>>(partial, dout, inp, mean, rstd, rows, C, ceil_div<int64_t>(rows, slabs));
  FP32_CHECK_LAUNCH();
  rows_backward_kernel<N><<<grid_blocks(ceil_div<int64_t>(rows, kRowsPerBlock)), kRowsPerBlock * kWarp, 0, stream>>>(
      dinp, dout, inp, mean, rstd, weight, rows, C, add_to_dinp);
  FP32_CHECK_LAUNCH();
}

template <int N>
void launch_backward(LayernormBackward variant, float* dinp, float* partial, int64_t partials, const float* dout, const float* inp,
                     const float* mean, const float* rstd, const float* weight, int64_t rows, int64_t C, bool add_to_dinp,
                     cudaStream_t stream) {
  switch (variant) {
    case LayernormBackward::fused_rows:
      launch_fused_rows<N>(dinp, partial, partials, dout, inp, mean, rstd, weight, rows, C, add_to_dinp, stream);
      break;
    case LayernormBackward::separate_columns:
      launch_separate_columns<N>(dinp, partial, partials, dout, inp, mean, rstd, weight, rows, C, add_to_dinp, stream);
      break;
  }
}

}  // namespace

void layernorm_forward(LayernormForward variant, float* out, float* mean, float* rstd, const float* inp, const float* weight,
                       const float* bias, int64_t rows, int64_t C, cudaStream_t stream) {
  if (can_pack(C, out, inp, weight, bias))
    launch_forward<4>(variant, out, mean, rstd, inp, weight, bias, rows, C, stream);
  else
    launch_forward<1>(variant, out, mean, rstd, inp, weight, bias, rows, C, stream);
}

std::optional<std::string> why_not(LayernormBackward variant, int64_t C, bool packs) {
  switch (variant) {
    case LayernormBackward::separate_columns:
      return std::nullopt;
    case LayernormBackward::fused_rows:
      break;
  }
  const int64_t most = 4 * kFusedThreads * (packs ? 4 : 1);
  if (C <= most) return std::nullopt;
  return "it holds rows of up to " + std::to_string(most) + " channels of this alignment, the model has " + std::to_string(C) +
         "; use layernorm_backward=separate_columns";
}

int64_t layernorm_backward_scratch_floats(LayernormBackward variant, int64_t rows, int64_t C) {
  return partial_count(variant, rows, C) * 2 * C;
}

void layernorm_backward(LayernormBackward variant, float* dinp, float* dweight, float* dbias, const float* dout, const float* inp,
                        const float* mean, const float* rstd, const float* weight, int64_t rows, int64_t C, bool add_to_dinp,
                        bool accumulate, float* scratch, cudaStream_t stream) {
  const int64_t partials = partial_count(variant, rows, C);
  const bool packs = can_pack(C, dinp, dout, inp, weight);
  if (const auto why = why_not(variant, C, packs)) throw stepscope::InputError("layernorm_backward: " + *why);
  if (packs)
    launch_backward<4>(variant, dinp, scratch, partials, dout, inp, mean, rstd, weight, rows, C, add_to_dinp, stream);
  else
    launch_backward<1>(variant, dinp, scratch, partials, dout, inp, mean, rstd, weight, rows, C, add_to_dinp, stream);
  gpt2::ops::reduce_partials(dweight, scratch, partials, C, 2 * C, accumulate, stream);
  gpt2::ops::reduce_partials(dbias, scratch + C, partials, C, 2 * C, accumulate, stream);
}

}  // namespace fp32
