// AdamW kernels. Settings are read from the device; bias corrections were computed in double on the host.
#include "gpt2/ops/adamw.cuh"

#include <type_traits>

#include "gpt2/ops/adamw_update.cuh"

namespace gpt2::ops {
namespace {

constexpr int kThreads = kUpdateThreads;

// Adding random bits below the bf16 digits and cutting them off rounds up with the probability of the part that is cut off. Infinities
// and NaN take the other way, or the carry would make other numbers of them.
__device__ __forceinline__ bf16 round_stochastically(float x, uint32_t random) {
  if (!isfinite(x)) return __float2bfloat16_rn(x);
  const uint32_t bits = (__float_as_uint(x) + random) & 0xffff0000u;
  return __float2bfloat16_rn(__uint_as_float(bits));
}

template <bool kStochastic>
__device__ __forceinline__ bf16 round_weight(float x, uint32_t seed, int64_t i) {
  if constexpr (kStochastic)
    return round_stochastically(x, random_bits(seed, i));
  else
    return __float2bfloat16_rn(x);
}

template <int N, bool kStochastic>
__device__ __forceinline__ void store_weights(bf16* out, const Pack<N>& x, uint32_t seed, int64_t first) {
  Pack<N> r;
#pragma unroll
  for (int i = 0; i < N; ++i) r.v[i] = __bfloat162float(round_weight<kStochastic>(x.v[i], seed, first + i));
  store(out, r);
}

// Packs of parameters, gradients and moments. clip_scale: StepStats::clip_scale.
template <int N>
__device__ __forceinline__ void update(Pack<N>& p, const Pack<N>& g, Pack<N>& m, Pack<N>& v, const StepScalars& k, float decay,
                                       float clip_scale) {
  if (clip_scale == kLeftOut) return;
#pragma unroll
  for (int i = 0; i < N; ++i) update(p.v[i], g.v[i] * clip_scale, m.v[i], v.v[i], k, decay);
}

// One pack: weights, masters, m, v at [first, first + N).
template <int N, bool kStochastic, class S>
__device__ __forceinline__ void update_pack(S* weights, float* masters, float* m, float* v, const Pack<N>& gg, int64_t first,
                                            const StepScalars& k, float decay, float clip_scale) {
  Pack<N> pp = load<N>(masters + first);
  Pack<N> mm = load<N>(m + first);
  Pack<N> vv = load<N>(v + first);
  update(pp, gg, mm, vv, k, decay, clip_scale);
  store(masters + first, pp);
  store(m + first, mm);
  store(v + first, vv);
  if constexpr (!std::is_same_v<S, float>) store_weights<N, kStochastic>(weights + first, pp, k.rounding_seed + 1, first);
}

// One pack per thread over all parameters; packs are used only where no pack straddles two tensors.
template <int N, bool kStochastic, class S, class Table>
__global__ void __launch_bounds__(kThreads)
    all_tensors_kernel(S* __restrict__ weights, float* __restrict__ masters, float* __restrict__ m, float* __restrict__ v,
                       const float* __restrict__ g, int64_t n, const StepScalars* __restrict__ scalars, const __grid_constant__ Table table,
                       const float* __restrict__ clip_scale) {
  cuda::wait_for_kernels_before();
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N;
  if (first >= n) return;
  const StepScalars k = *scalars;
  const int row = row_of(first, table);
  const float decay = (table.decayed >> row & 1u) != 0 ? k.weight_decay : 0.0f;
  update_pack<N, kStochastic>(weights, masters, m, v, gradients_at<N>(g, first, row, table), first, k, decay, *clip_scale);
}

// One pack per thread over one tensor, which begins at `offset` of the flat vectors.
template <int N, bool kStochastic, class S>
__global__ void __launch_bounds__(kThreads)
    one_tensor_kernel(S* __restrict__ weights, float* __restrict__ masters, float* __restrict__ m, float* __restrict__ v,
                      const float* __restrict__ g, int64_t offset, int64_t n, const StepScalars* __restrict__ scalars, bool decayed,
                      const float* __restrict__ clip_scale) {
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N;
  if (first >= n) return;
  const StepScalars k = *scalars;
  const float decay = decayed ? k.weight_decay : 0.0f;
  update_pack<N, kStochastic>(weights, masters, m, v, load<N>(g + offset + first), offset + first, k, decay, *clip_scale);
}

// One pack per thread.
template <int N, bool kStochastic>
__global__ void __launch_bounds__(kThreads) round_parameters_kernel(bf16* __restrict__ weights, const float* __restrict__ masters,
                                                                    int64_t n, const StepScalars* __restrict__ scalars) {
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N;
  if (first >= n) return;
  uint32_t seed = 0;
  if constexpr (kStochastic) seed = scalars->rounding_seed;
  store_weights<N, kStochastic>(weights + first, load<N>(masters + first), seed, first);
}

// One block of threads per block of the arena. A pack that runs over the end of a tensor is done one by one.
template <int N, bool kStochastic, class S>
__global__ void __launch_bounds__(kThreads)
    blocks_kernel(S* __restrict__ weights, float* __restrict__ masters, float* __restrict__ m, float* __restrict__ v,
                  const float* __restrict__ g, const distributed::ArenaBlock* __restrict__ blocks, const StepScalars* __restrict__ scalars,
                  const float* __restrict__ clip_scale) {
  const distributed::ArenaBlock block = blocks[blockIdx.x];
  const StepScalars k = *scalars;
  const float decay = block.decayed != 0 ? k.weight_decay : 0.0f;
  const int64_t held = blockIdx.x * distributed::kBlock;
  const auto update_some = [&]<int kN>(std::integral_constant<int, kN>, int e) {
    float* p = masters + (std::is_same_v<S, float> ? block.arena : held) + e;
    Pack<kN> pp = load<kN>(p);
    Pack<kN> mm = load<kN>(m + held + e);
    Pack<kN> vv = load<kN>(v + held + e);
    const Pack<kN> gg = load<kN>(g + block.arena + e);
    update(pp, gg, mm, vv, k, decay, *clip_scale);
    store(p, pp);
    store(m + held + e, mm);
    store(v + held + e, vv);
    if constexpr (!std::is_same_v<S, float>)
      store_weights<kN, kStochastic>(weights + block.arena + e, pp, k.rounding_seed + 1, block.file + e);
  };
  for (int first = static_cast<int>(threadIdx.x) * N; first < block.valid; first += kThreads * N) {
    if (first + N <= block.valid)
      update_some(std::integral_constant<int, N>{}, first);
    else
      for (int e = first; e < block.valid; ++e) update_some(std::integral_constant<int, 1>{}, e);
  }
}

// One block of threads per block of the arena.
template <bool kStochastic>
__global__ void __launch_bounds__(kThreads)
    round_blocks_kernel(bf16* __restrict__ weights, const float* __restrict__ masters, const distributed::ArenaBlock* __restrict__ blocks,
                        const StepScalars* __restrict__ scalars) {
  const distributed::ArenaBlock block = blocks[blockIdx.x];
  uint32_t seed = 0;
  if constexpr (kStochastic) seed = scalars->rounding_seed;
  for (int e = static_cast<int>(threadIdx.x); e < block.valid; e += kThreads)
    store_weights<1, kStochastic>(weights + block.arena + e, load<1>(masters + blockIdx.x * distributed::kBlock + e), seed, block.file + e);
}

// ---------------------------------------------------------------------------------------------------------------------

template <class S>
struct Vectors {
  S* weights;
  float *masters, *m, *v;
  const float* gradients;
};

template <int N, bool kStochastic, class S, class Table>
void launch_all_tensors(const Vectors<S>& s, int64_t n, const Table& table, const StepScalars* scalars, const float* clip_scale,
                        cudaStream_t stream) {
  all_tensors_kernel<N, kStochastic>
      <<<blocks(n, N), kThreads, 0, stream>>>(s.weights, s.masters, s.m, s.v, s.gradients, n, scalars, table, clip_scale);
  STEPSCOPE_CHECK_LAUNCH();
}

template <int N, bool kStochastic, class S>
void launch_per_tensor(const Vectors<S>& s, const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale,
                       cudaStream_t stream) {
  for (const TensorRow& row : kTensorTable) {
    const TensorSpan& span = layout[row.id];
    one_tensor_kernel<N, kStochastic><<<blocks(span.size, N), kThreads, 0, stream>>>(
        s.weights, s.masters, s.m, s.v, s.gradients, span.offset, span.size, scalars, row.decayed, clip_scale);
    STEPSCOPE_CHECK_LAUNCH();
  }
}

template <int N, bool kStochastic, class S>
void launch(AdamWKernel variant, const Vectors<S>& s, const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale,
            cudaStream_t stream) {
  switch (variant) {
    case AdamWKernel::all_tensors:
      launch_all_tensors<N, kStochastic>(s, layout.total, decay_table(layout), scalars, clip_scale, stream);
      break;
    case AdamWKernel::per_tensor:
      launch_per_tensor<N, kStochastic>(s, layout, scalars, clip_scale, stream);
      break;
  }
}

}  // namespace

template <class S>
void adamw(AdamWKernel variant, Rounding rounding, S* weights, float* masters, float* m, float* v, const float* gradients,
           const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale, cudaStream_t stream) {
  const Vectors<S> s{weights, masters, m, v, gradients};
  const bool packs = aligned_16(weights, masters, m, v, gradients) && tensors_pack<S>(layout);
  if constexpr (!std::is_same_v<S, float>) {
    if (rounding == Rounding::stochastic) {
      if (packs)
        launch<kPack<S>, true>(variant, s, layout, scalars, clip_scale, stream);
      else
        launch<1, true>(variant, s, layout, scalars, clip_scale, stream);
      return;
    }
  }
  if (packs)
    launch<kPack<S>, false>(variant, s, layout, scalars, clip_scale, stream);
  else
    launch<1, false>(variant, s, layout, scalars, clip_scale, stream);
}

void adamw(Rounding rounding, bf16* weights, float* masters, float* m, float* v, const GradientArenas& gradients,
           const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale, cudaStream_t stream) {
  const Vectors<bf16> s{weights, masters, m, v, gradients.wide};
  const ArenaTable table = arena_table(layout, gradients);
  // Then every tensor of an arena begins at a multiple of a pack too.
  const bool packs = aligned_16(weights, masters, m, v, gradients.wide, gradients.narrow) && tensors_pack<bf16>(layout);
  by_packs_and_rounding(packs, rounding, [&]<int N, bool kStochastic>() {
    launch_all_tensors<N, kStochastic>(s, layout.total, table, scalars, clip_scale, stream);
  });
}

void round_parameters(Rounding rounding, bf16* weights, const float* masters, int64_t n, const StepScalars* scalars, cudaStream_t stream) {
  constexpr int kN = kPack<bf16>;
  const bool packs = can_pack<bf16>(n, weights, masters);
  const bool stochastic = rounding == Rounding::stochastic;
  if (packs && stochastic) round_parameters_kernel<kN, true><<<blocks(n, kN), kThreads, 0, stream>>>(weights, masters, n, scalars);
  if (packs && !stochastic) round_parameters_kernel<kN, false><<<blocks(n, kN), kThreads, 0, stream>>>(weights, masters, n, scalars);
  if (!packs && stochastic) round_parameters_kernel<1, true><<<blocks(n, 1), kThreads, 0, stream>>>(weights, masters, n, scalars);
  if (!packs && !stochastic) round_parameters_kernel<1, false><<<blocks(n, 1), kThreads, 0, stream>>>(weights, masters, n, scalars);
  STEPSCOPE_CHECK_LAUNCH();
}

template <class S>
void adamw_blocks(Rounding rounding, S* weights, float* masters, float* m, float* v, const float* gradients,
                  const distributed::ArenaBlock* blocks, int64_t count, const StepScalars* scalars, const float* clip_scale,
                  cudaStream_t stream) {
  if (count == 0) return;
  const unsigned grid = grid_blocks(count);
  if constexpr (!std::is_same_v<S, float>) {
    if (rounding == Rounding::stochastic) {
      blocks_kernel<kPack<S>, true><<<grid, kThreads, 0, stream>>>(weights, masters, m, v, gradients, blocks, scalars, clip_scale);
      STEPSCOPE_CHECK_LAUNCH();
      return;
    }
  }
  blocks_kernel<kPack<S>, false><<<grid, kThreads, 0, stream>>>(weights, masters, m, v, gradients, blocks, scalars, clip_scale);
  STEPSCOPE_CHECK_LAUNCH();
}

void round_blocks(Rounding rounding, bf16* weights, const float* masters, const distributed::ArenaBlock* blocks, int64_t count,
                  const StepScalars* scalars, cudaStream_t stream) {
  if (count == 0) return;
  const unsigned grid = grid_blocks(count);
  if (rounding == Rounding::stochastic)
    round_blocks_kernel<true><<<grid, kThreads, 0, stream>>>(weights, masters, blocks, scalars);
  else
    round_blocks_kernel<false><<<grid, kThreads, 0, stream>>>(weights, masters, blocks, scalars);
  STEPSCOPE_CHECK_LAUNCH();
}

template void adamw_blocks(Rounding, float*, float*, float*, float*, const float*, const distributed::ArenaBlock*, int64_t,
                           const StepScalars*, const float*, cudaStream_t);
template void adamw_blocks(Rounding, bf16*, float*, float*, float*, const float*, const distributed::ArenaBlock*, int64_t,
                           const StepScalars*, const float*, cudaStream_t);

template void adamw(AdamWKernel, Rounding, float*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);
template void adamw(AdamWKernel, Rounding, bf16*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);

}  // namespace gpt2::ops
