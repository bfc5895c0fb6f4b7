// AdamW kernels. Settings are read from the device; bias corrections were computed in double on the host.
#include "gpt2/ops/adamw.cuh"

#include <type_traits>

namespace gpt2::ops {
namespace {

constexpr int kThreads = 256;

// Where each tensor ends in the flat vector, and whether it decays (bit of its row).
struct DecayTable {
  int64_t end[kTensorCount];
  unsigned decayed;
};

// Sixteen random bits for element i: the finalizer of MurmurHash3 (Appleby) over seed and index.
__device__ __forceinline__ uint32_t random_bits(uint32_t seed, int64_t i) {
  uint32_t x = static_cast<uint32_t>(i) ^ (static_cast<uint32_t>(i >> 32) * 0x9e3779b9u) ^ (seed * 0x85ebca6bu + 0x7f4a7c15u);
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  x ^= x >> 16;
  return x & 0xffffu;
}

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

// Products are fused into sums by name: left to itself, the compiler fused the decay's product in some elements of a pack and not in
// others, so that an update depended on where its element lay.
__device__ __forceinline__ void update(float& p, float g, float& m, float& v, const StepScalars& k, float decay) {
  m = fmaf(k.beta1, m, k.one_minus_beta1 * g);
  v = fmaf(k.beta2, v, k.one_minus_beta2 * g * g);
  const float direction = (m / k.correction1) / (sqrtf(v / k.correction2) + k.eps);
  p = fmaf(-k.learning_rate, fmaf(decay, p, direction), p);
}

// One pack: weights, masters, m, v at [first, first + N).
template <int N, bool kStochastic, class S>
__device__ __forceinline__ void update_pack(S* weights, float* masters, float* m, float* v, const float* g, int64_t first,
                                            const StepScalars& k, float decay, float clip_scale) {
  Pack<N> pp = load<N>(masters + first);
  Pack<N> mm = load<N>(m + first);
  Pack<N> vv = load<N>(v + first);
  const Pack<N> gg = load<N>(g + first);
#pragma unroll
  for (int i = 0; i < N; ++i) update(pp.v[i], gg.v[i] * clip_scale, mm.v[i], vv.v[i], k, decay);
  store(masters + first, pp);
  store(m + first, mm);
  store(v + first, vv);
  if constexpr (!std::is_same_v<S, float>) store_weights<N, kStochastic>(weights + first, pp, k.rounding_seed + 1, first);
}

// One pack per thread over all parameters; packs are used only where no pack straddles two tensors.
template <int N, bool kStochastic, class S>
__global__ void __launch_bounds__(kThreads)
    all_tensors_kernel(S* __restrict__ weights, float* __restrict__ masters, float* __restrict__ m, float* __restrict__ v,
                       const float* __restrict__ g, int64_t n, const StepScalars* __restrict__ scalars,
                       const __grid_constant__ DecayTable table, const float* __restrict__ clip_scale) {
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N;
  if (first >= n) return;
  const StepScalars k = *scalars;
  int row = 0;
#pragma unroll
  for (int t = 0; t < kTensorCount - 1; ++t) row += first >= table.end[t] ? 1 : 0;
  const float decay = (table.decayed >> row & 1u) != 0 ? k.weight_decay : 0.0f;
  update_pack<N, kStochastic>(weights, masters, m, v, g, first, k, decay, *clip_scale);
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
  update_pack<N, kStochastic>(weights, masters, m, v, g, offset + first, k, decay, *clip_scale);
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

// ---------------------------------------------------------------------------------------------------------------------

unsigned blocks(int64_t n, int pack) { return grid_blocks(ceil_div<int64_t>(n, static_cast<int64_t>(kThreads) * pack)); }

template <class S>
struct Vectors {
  S* weights;
  float *masters, *m, *v;
  const float* gradients;
};

template <int N, bool kStochastic, class S>
void launch_all_tensors(const Vectors<S>& s, const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale,
                        cudaStream_t stream) {
  DecayTable table{};
  for (const TensorRow& row : kTensorTable) {
    const auto i = static_cast<size_t>(row.id);
    table.end[i] = layout.span[i].offset + layout.span[i].size;
    if (row.decayed) table.decayed |= 1u << i;
  }
  all_tensors_kernel<N, kStochastic><<<blocks(layout.total, N), kThreads, 0, stream>>>(s.weights, s.masters, s.m, s.v, s.gradients,
                                                                                       layout.total, scalars, table, clip_scale);
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
      launch_all_tensors<N, kStochastic>(s, layout, scalars, clip_scale, stream);
      break;
    case AdamWKernel::per_tensor:
      launch_per_tensor<N, kStochastic>(s, layout, scalars, clip_scale, stream);
      break;
  }
}

// Whether every tensor begins and ends at a multiple of a pack.
template <class S>
bool tensors_pack(const TensorLayout& layout) {
  for (const TensorSpan& span : layout.span)
    if (span.offset % kPack<S> != 0 || span.size % kPack<S> != 0) return false;
  return true;
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

template void adamw(AdamWKernel, Rounding, float*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);
template void adamw(AdamWKernel, Rounding, bf16*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);

}  // namespace gpt2::ops
