// What every AdamW kernel is made of: the update of one element and of a pack, the two forms of masters, and where a tensor ends, whether
// it decays and where its gradient lies. Private to adamw*.cu.
#pragma once
#include "gpt2/ops/adamw_split.cuh"
#include "gpt2/ops/random_bits.cuh"
#include "gpt2/ops/short_moment.cuh"
#include "gpt2/ops/split_master.cuh"

namespace gpt2::ops {

inline constexpr int kUpdateThreads = 256;
inline constexpr int kEight = kPack<bf16>;

// Where each tensor ends in the flat vector, and whether it decays (bit of its row).
struct DecayTable {
  int64_t end[kTensorCount];
  unsigned decayed;
};
// The same, and where gradients lie: that of element i of the flat vectors is element i + shift of the arena of i's tensor.
struct ArenaTable : DecayTable {
  int64_t shift[kTensorCount];
  unsigned narrow;  // bit of its row: in `narrow_arena`
  const bf16* narrow_arena;
};

inline DecayTable decay_table(const TensorLayout& layout) {
  DecayTable table{};
  for (const TensorRow& row : kTensorTable) {
    const auto i = static_cast<size_t>(row.id);
    table.end[i] = layout.span[i].offset + layout.span[i].size;
    if (row.decayed) table.decayed |= 1u << i;
  }
  return table;
}

inline ArenaTable arena_table(const TensorLayout& layout, const GradientArenas& g) {
  ArenaTable table{decay_table(layout), {}, g.layout.narrow, g.narrow};
  for (int i = 0; i < kTensorCount; ++i)
    table.shift[i] = g.layout.offset[static_cast<size_t>(i)] - layout.span[static_cast<size_t>(i)].offset;
  return table;
}

// Whether every tensor begins and ends at a multiple of a pack.
template <class S>
bool tensors_pack(const TensorLayout& layout) {
  for (const TensorSpan& span : layout.span)
    if (span.offset % kPack<S> != 0 || span.size % kPack<S> != 0) return false;
  return true;
}

inline bool moments_pack(const WholeMoments& s) { return aligned_16(s.m, s.v); }
inline bool moments_pack(const SplitMoments& s) { return aligned_16(s.m_up, s.v_up, s.m_low, s.v_low); }
inline bool moments_pack(const ShortMoments& s) { return aligned_16(s.m, s.v); }
inline bool gradients_pack(const float* g) { return aligned_16(g); }
inline bool gradients_pack(const GradientArenas& g) { return aligned_16(g.wide, g.narrow); }

// How a kernel finds gradients: in one vector, or by the table in two.
inline DecayTable table_of(const TensorLayout& layout, const float*) { return decay_table(layout); }
inline ArenaTable table_of(const TensorLayout& layout, const GradientArenas& g) { return arena_table(layout, g); }
inline const float* wide_of(const float* g) { return g; }
inline const float* wide_of(const GradientArenas& g) { return g.wide; }

// instance(Moments, Gradients) for each form of both.
#define STEPSCOPE_FOR_EACH_UPDATE(instance)                                                                        \
  instance(WholeMoments, const float*) instance(WholeMoments, GradientArenas) instance(SplitMoments, const float*) \
      instance(SplitMoments, GradientArenas) instance(ShortMoments, const float*) instance(ShortMoments, GradientArenas)

inline unsigned blocks(int64_t n, int pack) { return grid_blocks(ceil_div<int64_t>(n, static_cast<int64_t>(kUpdateThreads) * pack)); }

// launch<values per thread, stochastic>().
template <class Launch>
void by_packs_and_rounding(bool packs, Rounding rounding, const Launch& launch) {
  const bool stochastic = rounding == Rounding::stochastic;
  if (packs && stochastic) launch.template operator()<kEight, true>();
  if (packs && !stochastic) launch.template operator()<kEight, false>();
  if (!packs && stochastic) launch.template operator()<1, true>();
  if (!packs && !stochastic) launch.template operator()<1, false>();
}

#ifdef __CUDACC__

// Products are fused into sums by name: left to itself, the compiler fused the decay's product in some elements of a pack and not in
// others, so that an update depended on where its element lay.
__device__ __forceinline__ void update_moments(float g, float& m, float& v, const StepScalars& k) {
  m = fmaf(k.beta1, m, k.one_minus_beta1 * g);
  v = fmaf(k.beta2, v, k.one_minus_beta2 * g * g);
}
__device__ __forceinline__ void update_parameter(float& p, float m, float v, const StepScalars& k, float decay) {
  const float direction = (m / k.correction1) / (sqrtf(v / k.correction2) + k.eps);
  p = fmaf(-k.learning_rate, fmaf(decay, p, direction), p);
}

// Moments of elements [first, first + N) of their vectors, and p by them. drawn: the place of the first in the order of the tensor table, by
// which moments are rounded at random. Both are multiples of N. clip_scale: StepStats::clip_scale; where the step is left out, everything
// stays what it is.
template <int N>
__device__ __forceinline__ void update(const WholeMoments& moments, Pack<N>& p, const Pack<N>& g, int64_t first, int64_t /*drawn*/,
                                       const StepScalars& k, float decay, float clip_scale) {
  Pack<N> m = load<N>(moments.m + first), v = load<N>(moments.v + first);
  if (clip_scale != kLeftOut) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      update_moments(g.v[i] * clip_scale, m.v[i], v.v[i], k);
      update_parameter(p.v[i], m.v[i], v.v[i], k, decay);
    }
  }
  store(moments.m + first, m);
  store(moments.v + first, v);
}
__device__ __forceinline__ void update(const SplitMoments& moments, Pack<1>& p, const Pack<1>& g, int64_t i, int64_t drawn,
                                       const StepScalars& k, float decay, float clip_scale) {
  if (clip_scale == kLeftOut) return;
  const MomentBytes random(k.rounding_seed, drawn >> 3);
  const auto at = static_cast<int>(drawn & 7);
  float m = load_value<1>(moments.m_low, moments.m_up, i).v[0], v = load_value<1>(moments.v_low, moments.v_up, i).v[0];
  update_moments(g.v[0] * clip_scale, m, v, k);
  const uint32_t m_split = split_bits_randomly(m, random.of_m(at));
  const uint32_t v_split = split_bits_randomly(v, random.of_v(at));
  update_parameter(p.v[0], value_of_split(m_split), value_of_split(v_split), k, decay);
  store_split(moments.m_low + i, moments.m_up + i, m_split);
  store_split(moments.v_low + i, moments.v_up + i, v_split);
}
// What was loaded is stored even where the step is left out: nothing then keeps the loads from being asked for at once with all others.
__device__ __forceinline__ void update(const SplitMoments& moments, Pack<8>& p, const Pack<8>& g, int64_t first, int64_t drawn,
                                       const StepScalars& k, float decay, float clip_scale) {
  SplitPack m_packed = load_split(moments.m_low + first, moments.m_up + first),
            v_packed = load_split(moments.v_low + first, moments.v_up + first);
  if (clip_scale != kLeftOut) {
    Pack<8> m = floats(m_packed), v = floats(v_packed);
    const MomentBytes random(k.rounding_seed, drawn >> 3);
    uint32_t m_split[8], v_split[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      update_moments(g.v[i] * clip_scale, m.v[i], v.v[i], k);
      m_split[i] = split_bits_randomly(m.v[i], random.of_m(i));
      v_split[i] = split_bits_randomly(v.v[i], random.of_v(i));
      update_parameter(p.v[i], value_of_split(m_split[i]), value_of_split(v_split[i]), k, decay);
    }
    m_packed = pack_split(m_split);
    v_packed = pack_split(v_split);
  }
  store_split(moments.m_low + first, moments.m_up + first, m_packed);
  store_split(moments.v_low + first, moments.v_up + first, v_packed);
}

