// One block of threads per block of the arena; a thread has eight elements, whose bits share a byte where masters are split.
#include "gpt2/ops/adamw_blocks.cuh"

#include <type_traits>

#include "gpt2/ops/adamw_update.cuh"

namespace gpt2::ops {
namespace {

using distributed::ArenaBlock;
using distributed::kBlock;

constexpr int kThreads = kUpdateThreads;
static_assert(kBlock == kThreads * kEight);

// Elements from one of an arena block on: where they lie in the arena, in what belongs to the blocks, and in the file order.
struct Place {
  int64_t arena, held, file;
};

template <int N>
__device__ __forceinline__ Pack<N> gradients_of(const BlockGradients& g, int64_t arena) {
  return arena < g.narrow_elements ? load<N>(g.narrow + arena) : load<N>(g.wide + (arena - g.narrow_elements));
}

// ---- masters in each form: eight of them, and `count` fewer than that one by one ------------------------------------------------

// change(std::integral_constant<int, N>, pack, place) changes N masters.
template <bool kStochastic, class Change>
__device__ __forceinline__ void change_eight(const Fp32Weights& p, const Place& at, uint32_t, const Change& change) {
  Pack<kEight> x = load<kEight>(p.weights + at.arena);
  change(std::integral_constant<int, kEight>{}, x, at);
  store(p.weights + at.arena, x);
}
template <bool kStochastic, class Change>
__device__ __forceinline__ void change_eight(const Fp32Masters& p, const Place& at, uint32_t seed, const Change& change) {
  Pack<kEight> x = load<kEight>(p.masters + at.held);
  change(std::integral_constant<int, kEight>{}, x, at);
  store(p.masters + at.held, x);
  store_weights<kEight, kStochastic>(p.weights + at.arena, x, seed, at.file);
}
// load_eight and their like have one index for all three vectors.
__device__ __forceinline__ SplitMasters by_held(const SplitMasters& p, const Place& at) {
  return {p.weights + (at.arena - at.held), p.low, p.up};
}
template <bool kStochastic, class Change>
__device__ __forceinline__ void change_eight(const SplitMasters& p, const Place& at, uint32_t seed, const Change& change) {
  const SplitMasters s = by_held(p, at);
  Eight e = load_eight(s, at.held);
  Pack<kEight> x;
#pragma unroll
  for (int i = 0; i < kEight; ++i) x.v[i] = joined(e.of[i]);
  change(std::integral_constant<int, kEight>{}, x, at);
#pragma unroll
  for (int i = 0; i < kEight; ++i) e.of[i] = split<kStochastic>(x.v[i], seed, at.file + i);
  store_eight(s, at.held, e);
}

template <bool kStochastic, class Change>
__device__ __forceinline__ void change_some(const Fp32Weights& p, const Place& at, int count, uint32_t, const Change& change) {
  for (int i = 0; i < count; ++i) {
    Pack<1> x = load<1>(p.weights + at.arena + i);
    change(std::integral_constant<int, 1>{}, x, Place{at.arena + i, at.held + i, at.file + i});
    store(p.weights + at.arena + i, x);
  }
}
template <bool kStochastic, class Change>
__device__ __forceinline__ void change_some(const Fp32Masters& p, const Place& at, int count, uint32_t seed, const Change& change) {
  for (int i = 0; i < count; ++i) {
    Pack<1> x = load<1>(p.masters + at.held + i);
    change(std::integral_constant<int, 1>{}, x, Place{at.arena + i, at.held + i, at.file + i});
    store(p.masters + at.held + i, x);
    store_weights<1, kStochastic>(p.weights + at.arena + i, x, seed, at.file + i);
  }
}
template <bool kStochastic, class Change>
__device__ __forceinline__ void change_some(const SplitMasters& p, const Place& at, int count, uint32_t seed, const Change& change) {
  const SplitMasters s = by_held(p, at);
  const uint32_t up = s.up[at.held / kEight];
  uint32_t up_after = 0;
  for (int i = 0; i < count; ++i) {
    Pack<1> x{{joined(load_one(s, at.held + i, up))}};
    change(std::integral_constant<int, 1>{}, x, Place{at.arena + i, at.held + i, at.file + i});
    store_one(s, at.held + i, split<kStochastic>(x.v[0], seed, at.file + i), up_after);
  }
  s.up[at.held / kEight] = static_cast<uint8_t>(up_after);
}

// The masters that this thread has of its block. Bytes of a moment's rounding are drawn for eight elements whose first is a multiple of eight
// in the file order, so a tensor that begins elsewhere is done one by one.
template <bool kStochastic, class Parameters, class Change>
__device__ __forceinline__ void change_masters(const Parameters& p, const ArenaBlock& block, uint32_t seed, const Change& change) {
  const int first = static_cast<int>(threadIdx.x) * kEight;
  const int count = min(block.valid - first, kEight);
  if (count <= 0) return;
  const Place at{block.arena + first, blockIdx.x * kBlock + first, block.file + first};
  if (count == kEight && block.file % kEight == 0)
    change_eight<kStochastic>(p, at, seed, change);
  else
    change_some<kStochastic>(p, at, count, seed, change);
}

template <bool kStochastic, class Parameters, class Moments>
__global__ void __launch_bounds__(kThreads)
    blocks_kernel(const Parameters parameters, const Moments moments, const BlockGradients gradients, const ArenaBlock* __restrict__ blocks,
                  const StepScalars* __restrict__ scalars, const float* __restrict__ clip_scale) {
  const ArenaBlock block = blocks[blockIdx.x];
  const StepScalars k = *scalars;
  const float decay = block.decayed != 0 ? k.weight_decay : 0.0f;
  const float scale = *clip_scale;
  change_masters<kStochastic>(parameters, block, k.rounding_seed + 1,
                              [&]<int N>(std::integral_constant<int, N>, Pack<N>& x, const Place& at) {
                                update(moments, x, gradients_of<N>(gradients, at.arena), at.held, at.file, k, decay, scale);
                              });
}

template <bool kStochastic, class Parameters>
__global__ void __launch_bounds__(kThreads)
    round_blocks_kernel(const Parameters parameters, const ArenaBlock* __restrict__ blocks, const StepScalars* __restrict__ scalars) {
  uint32_t seed = 0;
  if constexpr (kStochastic) seed = scalars->rounding_seed;
  change_masters<kStochastic>(parameters, blocks[blockIdx.x], seed,
                              []<int N>(std::integral_constant<int, N>, const Pack<N>&, const Place&) {});
}

}  // namespace

template <class Parameters, class Moments>
void adamw_blocks(Rounding rounding, const Parameters& parameters, const Moments& moments, const BlockGradients& gradients,
                  const ArenaBlock* blocks, int64_t count, const StepScalars* scalars, const float* clip_scale, cudaStream_t stream) {
  if (count == 0) return;
  const auto launch = [&]<bool kStochastic>(std::bool_constant<kStochastic>) {
    blocks_kernel<kStochastic><<<grid_blocks(count), kThreads, 0, stream>>>(parameters, moments, gradients, blocks, scalars, clip_scale);
    STEPSCOPE_CHECK_LAUNCH();
  };
  if constexpr (!std::is_same_v<Parameters, Fp32Weights>)
    if (rounding == Rounding::stochastic) return launch(std::true_type{});
  launch(std::false_type{});
}

template <class Parameters>
void round_blocks(Rounding rounding, const Parameters& parameters, const ArenaBlock* blocks, int64_t count, const StepScalars* scalars,
                  cudaStream_t stream) {
  if (count == 0) return;
  if (rounding == Rounding::stochastic)
    round_blocks_kernel<true><<<grid_blocks(count), kThreads, 0, stream>>>(parameters, blocks, scalars);
  else
    round_blocks_kernel<false><<<grid_blocks(count), kThreads, 0, stream>>>(parameters, blocks, scalars);
  STEPSCOPE_CHECK_LAUNCH();
}

#define STEPSCOPE_INSTANCE(Parameters, Moments)                                                                              \
  template void adamw_blocks(Rounding, const Parameters&, const Moments&, const BlockGradients&, const ArenaBlock*, int64_t, \
                             const StepScalars*, const float*, cudaStream_t);
STEPSCOPE_INSTANCE(Fp32Weights, WholeMoments)
STEPSCOPE_INSTANCE(Fp32Masters, WholeMoments)
STEPSCOPE_INSTANCE(Fp32Masters, SplitMoments)
STEPSCOPE_INSTANCE(SplitMasters, WholeMoments)
STEPSCOPE_INSTANCE(SplitMasters, SplitMoments)
STEPSCOPE_INSTANCE(Fp32Masters, ShortMoments)
STEPSCOPE_INSTANCE(SplitMasters, ShortMoments)
#undef STEPSCOPE_INSTANCE

template void round_blocks(Rounding, const Fp32Masters&, const ArenaBlock*, int64_t, const StepScalars*, cudaStream_t);
template void round_blocks(Rounding, const SplitMasters&, const ArenaBlock*, int64_t, const StepScalars*, cudaStream_t);

}  // namespace gpt2::ops
