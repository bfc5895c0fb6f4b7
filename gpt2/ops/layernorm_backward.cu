// Layernorm backward: the input's gradient and the column sums of the parameters' gradients, in one pass over the rows or in two kernels.
#include "gpt2/ops/layernorm_backward.cuh"

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "gpt2/ops/column_sums.cuh"
#include "gpt2/ops/raw_values.cuh"

namespace gpt2::ops {
namespace {

constexpr int64_t kFusedThreads = 512;

// What storage decides of fused_rows. These numbers fix the order of every sum: another number, other bits.
template <class S>
struct Tuning;
template <>
struct Tuning<float> {
  static constexpr int kSums = 2;                // column sums of a pass: dweight, dbias
  static constexpr int64_t kMostPartials = 528;  // four blocks for each of an H200's 132 multiprocessors
};
template <>
struct Tuning<bf16> {
  static constexpr int kSums = 3;                // and the columns of dinp
  static constexpr int64_t kMostPartials = 396;  // three blocks for each multiprocessor
};

// Blocks stride over groups of ROWS rows; a thread owns PACKS packs of channels in every row, so dweight, dbias and the column sums of
// dinp add up in its registers. Sums over a row go through shared memory, ROWS rows per barrier, in two alternating buffers: a thread
// that runs ahead writes the other one. Writes dinp and one partial (dweight, dbias, column sums) per block: partial[block] is kSums C
// floats.
template <class S, int N, int PACKS, int ROWS, class R>
__global__ void __launch_bounds__(512)
    fused_rows_backward_kernel(R* __restrict__ dinp, S* __restrict__ dinp_copy, float* __restrict__ partial, const S* __restrict__ dout,
                               const S* __restrict__ inp, const float* __restrict__ mean, const float* __restrict__ rstd,
                               const S* __restrict__ weight, int64_t rows, int64_t C, bool add_to_dinp) {
  constexpr int kSums = Tuning<S>::kSums;
  constexpr int kMaxWarps = 512 / kWarp;
  __shared__ float sums[2][kMaxWarps][2 * ROWS];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int warps = blockDim.x / kWarp;

  Pack<N> w[PACKS]{};
  Pack<N> dweight[PACKS]{};
  Pack<N> dbias[PACKS]{};
  Pack<N> columns[PACKS]{};
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
        Pack<N> result{};
        if (add_to_dinp) result = load_value<N>(dinp, dinp_copy, row * C + c);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          result.v[k] += (dn[r][p].v[k] - mean_dn - xhat[r][p].v[k] * mean_dn_xhat) * s;
          if constexpr (kSums == 3) columns[p].v[k] += copied<R, S>(result.v[k]);
        }
        store_value(dinp, dinp_copy, row * C + c, result);
      }
    }
    buffer ^= 1;
  }

#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t c = (p * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
    if (c >= C) continue;
    float* mine = partial + blockIdx.x * kSums * C;
    store(mine + c, dweight[p]);
    store(mine + C + c, dbias[p]);
    if constexpr (kSums == 3) store(mine + 2 * C + c, columns[p]);
  }
}