__device__ __forceinline__ void update(const ShortMoments& moments, Pack<1>& p, const Pack<1>& g, int64_t i, int64_t drawn,
                                       const StepScalars& k, float decay, float clip_scale) {
  if (clip_scale == kLeftOut) return;
  const MomentHalfWords random(k.rounding_seed, drawn >> 3);
  const auto at = static_cast<int>(drawn & 7);
  float m = __bfloat162float(moments.m[i]), v = value_of_short_v(static_cast<uint32_t>(moments.v[i]) << 16);
  update_moments(g.v[0] * clip_scale, m, v, k);
  const uint32_t m_bits = short_m_bits(m, random.of_m(at)), v_bits = short_v_bits(v, random.of_v(at));
  update_parameter(p.v[0], value_of_short_m(m_bits), value_of_short_v(v_bits), k, decay);
  moments.m[i] = __ushort_as_bfloat16(static_cast<uint16_t>(m_bits >> 16));
  moments.v[i] = static_cast<uint16_t>(v_bits >> 16);
}
// Stores in any case, as that of SplitMoments.
__device__ __forceinline__ void update(const ShortMoments& moments, Pack<8>& p, const Pack<8>& g, int64_t first, int64_t drawn,
                                       const StepScalars& k, float decay, float clip_scale) {
  auto* const m_at = reinterpret_cast<uint4*>(moments.m + first);
  auto* const v_at = reinterpret_cast<uint4*>(moments.v + first);
  const uint4 m_loaded = *m_at, v_loaded = *v_at;
  uint32_t m_pairs[4] = {m_loaded.x, m_loaded.y, m_loaded.z, m_loaded.w}, v_pairs[4] = {v_loaded.x, v_loaded.y, v_loaded.z, v_loaded.w};
  if (clip_scale != kLeftOut) {
    const MomentHalfWords random(k.rounding_seed, drawn >> 3);
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      uint32_t m_bits[2], v_bits[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = 2 * pair + half;
        float m = value_of_short_m(half == 0 ? m_pairs[pair] << 16 : m_pairs[pair]),
              v = value_of_short_v(half == 0 ? v_pairs[pair] << 16 : v_pairs[pair]);
        update_moments(g.v[i] * clip_scale, m, v, k);
        m_bits[half] = short_m_bits(m, random.of_m(i));
        v_bits[half] = short_v_bits(v, random.of_v(i));
        update_parameter(p.v[i], value_of_short_m(m_bits[half]), value_of_short_v(v_bits[half]), k, decay);
      }
      m_pairs[pair] = pick_bytes(m_bits[0], m_bits[1], 0x7632);
      v_pairs[pair] = pick_bytes(v_bits[0], v_bits[1], 0x7632);
    }
  }
  *m_at = make_uint4(m_pairs[0], m_pairs[1], m_pairs[2], m_pairs[3]);
  *v_at = make_uint4(v_pairs[0], v_pairs[1], v_pairs[2], v_pairs[3]);
}

