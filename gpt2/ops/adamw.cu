// AdamW kernels. Settings are read from the device; bias corrections were computed in double on the host.
#include "gpt2/ops/adamw.cuh"

#include <type_traits>

#include "gpt2/ops/split_master.cuh"

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
__device__ __forceinline__ void update_pack(S* weights, float* masters, float* m, float* v, const float* g, int64_t first,
                                            const StepScalars& k, float decay, float clip_scale) {
  Pack<N> pp = load<N>(masters + first);
  Pack<N> mm = load<N>(m + first);
  Pack<N> vv = load<N>(v + first);
  const Pack<N> gg = load<N>(g + first);
  update(pp, gg, mm, vv, k, decay, clip_scale);
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
  cuda::wait_for_kernels_before();
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

// ---- split masters: a thread has eight elements, whose bits share a byte --------------------------------------------

constexpr int kEight = 8;

struct Eight {
  SplitMaster of[kEight];
};

__device__ __forceinline__ Eight load_eight(const SplitMasters& s, int64_t first) {
  const uint4 weight = *reinterpret_cast<const uint4*>(s.weights + first);
  const uint4 low = *reinterpret_cast<const uint4*>(s.low + first);
  const uint32_t up = s.up[first / kEight];
  const uint32_t weights[4] = {weight.x, weight.y, weight.z, weight.w}, lows[4] = {low.x, low.y, low.z, low.w};
  Eight e;
#pragma unroll
  for (int i = 0; i < kEight; ++i)
    e.of[i] = {static_cast<uint16_t>(weights[i / 2] >> (i % 2 * 16)), static_cast<uint16_t>(lows[i / 2] >> (i % 2 * 16)),
               (up >> i & 1u) != 0};
  return e;
}

__device__ __forceinline__ void store_eight(const SplitMasters& s, int64_t first, const Eight& e) {
  uint32_t weights[4], lows[4], up = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    weights[i] = e.of[2 * i].weight | static_cast<uint32_t>(e.of[2 * i + 1].weight) << 16;
    lows[i] = e.of[2 * i].low | static_cast<uint32_t>(e.of[2 * i + 1].low) << 16;
  }
#pragma unroll
  for (int i = 0; i < kEight; ++i) up |= static_cast<uint32_t>(e.of[i].up ? 1 : 0) << i;
  *reinterpret_cast<uint4*>(s.weights + first) = make_uint4(weights[0], weights[1], weights[2], weights[3]);
  *reinterpret_cast<uint4*>(s.low + first) = make_uint4(lows[0], lows[1], lows[2], lows[3]);
  s.up[first / kEight] = static_cast<uint8_t>(up);
}

// One by one, for the elements that are left or no multiple of a pack.
__device__ __forceinline__ SplitMaster load_one(const SplitMasters& s, int64_t i, uint32_t up) {
  return {__bfloat16_as_ushort(s.weights[i]), s.low[i], (up >> (i % kEight) & 1u) != 0};
}
__device__ __forceinline__ void store_one(const SplitMasters& s, int64_t i, const SplitMaster& x, uint32_t& up) {
  s.weights[i] = __ushort_as_bfloat16(x.weight);
  s.low[i] = x.low;
  up |= static_cast<uint32_t>(x.up ? 1 : 0) << (i % kEight);
}

template <bool kStochastic>
__device__ __forceinline__ SplitMaster split(float master, uint32_t seed, int64_t i) {
  if constexpr (kStochastic)
    return split_randomly(__float_as_uint(master), random_bits(seed, i));
  else
    return split_nearest(__float_as_uint(master));
}
__device__ __forceinline__ float joined(const SplitMaster& s) { return __uint_as_float(join(s)); }

__device__ __forceinline__ float decay_at(int64_t i, const DecayTable& table, const StepScalars& k) {
  int row = 0;
#pragma unroll
  for (int t = 0; t < kTensorCount - 1; ++t) row += i >= table.end[t] ? 1 : 0;
  return (table.decayed >> row & 1u) != 0 ? k.weight_decay : 0.0f;
}

// Eight elements per thread over all parameters. kPacks: they move in packs, and no pack straddles two tensors.
template <bool kPacks, bool kStochastic>
__global__ void __launch_bounds__(kThreads)
    split_masters_kernel(const SplitMasters s, float* __restrict__ m, float* __restrict__ v, const float* __restrict__ g, int64_t n,
                         const StepScalars* __restrict__ scalars, const __grid_constant__ DecayTable table,
                         const float* __restrict__ clip_scale) {
  cuda::wait_for_kernels_before();
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * kEight;
  if (first >= n) return;
  const StepScalars k = *scalars;
  const float scale = *clip_scale;
  const uint32_t seed = k.rounding_seed + 1;
  if constexpr (kPacks) {
    const float decay = decay_at(first, table, k);
    Eight e = load_eight(s, first);
    Pack<kEight> mm = load<kEight>(m + first);
    Pack<kEight> vv = load<kEight>(v + first);
    const Pack<kEight> gg = load<kEight>(g + first);
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      float p = joined(e.of[i]);
      if (scale != kLeftOut) update(p, gg.v[i] * scale, mm.v[i], vv.v[i], k, decay);
      e.of[i] = split<kStochastic>(p, seed, first + i);
    }
    store(m + first, mm);
    store(v + first, vv);
    store_eight(s, first, e);
  } else {
    const uint32_t up = s.up[first / kEight];
    uint32_t up_after = 0;
    for (int64_t i = first; i < n && i < first + kEight; ++i) {
      float p = joined(load_one(s, i, up));
      if (scale != kLeftOut) update(p, g[i] * scale, m[i], v[i], k, decay_at(i, table, k));
      store_one(s, i, split<kStochastic>(p, seed, i), up_after);
    }
    s.up[first / kEight] = static_cast<uint8_t>(up_after);
  }
}

