// Layernorm kernels. Mean and variance are taken in two passes over the row (the second finds it in registers or L1): the one-pass
// formula E[x^2] - E[x]^2 cancels when the mean is large against the deviation.
#include "mixed/kernels/layernorm.cuh"

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "gpt2/ops/column_sums.cuh"

namespace mixed {
namespace {

constexpr float kEps = 1e-5f;

// What a row of the forward reads: the residual stream, or the residual sum that is made on the way and written.
template <class R>
struct Rows {
  const R* inp;        // (rows,C); with a branch: the addend
  const bf16* branch;  // nullptr: none
  R* sum;              // inp + branch, rounded
  bf16* kept;          // nullptr, or the row rounded to bf16
};

template <int N, bool kResidual, class R>
__device__ __forceinline__ Pack<N> load_row(const Rows<R>& rows, int64_t at) {
  Pack<N> x = load<N>(rows.inp + at);
  if constexpr (kResidual) {
    const Pack<N> b = load<N>(rows.branch + at);
#pragma unroll
    for (int k = 0; k < N; ++k) x.v[k] = rounded<R>(x.v[k] + b.v[k]);
    store(rows.sum + at, x);
  }
  if (sizeof(R) != sizeof(bf16) && rows.kept != nullptr) store(rows.kept + at, x);
  return x;
}

template <int N>
__device__ __forceinline__ void normalize_pack(bf16* out, const Pack<N>& x, const bf16* weight, const bf16* bias, float mean, float rstd) {
  const Pack<N> w = load<N>(weight);
  const Pack<N> b = load<N>(bias);
  Pack<N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y.v[k] = (x.v[k] - mean) * rstd * w.v[k] + b.v[k];
  store(out, y);
}

// One warp per row, lanes over channels, the row in PACKS packs of registers; blockDim.x / 32 rows per block.
template <int N, int PACKS, bool kResidual, class R>
__global__ void __launch_bounds__(256)
    warp_per_row_forward_kernel(bf16* __restrict__ out, float* __restrict__ mean_out, float* __restrict__ rstd_out, const Rows<R> in,
                                const bf16* __restrict__ weight, const bf16* __restrict__ bias, int64_t rows, int64_t C) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;

  Pack<N> x[PACKS]{};
  float sum = 0;
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t c = (p * kWarp + lane) * N;
    if (c >= C) continue;
    x[p] = load_row<N, kResidual>(in, row * C + c);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += x[p].v[k];
  }
  const float mean = warp_sum(sum) / static_cast<float>(C);

  float squares = 0;
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    if ((p * kWarp + lane) * N >= C) continue;
#pragma unroll
    for (int k = 0; k < N; ++k) squares += (x[p].v[k] - mean) * (x[p].v[k] - mean);
  }
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(C) + kEps);

#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t c = (p * kWarp + lane) * N;
    if (c < C) normalize_pack<N>(out + row * C + c, x[p], weight + c, bias + c, mean, rstd);
  }
  if (lane == 0 && mean_out != nullptr) {
    mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
}

// One block per row, threads over channels; for any C. The row is read three times, the later ones from L1.
template <int N, bool kResidual, class R>
__global__ void block_per_row_forward_kernel(bf16* __restrict__ out, float* __restrict__ mean_out, float* __restrict__ rstd_out,
                                             const Rows<R> in, const bf16* __restrict__ weight, const bf16* __restrict__ bias, int64_t C) {
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  // A thread reads back only what it wrote itself.
  const R* x_row = (kResidual ? in.sum : in.inp) + row * C;

  float sum = 0;
  for (int64_t c = threadIdx.x * N; c < C; c += blockDim.x * N) {
    const Pack<N> x = load_row<N, kResidual>(in, row * C + c);
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
    normalize_pack<N>(out + row * C + c, load<N>(x_row + c), weight + c, bias + c, mean, rstd);
  if (threadIdx.x == 0 && mean_out != nullptr) {
    mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
}

// Blocks stride over groups of ROWS rows; a thread owns PACKS packs of channels in every row, so dweight, dbias and the column sums of
// dinp add up in its registers. Sums over a row go through shared memory, ROWS rows per barrier, in two alternating buffers: a thread
// that runs ahead writes the other one. Writes dinp and one partial (dweight, dbias, column sums) per block: partial[block] is 3 C
// floats.
template <int N, int PACKS, int ROWS, class R>
__global__ void __launch_bounds__(512)
    fused_rows_backward_kernel(R* __restrict__ dinp, bf16* __restrict__ dinp_copy, float* __restrict__ partial,
                               const bf16* __restrict__ dout, const bf16* __restrict__ inp, const float* __restrict__ mean,
                               const float* __restrict__ rstd, const bf16* __restrict__ weight, int64_t rows, int64_t C, bool add_to_dinp) {
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
        R* target = dinp + row * C + c;
        Pack<N> result{};
        if (add_to_dinp) result = load<N>(target);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          result.v[k] += (dn[r][p].v[k] - mean_dn - xhat[r][p].v[k] * mean_dn_xhat) * s;
          columns[p].v[k] += rounded<bf16>(result.v[k]);
        }
        store(target, result);
        if (sizeof(R) != sizeof(bf16) && dinp_copy != nullptr) store(dinp_copy + row * C + c, result);
      }
    }
    buffer ^= 1;
  }

