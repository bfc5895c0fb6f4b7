// AdamW kernels. Settings are read from the device; bias corrections were computed in double on the host.
#include "gpt2/ops/adamw.cuh"

#include <type_traits>

#include "gpt2/ops/adamw_update.cuh"

namespace gpt2::ops {
namespace {

constexpr int kThreads = kUpdateThreads;

// One pack: weights, masters, moments of [first, first + N).
template <int N, bool kStochastic, class S, class Moments>
__device__ __forceinline__ void update_pack(S* weights, float* masters, const Moments& moments, const Pack<N>& gg, int64_t first,
                                            const StepScalars& k, float decay, float clip_scale) {
  Pack<N> pp = load<N>(masters + first);
  update(moments, pp, gg, first, first, k, decay, clip_scale);
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

// N values per thread.
template <int N>
__global__ void __launch_bounds__(kThreads)
    join_values_kernel(float* __restrict__ out, const bf16* __restrict__ up, const LowByte* __restrict__ low, int64_t n) {
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N;
  if (first < n) store(out + first, load_value<N>(low, up, first));
}
// One value per thread.
__global__ void __launch_bounds__(kThreads)
    split_values_kernel(bf16* __restrict__ up, LowByte* __restrict__ low, const float* __restrict__ in, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i < n) store_value(low, up, i, Pack<1>{{in[i]}});
}

__device__ __forceinline__ float widened(bf16 m) { return __bfloat162float(m); }
__device__ __forceinline__ float widened(uint16_t v) { return value_of_short_v(static_cast<uint32_t>(v) << 16); }
__device__ __forceinline__ void shortened(bf16& m, float x) {
  m = __ushort_as_bfloat16(static_cast<uint16_t>(short_m_bits(x, kShortToNearest) >> 16));
}
__device__ __forceinline__ void shortened(uint16_t& v, float x) { v = static_cast<uint16_t>(short_v_bits(x, kShortToNearest) >> 16); }

// One value per thread, in these two.
template <class Short>
__global__ void __launch_bounds__(kThreads) widen_moment_kernel(float* __restrict__ out, const Short* __restrict__ moment, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i < n) out[i] = widened(moment[i]);
}
template <class Short>
__global__ void __launch_bounds__(kThreads) shorten_moment_kernel(Short* __restrict__ moment, const float* __restrict__ in, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i < n) shortened(moment[i], in[i]);
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
  up += first;
  low += first;
  if (count % kEight == 0 && aligned_16(out, up) && reinterpret_cast<uintptr_t>(low) % kEight == 0)
    join_values_kernel<kEight><<<blocks(count, kEight), kThreads, 0, stream>>>(out, up, low, count);
  else
    join_values_kernel<1><<<blocks(count, 1), kThreads, 0, stream>>>(out, up, low, count);
  STEPSCOPE_CHECK_LAUNCH();
}

void split_values(bf16* up, LowByte* low, const float* in, int64_t first, int64_t count, cudaStream_t stream) {
  split_values_kernel<<<blocks(count, 1), kThreads, 0, stream>>>(up + first, low + first, in, count);
  STEPSCOPE_CHECK_LAUNCH();
}

template <class Short>
void widen_moment(float* out, const Short* moment, int64_t first, int64_t count, cudaStream_t stream) {
  widen_moment_kernel<<<blocks(count, 1), kThreads, 0, stream>>>(out, moment + first, count);
  STEPSCOPE_CHECK_LAUNCH();
}

template <class Short>
void shorten_moment(Short* moment, const float* in, int64_t first, int64_t count, cudaStream_t stream) {
  shorten_moment_kernel<<<blocks(count, 1), kThreads, 0, stream>>>(moment + first, in, count);
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

#define STEPSCOPE_INSTANCE(Moments, Gradients)                                                                                          \
  template void adamw(Rounding, bf16*, float*, Moments const&, Gradients const&, const TensorLayout&, const StepScalars*, const float*, \
                      cudaStream_t);
STEPSCOPE_FOR_EACH_UPDATE(STEPSCOPE_INSTANCE)
#undef STEPSCOPE_INSTANCE

template void widen_moment(float*, const bf16*, int64_t, int64_t, cudaStream_t);
template void widen_moment(float*, const uint16_t*, int64_t, int64_t, cudaStream_t);
template void shorten_moment(bf16*, const float*, int64_t, int64_t, cudaStream_t);
template void shorten_moment(uint16_t*, const float*, int64_t, int64_t, cudaStream_t);

template void adamw(AdamWKernel, Rounding, float*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);
template void adamw(AdamWKernel, Rounding, bf16*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);

}  // namespace gpt2::ops
