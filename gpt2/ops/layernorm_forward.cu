// Layernorm forward. Mean and variance are taken in two passes over the row (the second finds it in registers or L1): the one-pass
// formula E[x^2] - E[x]^2 cancels when the mean is large against the deviation.
#include "gpt2/ops/layernorm_forward.cuh"

#include <string>

#include "base/errors.h"
#include "gpt2/ops/raw_values.cuh"

namespace gpt2::ops {
namespace {

constexpr float kEps = 1e-5f;

// Whether warp_per_row holds its row in registers. Where it does not, it reads the row three times, the later ones from L1, and takes rows
// of any length. Both add in the same order.
template <class S>
constexpr bool kHoldsRow = sizeof(S) == 2;
constexpr int64_t kMostHeldPacks = 8;  // of a row, in the registers of one lane

// What a row of the forward reads: the residual stream, or the residual sum that is made on the way and written.
template <class S, class R>
struct Rows {
  const R* inp;     // (rows,C); with a branch: the addend
  const S* branch;  // nullptr: none
  R* sum;           // inp + branch, rounded
  S* kept;          // nullptr, or the row rounded to S
  const S* inp_up;  // of inp, where R is LowByte
};

template <int N, bool kResidual, class S, class R>
__device__ __forceinline__ Pack<N> take_row(const Rows<S, R>& rows, int64_t at, Pack<N> x, const Pack<N>& branch) {
  if constexpr (kResidual) {
#pragma unroll
    for (int k = 0; k < N; ++k) x.v[k] += branch.v[k];
    return store_value(rows.sum, rows.kept, at, x);
  }
  if (kKeepsMore<R, S> && rows.kept != nullptr) store(rows.kept + at, x);
  return x;
}
template <int N, bool kResidual, class S, class R>
__device__ __forceinline__ Pack<N> load_row(const Rows<S, R>& rows, int64_t at) {
  Pack<N> branch{};
  if constexpr (kResidual) branch = load<N>(rows.branch + at);
  return take_row<N, kResidual>(rows, at, load_value<N>(rows.inp, rows.inp_up, at), branch);
}

// Eight values of a row on their way. All of a row are asked for before the first is stored: a sum may lie where its addend lay, so the
// compiler moves no load over a store, and a row would wait for memory once per pack.
template <class S, class R>
struct Asked {
  RawValue<R, S> inp;
  Raw<S> branch;
};
inline constexpr int kMostAskedPacks = 4;  // the registers of more cost more warps than they hide waits

template <int N, class S>
__device__ __forceinline__ void normalize_pack(S* out, const Pack<N>& x, const S* weight, const S* bias, float mean, float rstd) {
  const Pack<N> w = load<N>(weight);
  const Pack<N> b = load<N>(bias);
  Pack<N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y.v[k] = (x.v[k] - mean) * rstd * w.v[k] + b.v[k];
  store(out, y);
}

// Where the results go. mean and rstd: (rows), or null.
template <class S>
struct Normed {
  S* out;
  float *mean, *rstd;
};

// The threads that share a row, and by how much they unroll a loop over a row that they do not hold.
struct WarpOfRow {
  static constexpr int kUnroll = 4;
  __device__ __forceinline__ int first() const { return threadIdx.x % kWarp; }
  __device__ __forceinline__ int threads() const { return kWarp; }
  __device__ __forceinline__ float sum(float x) const { return warp_sum(x); }
};
struct BlockOfRow {
  static constexpr int kUnroll = 1;
  float* shared;
  __device__ __forceinline__ int first() const { return threadIdx.x; }
  __device__ __forceinline__ int threads() const { return blockDim.x; }
  __device__ __forceinline__ float sum(float x) const { return block_sum(x, shared); }
};

// One row: its mean and variance, and its output. HELD > 0: a thread holds its packs, at most so many, in registers. HELD == 0: it reads
// them again for every pass; where the row is a residual sum, a thread reads back only what it wrote itself.
template <int N, int HELD, bool kResidual, class Team, class S, class R>
__device__ __forceinline__ void normalize_row(const Team& team, const Normed<S>& to, const Rows<S, R>& in, const S* weight, const S* bias,
                                              int64_t row, int64_t C) {
  Pack<N> held[HELD > 0 ? HELD : 1]{};
  const R* x_again = kResidual ? in.sum : in.inp;
  const S* up_again = kResidual ? in.kept : in.inp_up;
  const auto each_pack = [&](const auto& use) {
    if constexpr (HELD > 0) {
#pragma unroll
      for (int p = 0; p < HELD; ++p) {
        const int64_t c = (p * team.threads() + team.first()) * N;
        if (c < C) use(p, c);
      }
    } else {
#pragma unroll Team::kUnroll
      for (int64_t c = team.first() * N; c < C; c += team.threads() * N) use(0, c);
    }
  };
  const auto again = [&](int p, int64_t c) {
    if constexpr (HELD > 0)
      return held[p];
    else
      return load_value<N>(x_again, up_again, row * C + c);
  };

  constexpr bool kAsksFirst = N == 8 && HELD > 1 && HELD <= kMostAskedPacks;
  [[maybe_unused]] Asked<S, R> asked[kAsksFirst ? HELD : 1];
  if constexpr (kAsksFirst)
    each_pack([&](int p, int64_t c) {
      asked[p].inp = load_raw(in.inp, in.inp_up, row * C + c);
      if constexpr (kResidual) asked[p].branch = load_raw(in.branch + row * C + c);
    });
  const auto load_pack = [&](int p, int64_t c) {
    if constexpr (kAsksFirst)
      return take_row<N, kResidual>(in, row * C + c, floats(asked[p].inp), kResidual ? floats(asked[p].branch) : Pack<N>{});
    else
      return load_row<N, kResidual>(in, row * C + c);
  };

  float sum = 0;
  each_pack([&](int p, int64_t c) {
    const Pack<N> x = load_pack(p, c);
    if constexpr (HELD > 0) held[p] = x;
#pragma unroll
    for (int k = 0; k < N; ++k) sum += x.v[k];
  });
  const float mean = team.sum(sum) / static_cast<float>(C);

  float squares = 0;
  each_pack([&](int p, int64_t c) {
    const Pack<N> x = again(p, c);
#pragma unroll
    for (int k = 0; k < N; ++k) squares += (x.v[k] - mean) * (x.v[k] - mean);
  });
  const float rstd = 1.0f / sqrtf(team.sum(squares) / static_cast<float>(C) + kEps);

  each_pack([&](int p, int64_t c) { normalize_pack<N>(to.out + row * C + c, again(p, c), weight + c, bias + c, mean, rstd); });
  if (team.first() == 0 && to.mean != nullptr) {
    to.mean[row] = mean;
    to.rstd[row] = rstd;
  }
}

// One warp per row, lanes over channels; blockDim.x / 32 rows per block.
template <class S, int N, int HELD, bool kResidual, class R>
__global__ void __launch_bounds__(256)
    warp_per_row_forward_kernel(S* __restrict__ out, float* __restrict__ mean, float* __restrict__ rstd, const Rows<S, R> in,
                                const S* __restrict__ weight, const S* __restrict__ bias, int64_t rows, int64_t C) {
  cuda::wait_for_kernels_before();
  const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (row < rows) normalize_row<N, HELD, kResidual>(WarpOfRow{}, Normed<S>{out, mean, rstd}, in, weight, bias, row, C);
}

// One block per row, threads over channels; for any C.
template <class S, int N, bool kResidual, class R>
__global__ void block_per_row_forward_kernel(S* __restrict__ out, float* __restrict__ mean, float* __restrict__ rstd, const Rows<S, R> in,
                                             const S* __restrict__ weight, const S* __restrict__ bias, int64_t C) {
  __shared__ float shared[kWarp];
  normalize_row<N, 0, kResidual>(BlockOfRow{shared}, Normed<S>{out, mean, rstd}, in, weight, bias, blockIdx.x, C);
}

// ---------------------------------------------------------------------------------------------------------------------

constexpr int kRowsPerBlock = 4;  // warp_per_row: 128 threads

template <int N, int HELD, bool kResidual, class S, class R>
void launch_warp_per_row(const Normed<S>& to, const Rows<S, R>& in, const S* weight, const S* bias, int64_t rows, int64_t C,
                         cudaStream_t stream) {
  warp_per_row_forward_kernel<S, N, HELD, kResidual, R>
      <<<grid_blocks(ceil_div<int64_t>(rows, kRowsPerBlock)), kRowsPerBlock * kWarp, 0, stream>>>(to.out, to.mean, to.rstd, in, weight,
                                                                                                  bias, rows, C);
}

template <int N, bool kResidual, class S, class R>
void launch_held_rows(const Normed<S>& to, const Rows<S, R>& in, const S* weight, const S* bias, int64_t rows, int64_t C,
                      cudaStream_t stream) {
  const int64_t packs = ceil_div<int64_t>(C, kWarp * N);
  if (packs == 1)
    launch_warp_per_row<N, 1, kResidual>(to, in, weight, bias, rows, C, stream);
  else if (packs == 2)
    launch_warp_per_row<N, 2, kResidual>(to, in, weight, bias, rows, C, stream);
  else if (packs == 3)
    launch_warp_per_row<N, 3, kResidual>(to, in, weight, bias, rows, C, stream);
  else if (packs == 4)
    launch_warp_per_row<N, 4, kResidual>(to, in, weight, bias, rows, C, stream);
  else
    launch_warp_per_row<N, kMostHeldPacks, kResidual>(to, in, weight, bias, rows, C, stream);
}

template <int N, bool kResidual, class S, class R>
void launch_forward(LayernormForward variant, const Normed<S>& to, const Rows<S, R>& in, const S* weight, const S* bias, int64_t rows,
                    int64_t C, cudaStream_t stream) {
  if (const auto why = why_not<S>(variant, C, N > 1)) throw stepscope::InputError("layernorm_forward: " + *why);
  switch (variant) {
    case LayernormForward::block_per_row:
      block_per_row_forward_kernel<S, N, kResidual, R>
          <<<grid_blocks(rows), row_threads(ceil_div<int64_t>(C, N)), 0, stream>>>(to.out, to.mean, to.rstd, in, weight, bias, C);
      break;
    case LayernormForward::warp_per_row:
      if constexpr (kHoldsRow<S>)
        launch_held_rows<N, kResidual>(to, in, weight, bias, rows, C, stream);
      else
        launch_warp_per_row<N, 0, kResidual>(to, in, weight, bias, rows, C, stream);
      break;
  }
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace

template <class S>
std::optional<std::string> why_not(LayernormForward variant, int64_t C, bool packs) {
  switch (variant) {
    case LayernormForward::block_per_row:
      return std::nullopt;
    case LayernormForward::warp_per_row:
      break;
  }
  const int64_t most = kMostHeldPacks * kWarp * (packs ? kPack<S> : 1);
  if (!kHoldsRow<S> || C <= most) return std::nullopt;
  return "it holds rows of up to " + std::to_string(most) + " channels of this alignment, the model has " + std::to_string(C) +
         "; use layernorm_forward=block_per_row";
}

template <class S, class R>
void layernorm_forward(LayernormForward variant, S* out, float* mean, float* rstd, const R* inp, std::type_identity_t<S>* kept,
                       const S* weight, const S* bias, int64_t rows, int64_t C, cudaStream_t stream,
                       const std::type_identity_t<S>* inp_up) {
  const Rows<S, R> in{inp, nullptr, nullptr, kept, inp_up};
  const Normed<S> to{out, mean, rstd};
  if (can_pack<S>(C, out, inp, weight, bias, kept, inp_up))
    launch_forward<kPack<S>, false>(variant, to, in, weight, bias, rows, C, stream);
  else
    launch_forward<1, false>(variant, to, in, weight, bias, rows, C, stream);
}

template <class S, class R>
void residual_layernorm_forward(LayernormForward variant, R* sum, std::type_identity_t<S>* kept, S* out, float* mean, float* rstd,
                                const R* a, const S* branch, const S* weight, const S* bias, int64_t rows, int64_t C, cudaStream_t stream,
                                const std::type_identity_t<S>* a_up) {
  const Rows<S, R> in{a, branch, sum, kept, a_up};
  const Normed<S> to{out, mean, rstd};
  if (can_pack<S>(C, sum, out, a, branch, weight, bias, kept, a_up))
    launch_forward<kPack<S>, true>(variant, to, in, weight, bias, rows, C, stream);
  else
    launch_forward<1, true>(variant, to, in, weight, bias, rows, C, stream);
}

template std::optional<std::string> why_not<float>(LayernormForward, int64_t, bool);
template std::optional<std::string> why_not<bf16>(LayernormForward, int64_t, bool);
#define STEPSCOPE_INSTANTIATE(S, R)                                                                                               \
  template void layernorm_forward<S, R>(LayernormForward, S*, float*, float*, const R*, S*, const S*, const S*, int64_t, int64_t, \
                                        cudaStream_t, const S*);
STEPSCOPE_INSTANTIATE(float, float)
STEPSCOPE_FOR_EACH_MIXED_STREAM(STEPSCOPE_INSTANTIATE)
#undef STEPSCOPE_INSTANTIATE
#define STEPSCOPE_INSTANTIATE(S, R)                                                                                                    \
  template void residual_layernorm_forward<S, R>(LayernormForward, R*, S*, S*, float*, float*, const R*, const S*, const S*, const S*, \
                                                 int64_t, int64_t, cudaStream_t, const S*);
STEPSCOPE_FOR_EACH_MIXED_STREAM(STEPSCOPE_INSTANTIATE)
#undef STEPSCOPE_INSTANTIATE

}  // namespace gpt2::ops