// ---- weights rounded from masters in fp32 -------------------------------------------------------------------------------------

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

// ---- masters that are split ---------------------------------------------------------------------------------------------------

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

// ---- where a tensor ends and its gradient lies --------------------------------------------------------------------------------

__device__ __forceinline__ int row_of(int64_t i, const DecayTable& table) {
  int row = 0;
#pragma unroll
  for (int t = 0; t < kTensorCount - 1; ++t) row += i >= table.end[t] ? 1 : 0;
  return row;
}
__device__ __forceinline__ float decay_of(int row, const DecayTable& table, const StepScalars& k) {
  return (table.decayed >> row & 1u) != 0 ? k.weight_decay : 0.0f;
}

// Gradients of elements [first, first + N), all of the tensor `row`.
template <int N>
__device__ __forceinline__ Pack<N> gradients_at(const float* g, int64_t first, int, const DecayTable&) {
  return load<N>(g + first);
}
template <int N>
__device__ __forceinline__ Pack<N> gradients_at(const float* g, int64_t first, int row, const ArenaTable& table) {
  const int64_t at = first + table.shift[row];
  return (table.narrow >> row & 1u) != 0 ? load<N>(table.narrow_arena + at) : load<N>(g + at);
}

#endif  // __CUDACC__

}  // namespace gpt2::ops