// As the kernel above with kSums = 3, without barriers: one warp per row, the row in PACKS packs of 8 per lane, everything that a row
// needs asked for at once. Rows of a block are far apart in time, so its warps wait at different moments and memory stays busy. Warps join
// their sums in shared memory (3 C floats) at the end, one after the other.
template <class S, int PACKS, class R>
__global__ void __launch_bounds__(128, PACKS <= 3 ? 3 : 2)
    warp_rows_backward_kernel(R* __restrict__ dinp, S* __restrict__ dinp_copy, float* __restrict__ partial, const S* __restrict__ dout,
                              const S* __restrict__ inp, const float* __restrict__ mean, const float* __restrict__ rstd,
                              const S* __restrict__ weight, int64_t rows, int C, bool add_to_dinp) {
  cuda::wait_for_kernels_before();
  extern __shared__ __align__(16) float joined[];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int warps = blockDim.x / kWarp;
  const float inverse_C = 1.0f / static_cast<float>(C);

  Raw<S> w[PACKS]{};
  Pack<8> dweight[PACKS]{};
  Pack<8> dbias[PACKS]{};
  Pack<8> columns[PACKS]{};
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    if ((p * kWarp + lane) * 8 < C) w[p] = load_raw(weight + (p * kWarp + lane) * 8);

  for (int64_t row = blockIdx.x * static_cast<int64_t>(warps) + warp; row < rows; row += gridDim.x * static_cast<int64_t>(warps)) {
    Raw<S> x_raw[PACKS]{};
    Raw<S> d_raw[PACKS]{};
    RawValue<R, S> old_raw[PACKS]{};
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int c = (p * kWarp + lane) * 8;
      if (c >= C) continue;
      x_raw[p] = load_raw(inp + row * C + c);
      d_raw[p] = load_raw(dout + row * C + c);
      if (add_to_dinp) old_raw[p] = load_raw(dinp, dinp_copy, row * C + c);
    }
    const float m = mean[row];
    const float s = rstd[row];
    float sum_dn = 0;
    float sum_dn_xhat = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      if ((p * kWarp + lane) * 8 >= C) continue;
      const Pack<8> x = floats(x_raw[p]);
      const Pack<8> d = floats(d_raw[p]);
      const Pack<8> weights = floats(w[p]);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float dn = d.v[k] * weights.v[k];
        sum_dn += dn;
        sum_dn_xhat += dn * ((x.v[k] - m) * s);
      }
    }
    const float mean_dn = warp_sum(sum_dn) * inverse_C;
    const float mean_dn_xhat = warp_sum(sum_dn_xhat) * inverse_C;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int c = (p * kWarp + lane) * 8;
      if (c >= C) continue;
      const Pack<8> x = floats(x_raw[p]);
      const Pack<8> d = floats(d_raw[p]);
      const Pack<8> weights = floats(w[p]);
      Pack<8> result = floats(old_raw[p]);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float xhat = (x.v[k] - m) * s;
        dweight[p].v[k] += d.v[k] * xhat;
        dbias[p].v[k] += d.v[k];
        result.v[k] += (d.v[k] * weights.v[k] - mean_dn - xhat * mean_dn_xhat) * s;
        columns[p].v[k] += copied<R, S>(result.v[k]);
      }
      store_value(dinp, dinp_copy, row * C + c, result);
    }
  }

  for (int turn = 0; turn < warps; ++turn) {
    if (warp == turn) {
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
        const int c = (p * kWarp + lane) * 8;
        if (c >= C) continue;
        const auto join = [&](float* to, Pack<8> mine) {
          if (turn > 0) {
            const Pack<8> before = load<8>(to);
#pragma unroll
            for (int k = 0; k < 8; ++k) mine.v[k] += before.v[k];
          }
          store(to, mine);
        };
        join(joined + c, dweight[p]);
        join(joined + C + c, dbias[p]);
        join(joined + 2 * C + c, columns[p]);
      }
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 3 * C; i += blockDim.x) partial[blockIdx.x * 3 * static_cast<int64_t>(C) + i] = joined[i];
}

// One warp per row: dinp only. Reads the row twice, the second time from L1.
template <class S, int N, class R>
__global__ void rows_backward_kernel(R* __restrict__ dinp, S* __restrict__ dinp_copy, const S* __restrict__ dout, const S* __restrict__ inp,
                                     const float* __restrict__ mean, const float* __restrict__ rstd, const S* __restrict__ weight,
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
    Pack<N> result{};
    if (add_to_dinp) result = load_value<N>(dinp, dinp_copy, row * C + c);
#pragma unroll
    for (int k = 0; k < N; ++k) result.v[k] += (d.v[k] * w.v[k] - mean_dn - (x.v[k] - m) * s * mean_dn_xhat) * s;
    store_value(dinp, dinp_copy, row * C + c, result);
  }
}

// Block (32, 8): 32 columns, one slab of rows (blockIdx.y); thread (x, y) sums rows y, y + 8, … of the slab. Partials as in the fused
// kernel, without column sums of dinp.
template <class S>
__global__ void columns_backward_kernel(float* __restrict__ partial, const S* __restrict__ dout, const S* __restrict__ inp,
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
      const float d = load<1>(dout + row * C + c).v[0];
      dweight += d * ((load<1>(inp + row * C + c).v[0] - mean[row]) * rstd[row]);
      dbias += d;
    }
  }
  sums[0][threadIdx.y][threadIdx.x] = dweight;
  sums[1][threadIdx.y][threadIdx.x] = dbias;
  __syncthreads();
  if (threadIdx.y >= 2 || c >= C) return;
  float total = 0;
  for (int y = 0; y < 8; ++y) total += sums[threadIdx.y][y][threadIdx.x];
  partial[blockIdx.y * Tuning<S>::kSums * C + threadIdx.y * C + c] = total;
}

// Where the sums of a partial go; nullptr: not wanted.
struct Sums {
  float* out[3];
};