// Eight elements per thread, of [first, first + count).
__global__ void __launch_bounds__(kThreads)
    join_masters_kernel(float* __restrict__ out, const SplitMasters s, int64_t first, int64_t count) {
  const int64_t begin = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * kEight;
  if (begin >= count) return;
  const uint32_t up = s.up[(first + begin) / kEight];
  for (int64_t i = begin; i < count && i < begin + kEight; ++i) out[i] = joined(load_one(s, first + i, up));
}

__global__ void __launch_bounds__(kThreads) split_kernel(const SplitMasters s, const float* __restrict__ in, int64_t first, int64_t count) {
  const int64_t begin = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * kEight;
  if (begin >= count) return;
  uint32_t up = 0;
  for (int64_t i = begin; i < count && i < begin + kEight; ++i) store_one(s, first + i, split<false>(in[i], 0, first + i), up);
  s.up[(first + begin) / kEight] = static_cast<uint8_t>(up);
}

template <bool kStochastic>
__global__ void __launch_bounds__(kThreads) round_split_kernel(const SplitMasters s, int64_t n, const StepScalars* __restrict__ scalars) {
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * kEight;
  if (first >= n) return;
  uint32_t seed = 0;
  if constexpr (kStochastic) seed = scalars->rounding_seed;
  const uint32_t up = s.up[first / kEight];
  uint32_t up_after = 0;
  for (int64_t i = first; i < n && i < first + kEight; ++i)
    store_one(s, i, split<kStochastic>(joined(load_one(s, i, up)), seed, i), up_after);
  s.up[first / kEight] = static_cast<uint8_t>(up_after);
}

// ---------------------------------------------------------------------------------------------------------------------

unsigned blocks(int64_t n, int pack) { return grid_blocks(ceil_div<int64_t>(n, static_cast<int64_t>(kThreads) * pack)); }

template <class S>
struct Vectors {
  S* weights;
  float *masters, *m, *v;
  const float* gradients;
};

DecayTable decay_table(const TensorLayout& layout) {
  DecayTable table{};
  for (const TensorRow& row : kTensorTable) {
    const auto i = static_cast<size_t>(row.id);
    table.end[i] = layout.span[i].offset + layout.span[i].size;
    if (row.decayed) table.decayed |= 1u << i;
  }
  return table;
}

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

void adamw_split(Rounding rounding, const SplitMasters& s, float* m, float* v, const float* gradients, const TensorLayout& layout,
                 const StepScalars* scalars, const float* clip_scale, cudaStream_t stream) {
  const int64_t n = layout.total;
  const auto launch = [&]<bool kPacks, bool kStochastic>() {
    split_masters_kernel<kPacks, kStochastic>
        <<<blocks(n, kEight), kThreads, 0, stream>>>(s, m, v, gradients, n, scalars, decay_table(layout), clip_scale);
    STEPSCOPE_CHECK_LAUNCH();
  };
  const bool packs = aligned_16(s.weights, s.low, m, v, gradients) && tensors_pack<bf16>(layout);
  const bool stochastic = rounding == Rounding::stochastic;
  if (packs && stochastic) launch.operator()<true, true>();
  if (packs && !stochastic) launch.operator()<true, false>();
  if (!packs && stochastic) launch.operator()<false, true>();
  if (!packs && !stochastic) launch.operator()<false, false>();
}

void join_masters(float* out, const SplitMasters& s, int64_t first, int64_t count, cudaStream_t stream) {
  join_masters_kernel<<<blocks(count, kEight), kThreads, 0, stream>>>(out, s, first, count);
  STEPSCOPE_CHECK_LAUNCH();
}

void split_masters(const SplitMasters& s, const float* in, int64_t first, int64_t count, cudaStream_t stream) {
  split_kernel<<<blocks(count, kEight), kThreads, 0, stream>>>(s, in, first, count);
  STEPSCOPE_CHECK_LAUNCH();
}

void round_split_masters(Rounding rounding, const SplitMasters& s, int64_t n, const StepScalars* scalars, cudaStream_t stream) {
  switch (rounding) {
    case Rounding::nearest:
      round_split_kernel<false><<<blocks(n, kEight), kThreads, 0, stream>>>(s, n, scalars);
      break;
    case Rounding::stochastic:
      round_split_kernel<true><<<blocks(n, kEight), kThreads, 0, stream>>>(s, n, scalars);
      break;
  }
  STEPSCOPE_CHECK_LAUNCH();
}

template void adamw(AdamWKernel, Rounding, float*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);
template void adamw(AdamWKernel, Rounding, bf16*, float*, float*, float*, const float*, const TensorLayout&, const StepScalars*,
                    const float*, cudaStream_t);

}  // namespace gpt2::ops