#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t c = (p * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
    if (c >= C) continue;
    float* mine = partial + blockIdx.x * 3 * C;
    store(mine + c, dweight[p]);
    store(mine + C + c, dbias[p]);
    store(mine + 2 * C + c, columns[p]);
  }
}

// Eight consecutive values as they lie in memory: half the registers of floats while they wait.
template <class S>
struct Raw {
  uint4 word[sizeof(S) / 2];
};
template <class S>
__device__ __forceinline__ Raw<S> load_raw(const S* p) {
  Raw<S> raw;
#pragma unroll
  for (size_t i = 0; i < sizeof(S) / 2; ++i) raw.word[i] = reinterpret_cast<const uint4*>(p)[i];
  return raw;
}
template <class S>
__device__ __forceinline__ Pack<8> floats(const Raw<S>& raw) {
  return load<8>(reinterpret_cast<const S*>(&raw));
}

// As the kernel above, without barriers: one warp per row, the row in PACKS packs of 8 per lane, everything that a row needs asked for
// at once. Rows of a block are far apart in time, so its warps wait at different moments and memory stays busy. Warps join their sums
// in shared memory (3 C floats) at the end, one after the other.
template <int PACKS, class R>
__global__ void __launch_bounds__(128, PACKS <= 3 ? 3 : 2)
    warp_rows_backward_kernel(R* __restrict__ dinp, bf16* __restrict__ dinp_copy, float* __restrict__ partial,
                              const bf16* __restrict__ dout, const bf16* __restrict__ inp, const float* __restrict__ mean,
                              const float* __restrict__ rstd, const bf16* __restrict__ weight, int64_t rows, int C, bool add_to_dinp) {
  extern __shared__ __align__(16) float joined[];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int warps = blockDim.x / kWarp;
  const float inverse_C = 1.0f / static_cast<float>(C);

  Raw<bf16> w[PACKS]{};
  Pack<8> dweight[PACKS]{};
  Pack<8> dbias[PACKS]{};
  Pack<8> columns[PACKS]{};
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    if ((p * kWarp + lane) * 8 < C) w[p] = load_raw(weight + (p * kWarp + lane) * 8);

  for (int64_t row = blockIdx.x * static_cast<int64_t>(warps) + warp; row < rows; row += gridDim.x * static_cast<int64_t>(warps)) {
    Raw<bf16> x_raw[PACKS]{};
    Raw<bf16> d_raw[PACKS]{};
    Raw<R> old_raw[PACKS]{};
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int c = (p * kWarp + lane) * 8;
      if (c >= C) continue;
      x_raw[p] = load_raw(inp + row * C + c);
      d_raw[p] = load_raw(dout + row * C + c);
      if (add_to_dinp) old_raw[p] = load_raw(dinp + row * C + c);
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
        columns[p].v[k] += rounded<bf16>(result.v[k]);
      }
      store(dinp + row * C + c, result);
      if (sizeof(R) != sizeof(bf16) && dinp_copy != nullptr) store(dinp_copy + row * C + c, result);
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
template <int N, class R>
__global__ void rows_backward_kernel(R* __restrict__ dinp, bf16* __restrict__ dinp_copy, const bf16* __restrict__ dout,
                                     const bf16* __restrict__ inp, const float* __restrict__ mean, const float* __restrict__ rstd,
                                     const bf16* __restrict__ weight, int64_t rows, int64_t C, bool add_to_dinp) {
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
    R* target = dinp + row * C + c;
    Pack<N> result{};
    if (add_to_dinp) result = load<N>(target);
#pragma unroll
    for (int k = 0; k < N; ++k) result.v[k] += (d.v[k] * w.v[k] - mean_dn - (x.v[k] - m) * s * mean_dn_xhat) * s;
    store(target, result);
    if (sizeof(R) != sizeof(bf16) && dinp_copy != nullptr) store(dinp_copy + row * C + c, result);
  }
}

