// What every AdamW kernel is made of: the update of one element, the random bits of its rounding, and where a tensor ends, whether it decays
// and where its gradient lies. Private to adamw*.cu.
#pragma once
#include "gpt2/ops/adamw_split.cuh"

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

// Products are fused into sums by name: left to itself, the compiler fused the decay's product in some elements of a pack and not in
// others, so that an update depended on where its element lay.
__device__ __forceinline__ void update(float& p, float g, float& m, float& v, const StepScalars& k, float decay) {
  m = fmaf(k.beta1, m, k.one_minus_beta1 * g);
  v = fmaf(k.beta2, v, k.one_minus_beta2 * g * g);
  const float direction = (m / k.correction1) / (sqrtf(v / k.correction2) + k.eps);
  p = fmaf(-k.learning_rate, fmaf(decay, p, direction), p);
}

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