// Block (32, 32): 32 columns of the kSums C; thread (x, y) sums partials y, y + 32, … in double, then the 32 sums are added in the order
// of y.
template <int kSums>
__global__ void reduce_sums_kernel(const Sums to, const float* __restrict__ partial, int64_t partials, int64_t C, bool accumulate) {
  cuda::wait_for_kernels_before();
  __shared__ double sums[kWarp][kWarp + 1];
  const int64_t c = blockIdx.x * static_cast<int64_t>(kWarp) + threadIdx.x;
  double sum = 0;
  if (c < kSums * C) {
#pragma unroll 4
    for (int64_t i = threadIdx.y; i < partials; i += kWarp) sum += static_cast<double>(partial[i * kSums * C + c]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= kSums * C) return;
  float* out = to.out[c / C];
  if (out == nullptr) return;
  out += c % C;
  double total = 0;
  for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
  if (accumulate) total += static_cast<double>(*out);
  *out = static_cast<float>(total);
}

// ---------------------------------------------------------------------------------------------------------------------

constexpr int kRowsPerBlock = 4;  // warp-per-row kernels: 128 threads

template <class S>
int64_t partial_count(LayernormBackward variant, int64_t rows, int64_t C) {
  switch (variant) {
    case LayernormBackward::separate_columns:
      return slab_count<S>(rows, C);
    case LayernormBackward::fused_rows:
      break;
  }
  return std::min(ceil_div<int64_t>(rows, 4), Tuning<S>::kMostPartials);
}

// What the kernels read, and where they put it.
template <class S, class R>
struct Task {
  LayernormGradients<S, R> to;
  const S *dout, *inp;
  const float *mean, *rstd;
  const S* weight;
  int64_t rows, C;
  float* partial;
  int64_t partials;
  cudaStream_t stream;
};

template <int N, int PACKS, int ROWS, class S, class R>
void launch_blocks(const Task<S, R>& b, unsigned threads) {
  fused_rows_backward_kernel<S, N, PACKS, ROWS, R><<<grid_blocks(b.partials), threads, 0, b.stream>>>(
      b.to.dinp, b.to.dinp_copy, b.partial, b.dout, b.inp, b.mean, b.rstd, b.weight, b.rows, b.C, b.to.add_to_dinp);
}

template <int PACKS, class S, class R>
void launch_warps(const Task<S, R>& b) {
  const size_t shared = static_cast<size_t>(3 * b.C) * sizeof(float);
  warp_rows_backward_kernel<S, PACKS, R><<<grid_blocks(b.partials), kRowsPerBlock * kWarp, shared, b.stream>>>(
      b.to.dinp, b.to.dinp_copy, b.partial, b.dout, b.inp, b.mean, b.rstd, b.weight, b.rows, static_cast<int>(b.C), b.to.add_to_dinp);
}

// The shapes of fused_rows are what fits the registers of a thread.
template <int N>
void launch_fused_rows(const Task<float, float>& b) {
  const int64_t packs = b.C / N;
  if (packs <= kFusedThreads)
    launch_blocks<N, 1, 4>(b, row_threads(packs, kFusedThreads));
  else
    launch_blocks<N, 4, 1>(b, kFusedThreads);
}

template <int N, class R>
void launch_fused_rows(const Task<bf16, R>& b) {
  if constexpr (N == 8) {
    const int64_t packs_of_warp = ceil_div<int64_t>(b.C, kWarp * N);
    if (packs_of_warp == 1) return launch_warps<1>(b);
    if (packs_of_warp == 2) return launch_warps<2>(b);
    if (packs_of_warp == 3) return launch_warps<3>(b);
    if (packs_of_warp == 4) return launch_warps<4>(b);
  }
  const unsigned threads = row_threads(ceil_div<int64_t>(b.C, N), kFusedThreads);
  const int64_t packs = ceil_div<int64_t>(ceil_div<int64_t>(b.C, N), threads);
  if (packs == 1)
    launch_blocks<N, 1, 4>(b, threads);
  else if (packs == 2)
    launch_blocks<N, 2, 2>(b, threads);
  else
    launch_blocks<1, 4, 2>(b, threads);  // why_not() lets no packs of 8 come here
}

template <int N, class S, class R>
void launch_separate_columns(const Task<S, R>& b) {
  const dim3 grid(grid_blocks(ceil_div<int64_t>(b.C, kWarp)), static_cast<unsigned>(b.partials));
  columns_backward_kernel<S>
      <<<grid, dim3(kWarp, 8), 0, b.stream>>>(b.partial, b.dout, b.inp, b.mean, b.rstd, b.rows, b.C, ceil_div<int64_t>(b.rows, b.partials));
  STEPSCOPE_CHECK_LAUNCH();
  rows_backward_kernel<S, N, R><<<grid_blocks(ceil_div<int64_t>(b.rows, kRowsPerBlock)), kRowsPerBlock * kWarp, 0, b.stream>>>(
      b.to.dinp, b.to.dinp_copy, b.dout, b.inp, b.mean, b.rstd, b.weight, b.rows, b.C, b.to.add_to_dinp);
}

template <int N, class S, class R>
void launch_backward(LayernormBackward variant, const Task<S, R>& b) {
  switch (variant) {
    case LayernormBackward::fused_rows:
      launch_fused_rows<N>(b);
      break;
    case LayernormBackward::separate_columns:
      launch_separate_columns<N>(b);
      break;
  }
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace

template <class S>
std::optional<std::string> why_not(LayernormBackward variant, int64_t C, bool packs) {
  switch (variant) {
    case LayernormBackward::separate_columns:
      return std::nullopt;
    case LayernormBackward::fused_rows:
      break;
  }
  // A thread owns up to four packs of 16 bytes of float, two of bf16, or four single values.
  const int64_t most = kFusedThreads * (packs ? 16 : 4);
  if (C <= most) return std::nullopt;
  return "it holds rows of up to " + std::to_string(most) + " channels of this alignment, the model has " + std::to_string(C) +
         "; use layernorm_backward=separate_columns";
}

template <class S>
int64_t layernorm_backward_scratch_floats(LayernormBackward variant, int64_t rows, int64_t C) {
  return std::max(partial_count<S>(variant, rows, C) * Tuning<S>::kSums * C, bias_gradient_scratch_floats<S>(rows, C));
}

template <class S, class R>
void layernorm_backward(LayernormBackward variant, const LayernormGradients<S, R>& to, const S* dout, const S* inp, const float* mean,
                        const float* rstd, const S* weight, int64_t rows, int64_t C, float* scratch, cudaStream_t stream) {
  constexpr int kSums = Tuning<S>::kSums;
  const int64_t partials = partial_count<S>(variant, rows, C);
  const Task<S, R> task{to, dout, inp, mean, rstd, weight, rows, C, scratch, partials, stream};
  const bool packs = can_pack<S>(C, to.dinp, dout, inp, weight, to.dinp_copy);
  if (const auto why = why_not<S>(variant, C, packs)) throw stepscope::InputError("layernorm_backward: " + *why);
  if (packs)
    launch_backward<kPack<S>>(variant, task);
  else
    launch_backward<1>(variant, task);
  const bool summed = variant == LayernormBackward::fused_rows && kSums == 3;
  const Sums sums{{to.dweight, to.dbias, summed ? to.dinp_column_sums : nullptr}};
  reduce_sums_kernel<kSums>
      <<<grid_blocks(ceil_div<int64_t>(kSums * C, kWarp)), dim3(kWarp, kWarp), 0, stream>>>(sums, scratch, partials, C, to.accumulate);
  STEPSCOPE_CHECK_LAUNCH();
  if (summed || to.dinp_column_sums == nullptr) return;
  const S* stored = to.dinp_copy;
  if constexpr (!kKeepsMore<R, S>) stored = to.dinp;
  bias_gradient(to.dinp_column_sums, stored, rows, C, to.accumulate, scratch, stream);
}

template std::optional<std::string> why_not<float>(LayernormBackward, int64_t, bool);
template std::optional<std::string> why_not<bf16>(LayernormBackward, int64_t, bool);
template int64_t layernorm_backward_scratch_floats<float>(LayernormBackward, int64_t, int64_t);
template int64_t layernorm_backward_scratch_floats<bf16>(LayernormBackward, int64_t, int64_t);
#define STEPSCOPE_INSTANTIATE(S, R)                                                                                            \
  template void layernorm_backward<S, R>(LayernormBackward, const LayernormGradients<S, R>&, const S*, const S*, const float*, \
                                         const float*, const S*, int64_t, int64_t, float*, cudaStream_t);
STEPSCOPE_INSTANTIATE(float, float)
STEPSCOPE_FOR_EACH_MIXED_STREAM(STEPSCOPE_INSTANTIATE)
#undef STEPSCOPE_INSTANTIATE

}  // namespace gpt2::ops