// Block (32, 8): 32 columns, one slab of rows (blockIdx.y); thread (x, y) sums rows y, y + 8, … of the slab. Partials as in the fused
// kernel, without column sums of dinp.
__global__ void columns_backward_kernel(float* __restrict__ partial, const bf16* __restrict__ dout, const bf16* __restrict__ inp,
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
  partial[blockIdx.y * 3 * C + threadIdx.y * C + c] = total;
}

// Where the three sums of a partial go; nullptr: not wanted.
struct Sums {
  float* out[3];
};

// Block (32, 32): 32 columns of the 3 C; thread (x, y) sums partials y, y + 32, … in double, then the 32 sums are added in the order
// of y.
__global__ void reduce_three_kernel(const Sums to, const float* __restrict__ partial, int64_t partials, int64_t C, bool accumulate) {
  __shared__ double sums[kWarp][kWarp + 1];
  const int64_t c = blockIdx.x * static_cast<int64_t>(kWarp) + threadIdx.x;
  double sum = 0;
  if (c < 3 * C) {
#pragma unroll 4
    for (int64_t i = threadIdx.y; i < partials; i += kWarp) sum += static_cast<double>(partial[i * 3 * C + c]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= 3 * C) return;
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
constexpr int64_t kFusedThreads = 512;
constexpr int64_t kMostWarpPacks = 8;  // of a row, in the registers of one lane

std::string holds_up_to(int64_t most, int64_t C, const char* instead) {
  return "it holds rows of up to " + std::to_string(most) + " channels of this alignment, the model has " + std::to_string(C) + "; use " +
         instead;
}

int64_t partial_count(LayernormBackward variant, int64_t rows, int64_t C) {
  switch (variant) {
    case LayernormBackward::separate_columns:
      return gpt2::ops::slab_count<bf16>(rows, C);
    case LayernormBackward::fused_rows:
      break;
  }
  const int64_t groups = ceil_div<int64_t>(rows, 4);
  return groups < 396 ? groups : 396;  // three blocks for each of an H200's 132 multiprocessors
}

struct Output {
  bf16* out;
  float *mean, *rstd;
};

template <int N, int PACKS, bool kResidual, class R>
void launch_warp_per_row(const Output& o, const Rows<R>& in, const bf16* weight, const bf16* bias, int64_t rows, int64_t C,
                         cudaStream_t stream) {
  warp_per_row_forward_kernel<N, PACKS, kResidual, R>
      <<<grid_blocks(ceil_div<int64_t>(rows, kRowsPerBlock)), kRowsPerBlock * kWarp, 0, stream>>>(o.out, o.mean, o.rstd, in, weight, bias,
                                                                                                  rows, C);
}

template <int N, bool kResidual, class R>
void launch_forward(LayernormForward variant, const Output& o, const Rows<R>& in, const bf16* weight, const bf16* bias, int64_t rows,
                    int64_t C, cudaStream_t stream) {
  if (const auto why = why_not(variant, C, N == 8)) throw stepscope::InputError("layernorm_forward: " + *why);
  const int64_t packs = ceil_div<int64_t>(C, kWarp * N);
  switch (variant) {
    case LayernormForward::block_per_row:
      block_per_row_forward_kernel<N, kResidual, R>
          <<<grid_blocks(rows), row_threads(ceil_div<int64_t>(C, N)), 0, stream>>>(o.out, o.mean, o.rstd, in, weight, bias, C);
      break;
    case LayernormForward::warp_per_row:
      if (packs == 1)
        launch_warp_per_row<N, 1, kResidual>(o, in, weight, bias, rows, C, stream);
      else if (packs == 2)
        launch_warp_per_row<N, 2, kResidual>(o, in, weight, bias, rows, C, stream);
      else if (packs == 3)
        launch_warp_per_row<N, 3, kResidual>(o, in, weight, bias, rows, C, stream);
      else if (packs == 4)
        launch_warp_per_row<N, 4, kResidual>(o, in, weight, bias, rows, C, stream);
      else
        launch_warp_per_row<N, 8, kResidual>(o, in, weight, bias, rows, C, stream);
      break;
  }
  STEPSCOPE_CHECK_LAUNCH();
}

template <class R>
struct Backward {
  R* dinp;
  bf16* dinp_copy;
  const bf16* dout;
  const bf16* inp;
  const float *mean, *rstd;
  const bf16* weight;
  int64_t rows, C;
  bool add_to_dinp;
};

template <int N, int PACKS, int ROWS, class R>
void launch_fused(const Backward<R>& b, float* partial, int64_t partials, unsigned threads, cudaStream_t stream) {
  fused_rows_backward_kernel<N, PACKS, ROWS, R><<<grid_blocks(partials), threads, 0, stream>>>(
      b.dinp, b.dinp_copy, partial, b.dout, b.inp, b.mean, b.rstd, b.weight, b.rows, b.C, b.add_to_dinp);
}

template <int PACKS, class R>
void launch_warp_rows(const Backward<R>& b, float* partial, int64_t partials, cudaStream_t stream) {
  const size_t shared = static_cast<size_t>(3 * b.C) * sizeof(float);
  warp_rows_backward_kernel<PACKS, R><<<grid_blocks(partials), kRowsPerBlock * kWarp, shared, stream>>>(
      b.dinp, b.dinp_copy, partial, b.dout, b.inp, b.mean, b.rstd, b.weight, b.rows, static_cast<int>(b.C), b.add_to_dinp);
}

template <int N, class R>
void launch_fused_rows(const Backward<R>& b, float* partial, int64_t partials, cudaStream_t stream) {
  if constexpr (N == 8) {
    const int64_t packs_of_warp = ceil_div<int64_t>(b.C, kWarp * N);
    if (packs_of_warp == 1) return launch_warp_rows<1>(b, partial, partials, stream);
    if (packs_of_warp == 2) return launch_warp_rows<2>(b, partial, partials, stream);
    if (packs_of_warp == 3) return launch_warp_rows<3>(b, partial, partials, stream);
    if (packs_of_warp == 4) return launch_warp_rows<4>(b, partial, partials, stream);
  }
  const unsigned threads = row_threads(ceil_div<int64_t>(b.C, N), kFusedThreads);
  const int64_t packs = ceil_div<int64_t>(ceil_div<int64_t>(b.C, N), threads);
  if (packs == 1)
    launch_fused<N, 1, 4>(b, partial, partials, threads, stream);
  else if (packs == 2)
    launch_fused<N, 2, 2>(b, partial, partials, threads, stream);
  else
    launch_fused<1, 4, 2>(b, partial, partials, threads, stream);  // why_not() lets no packs of 8 come here
}

template <int N, class R>
void launch_separate_columns(const Backward<R>& b, float* partial, int64_t slabs, cudaStream_t stream) {
  const dim3 grid(grid_blocks(ceil_div<int64_t>(b.C, kWarp)), static_cast<unsigned>(slabs));
  columns_backward_kernel<<<grid, dim3(kWarp, 8), 0, stream>>>(partial, b.dout, b.inp, b.mean, b.rstd, b.rows, b.C,
                                                               ceil_div<int64_t>(b.rows, slabs));
  STEPSCOPE_CHECK_LAUNCH();
  rows_backward_kernel<N, R><<<grid_blocks(ceil_div<int64_t>(b.rows, kRowsPerBlock)), kRowsPerBlock * kWarp, 0, stream>>>(
      b.dinp, b.dinp_copy, b.dout, b.inp, b.mean, b.rstd, b.weight, b.rows, b.C, b.add_to_dinp);
}

template <int N, class R>
void launch_backward(LayernormBackward variant, const Backward<R>& b, float* partial, int64_t partials, cudaStream_t stream) {
  switch (variant) {
    case LayernormBackward::fused_rows:
      launch_fused_rows<N>(b, partial, partials, stream);
      break;
    case LayernormBackward::separate_columns:
      launch_separate_columns<N>(b, partial, partials, stream);
      break;
  }
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace

std::optional<std::string> why_not(LayernormForward variant, int64_t C, bool packs) {
  switch (variant) {
    case LayernormForward::block_per_row:
      return std::nullopt;
    case LayernormForward::warp_per_row:
      break;
  }
  const int64_t most = kMostWarpPacks * kWarp * (packs ? 8 : 1);
  if (C <= most) return std::nullopt;
  return holds_up_to(most, C, "layernorm_forward=block_per_row");
}

std::optional<std::string> why_not(LayernormBackward variant, int64_t C, bool packs) {
  switch (variant) {
    case LayernormBackward::separate_columns:
      return std::nullopt;
    case LayernormBackward::fused_rows:
      break;
  }
  const int64_t most = kFusedThreads * (packs ? 2 * 8 : 4);
  if (C <= most) return std::nullopt;
  return holds_up_to(most, C, "layernorm_backward=separate_columns");
}

template <class R>
void layernorm_forward(LayernormForward variant, bf16* out, float* mean, float* rstd, const R* inp, bf16* kept, const bf16* weight,
                       const bf16* bias, int64_t rows, int64_t C, cudaStream_t stream) {
  const Rows<R> in{inp, nullptr, nullptr, kept};
  if (can_pack(C, out, inp, weight, bias, kept))
    launch_forward<8, false>(variant, {out, mean, rstd}, in, weight, bias, rows, C, stream);
  else
    launch_forward<1, false>(variant, {out, mean, rstd}, in, weight, bias, rows, C, stream);
}

template <class R>
void residual_layernorm_forward(LayernormForward variant, R* sum, bf16* kept, bf16* out, float* mean, float* rstd, const R* a,
                                const bf16* branch, const bf16* weight, const bf16* bias, int64_t rows, int64_t C, cudaStream_t stream) {
  const Rows<R> in{a, branch, sum, kept};
  if (can_pack(C, sum, out, a, branch, weight, bias, kept))
    launch_forward<8, true>(variant, {out, mean, rstd}, in, weight, bias, rows, C, stream);
  else
    launch_forward<1, true>(variant, {out, mean, rstd}, in, weight, bias, rows, C, stream);
}

int64_t layernorm_backward_scratch_floats(LayernormBackward variant, int64_t rows, int64_t C) {
  return std::max(partial_count(variant, rows, C) * 3 * C, gpt2::ops::bias_gradient_scratch_floats<bf16>(rows, C));
}

template <class R>
void layernorm_backward(LayernormBackward variant, R* dinp, bf16* dinp_copy, float* dweight, float* dbias, float* dinp_column_sums,
                        const bf16* dout, const bf16* inp, const float* mean, const float* rstd, const bf16* weight, int64_t rows,
                        int64_t C, bool add_to_dinp, bool accumulate, float* scratch, cudaStream_t stream) {
  const int64_t partials = partial_count(variant, rows, C);
  const Backward<R> b{dinp, dinp_copy, dout, inp, mean, rstd, weight, rows, C, add_to_dinp};
  const bool packs = can_pack(C, dinp, dout, inp, weight) && (dinp_copy == nullptr || aligned_16(dinp_copy));
  if (const auto why = why_not(variant, C, packs)) throw stepscope::InputError("layernorm_backward: " + *why);
  if (packs)
    launch_backward<8>(variant, b, scratch, partials, stream);
  else
    launch_backward<1>(variant, b, scratch, partials, stream);
  const bool summed = variant == LayernormBackward::fused_rows;
  const Sums to{{dweight, dbias, summed ? dinp_column_sums : nullptr}};
  reduce_three_kernel<<<grid_blocks(ceil_div<int64_t>(3 * C, kWarp)), dim3(kWarp, kWarp), 0, stream>>>(to, scratch, partials, C,
                                                                                                       accumulate);
  STEPSCOPE_CHECK_LAUNCH();
  if (!summed && dinp_column_sums != nullptr) {
    const bf16* operand = nullptr;
    if constexpr (sizeof(R) == sizeof(bf16))
      operand = dinp;
    else
      operand = dinp_copy;
    gpt2::ops::bias_gradient(dinp_column_sums, operand, rows, C, accumulate, scratch, stream);
  }
}

#define STEPSCOPE_INSTANTIATE(R)                                                                                                           \
  template void layernorm_forward<R>(LayernormForward, bf16*, float*, float*, const R*, bf16*, const bf16*, const bf16*, int64_t, int64_t, \
                                     cudaStream_t);                                                                                        \
  template void residual_layernorm_forward<R>(LayernormForward, R*, bf16*, bf16*, float*, float*, const R*, const bf16*, const bf16*,      \
                                              const bf16*, int64_t, int64_t, cudaStream_t);                                                \
  template void layernorm_backward<R>(LayernormBackward, R*, bf16*, float*, float*, float*, const bf16*, const bf16*, const float*,        \
                                      const float*, const bf16*, int64_t, int64_t, bool, bool, float*, cudaStream_t);
STEPSCOPE_INSTANTIATE(bf16)
STEPSCOPE_INSTANTIATE(float)
#undef STEPSCOPE_INSTANTIATE

}  // namespace mixed
