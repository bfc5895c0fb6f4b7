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

// One pack: weights, masters, moments of [first, first + N).
template <int N, bool kStochastic, class S, class Moments>
__device__ __forceinline__ void update_pack(S* weights, float* masters, const Moments& moments, const Pack<N>& gg, int64_t first,
                                            const StepScalars& k, float decay, float clip_scale) {
  Pack<N> pp = load<N>(masters + first);
  update(moments, pp, gg, first, k, decay, clip_scale);
  store(masters + first, pp);
  if constexpr (!std::is_same_v<S, float>) store_weights<N, kStochastic>(weights + first, pp, k.rounding_seed + 1, first);
}

// One pack per thread over all parameters; packs are used only where no pack straddles two tensors.
template <int N, bool kStochastic, class S, class Moments, class Table>
__global__ void __launch_bounds__(kThreads)
    all_tensors_kernel(S* __restrict__ weights, float* __restrict__ masters, const Moments moments, const float* __restrict__ g, int64_t n,
                       const StepScalars* __restrict__ scalars, const __grid_constant__ Table table, const float* __restrict__ clip_scale) {
  cuda::wait_for_kernels_before();
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N;
  if (first >= n) return;
  const StepScalars k = *scalars;
  const int row = row_of(first, table);
  const float decay = (table.decayed >> row & 1u) != 0 ? k.weight_decay : 0.0f;
  update_pack<N, kStochastic>(weights, masters, moments, gradients_at<N>(g, first, row, table), first, k, decay, *clip_scale);
}

// One pack per thread over one tensor, which begins at `offset` of the flat vectors.
template <int N, bool kStochastic, class S>
__global__ void __launch_bounds__(kThreads)
    one_tensor_kernel(S* __restrict__ weights, float* __restrict__ masters, const WholeMoments moments, const float* __restrict__ g,
                      int64_t offset, int64_t n, const StepScalars* __restrict__ scalars, bool decayed,
                      const float* __restrict__ clip_scale) {
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N;
  if (first >= n) return;
  const StepScalars k = *scalars;
  const float decay = decayed ? k.weight_decay : 0.0f;
  update_pack<N, kStochastic>(weights, masters, moments, load<N>(g + offset + first), offset + first, k, decay, *clip_scale);
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
    const Pack<kN> gg = load<kN>(g + block.arena + e);
    update(WholeMoments{m, v}, pp, gg, held + e, k, decay, *clip_scale);
    store(p, pp);
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

// One value per thread.
__global__ void __launch_bounds__(kThreads)
    join_values_kernel(float* __restrict__ out, const bf16* __restrict__ up, const LowByte* __restrict__ low, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i < n) out[i] = load_value<1>(low, up, i).v[0];
}
__global__ void __launch_bounds__(kThreads)
    split_values_kernel(bf16* __restrict__ up, LowByte* __restrict__ low, const float* __restrict__ in, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i < n) store_value(low, up, i, Pack<1>{{in[i]}});
}

// ---------------------------------------------------------------------------------------------------------------------

template <class S, class Moments>
struct Vectors {
  S* weights;
  float* masters;
  Moments moments;
  const float* gradients;
};

template <int N, bool kStochastic, class S, class Moments, class Table>
void launch_all_tensors(const Vectors<S, Moments>& s, int64_t n, const Table& table, const StepScalars* scalars, const float* clip_scale,
                        cudaStream_t stream) {
  all_tensors_kernel<N, kStochastic>
      <<<blocks(n, N), kThreads, 0, stream>>>(s.weights, s.masters, s.moments, s.gradients, n, scalars, table, clip_scale);
  STEPSCOPE_CHECK_LAUNCH();
}

template <int N, bool kStochastic, class S>
void launch_per_tensor(const Vectors<S, WholeMoments>& s, const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale,
                       cudaStream_t stream) {
  for (const TensorRow& row : kTensorTable) {
    const TensorSpan& span = layout[row.id];
    one_tensor_kernel<N, kStochastic><<<blocks(span.size, N), kThreads, 0, stream>>>(
        s.weights, s.masters, s.moments, s.gradients, span.offset, span.size, scalars, row.decayed, clip_scale);
    STEPSCOPE_CHECK_LAUNCH();
  }
}

template <int N, bool kStochastic, class S>
void launch(AdamWKernel variant, const Vectors<S, WholeMoments>& s, const TensorLayout& layout, const StepScalars* scalars,
            const float* clip_scale, cudaStream_t stream) {
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
  const Vectors<S, WholeMoments> s{weights, masters, {m, v}, gradients};
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

template <class Moments, class Gradients>
void adamw(Rounding rounding, bf16* weights, float* masters, const Moments& moments, const Gradients& gradients, const TensorLayout& layout,
           const StepScalars* scalars, const float* clip_scale, cudaStream_t stream) {
  const Vectors<bf16, Moments> s{weights, masters, moments, wide_of(gradients)};
  const auto table = table_of(layout, gradients);
  // Then every tensor of an arena begins at a multiple of a pack too.
  const bool packs = aligned_16(weights, masters) && moments_pack(moments) && gradients_pack(gradients) && tensors_pack<bf16>(layout);
  by_packs_and_rounding(packs, rounding, [&]<int N, bool kStochastic>() {
    launch_all_tensors<N, kStochastic>(s, layout.total, table, scalars, clip_scale, stream);
  });
}

void join_values(float* out, const bf16* up, const LowByte* low, int64_t first, int64_t count, cudaStream_t stream) {
  join_values_kernel<<<blocks(count, 1), kThreads, 0, stream>>>(out, up + first, low + first, count);
  STEPSCOPE_CHECK_LAUNCH();
}

void split_values(bf16* up, LowByte* low, const float* in, int64_t first, int64_t count, cudaStream_t stream) {
  split_values_kernel<<<blocks(count, 1), kThreads, 0, stream>>>(up + first, low + first, in, count);
  STEPSCOPE_CHECK_LAUNCH();
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

#define STEPSCOPE_INSTANCE(Moments, Gradients)                                                                                          \
  template void adamw(Rounding, bf16*, float*, Moments const&, Gradients const&, const TensorLayout&, const StepScalars*, const float*, \
                      cudaStream_t);
STEPSCOPE_FOR_EACH_UPDATE(STEPSCOPE_INSTANCE)
#undef STEPSCOPE_INSTANCE

template void adamw(AdamWKernel, Rounding, float*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);
template void adamw(AdamWKernel, Rounding, bf16*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);

}  // namespace gpt2::ops
