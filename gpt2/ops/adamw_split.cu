// AdamW on split masters: a thread has eight elements, whose bits share a byte.
#include "gpt2/ops/adamw_split.cuh"

#include "gpt2/ops/adamw_update.cuh"

namespace gpt2::ops {
namespace {

constexpr int kThreads = kUpdateThreads;

// Eight elements per thread over all parameters. kPacks: they move in packs, and no pack straddles two tensors.
template <bool kPacks, bool kStochastic, class Moments, class Table>
__global__ void __launch_bounds__(kThreads, kPacks && !kStochastic ? 4 : 1)  // 64 registers, where they do for it
    split_masters_kernel(const SplitMasters s, const Moments moments, const float* __restrict__ g, int64_t n,
                         const StepScalars* __restrict__ scalars, const __grid_constant__ Table table,
                         const float* __restrict__ clip_scale) {
  cuda::wait_for_kernels_before();
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * kEight;
  if (first >= n) return;
  const StepScalars k = *scalars;
  const float scale = *clip_scale;
  const uint32_t seed = k.rounding_seed + 1;
  if constexpr (kPacks) {
    const int row = row_of(first, table);
    const float decay = decay_of(row, table, k);
    Eight e = load_eight(s, first);
    const Pack<kEight> gg = gradients_at<kEight>(g, first, row, table);
    Pack<kEight> p;
#pragma unroll
    for (int i = 0; i < kEight; ++i) p.v[i] = joined(e.of[i]);
    update(moments, p, gg, first, first, k, decay, scale);
#pragma unroll
    for (int i = 0; i < kEight; ++i) e.of[i] = split<kStochastic>(p.v[i], seed, first + i);
    store_eight(s, first, e);
  } else {
    const uint32_t up = s.up[first / kEight];
    uint32_t up_after = 0;
    for (int64_t i = first; i < n && i < first + kEight; ++i) {
      Pack<1> p{{joined(load_one(s, i, up))}};
      const int row = row_of(i, table);
      update(moments, p, gradients_at<1>(g, i, row, table), i, i, k, decay_of(row, table, k), scale);
      store_one(s, i, split<kStochastic>(p.v[0], seed, i), up_after);
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

}  // namespace

template <class Moments, class Gradients>
void adamw_split(Rounding rounding, const SplitMasters& s, const Moments& moments, const Gradients& g, const TensorLayout& layout,
                 const StepScalars* scalars, const float* clip_scale, cudaStream_t stream) {
  const bool packs = aligned_16(s.weights, s.low) && moments_pack(moments) && gradients_pack(g) && tensors_pack<bf16>(layout);
  const auto table = table_of(layout, g);
  by_packs_and_rounding(packs, rounding, [&]<int N, bool kStochastic>() {
    split_masters_kernel<N == kEight, kStochastic>
        <<<blocks(layout.total, kEight), kThreads, 0, stream>>>(s, moments, wide_of(g), layout.total, scalars, table, clip_scale);
    STEPSCOPE_CHECK_LAUNCH();
  });
}

#define STEPSCOPE_INSTANCE(Moments, Gradients)                                                                                        \
  template void adamw_split(Rounding, const SplitMasters&, Moments const&, Gradients const&, const TensorLayout&, const StepScalars*, \
                            const float*, cudaStream_t);
STEPSCOPE_FOR_EACH_UPDATE(STEPSCOPE_INSTANCE)
#undef STEPSCOPE_INSTANCE

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

}  // namespace gpt2::ops
