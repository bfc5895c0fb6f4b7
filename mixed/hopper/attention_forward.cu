// Attention forward: a warpgroup owns 64 queries and walks the key tiles up to the diagonal, the softmax carried along. Scores of the next
// tile and the weighted values of this one are under way while the probabilities of one are made.
#include <cmath>

#include "mixed/hopper/attention.cuh"

namespace hopper {
namespace {

// Own: queries.
template <int kWarpgroups>
using ForwardLayout = AttentionLayout<kWarpgroups, 6, 1>;

// Of a thread's two rows: the shift of the exponent and this lane's part of the sum.
struct Softmax {
  float max[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, shrink[2];
};

// Scores become probabilities times 2^shift. A row's shift follows its maximum only when that has grown by more than kSlack in the exponent:
// then the result is true and earlier sums must be multiplied by `shrink`. So sums are at most 2^kSlack T, and are rarely rescaled.
template <bool kDiagonal>
__device__ __forceinline__ bool make_probabilities(float (&s)[32], Softmax& softmax, float scale_log2) {
  constexpr float kSlack = 8;
  if constexpr (kDiagonal)
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (column_of(i) > row_of(i)) s[i] = -INFINITY;
  float top[2] = {fmaxf(s[0], s[1]), fmaxf(s[2], s[3])};
#pragma unroll
  for (int i = 4; i < 32; ++i) top[i >> 1 & 1] = fmaxf(top[i >> 1 & 1], s[i]);
#pragma unroll
  for (int r = 0; r < 2; ++r) top[r] = row_max(top[r]);
  const bool grown = (top[0] - softmax.max[0]) * scale_log2 > kSlack || (top[1] - softmax.max[1]) * scale_log2 > kSlack;
  const bool rescale = __any_sync(~0u, grown);
  if (rescale)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float now = fmaxf(softmax.max[r], top[r]);
      softmax.shrink[r] = exp2_fast((softmax.max[r] - now) * scale_log2);
      softmax.max[r] = now;
      softmax.total[r] *= softmax.shrink[r];
    }
  const float shift[2] = {softmax.max[0] * scale_log2, softmax.max[1] * scale_log2};
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    s[i] = exp2_fast(fmaf(s[i], scale_log2, -shift[i >> 1 & 1]));
    softmax.total[i >> 1 & 1] += s[i];
  }
  return rescale;
}

__device__ __forceinline__ void rescale_rows(float (&o)[32], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) o[i] *= factor[i >> 1 & 1];
}

// The output of one tile of queries, not yet divided by the sums. `ring` stands at the item's first key tile, and then behind `tile`.
template <int kStages>
__device__ __forceinline__ void walk_keys(float (&o)[32], Softmax& softmax, const Fragments& q, int tile, uint32_t memory,
                                          Ring<kStages>& ring, float scale_log2) {
  const auto keys = [&](const Ring<kStages>& r) { return memory + static_cast<uint32_t>(r.index) * (2 * kBytesTile); };
  float s[32];
  Fragments p;
  Ring<kStages> before = ring;
  ring.wait_full();
  wgmma_begin();
  row_products(s, q, keys(ring));
  wgmma_commit();
  wgmma_wait<0>();
  settle(s);
#pragma unroll 1
  for (int key = 0; key < tile; ++key) {
    const bool rescale = make_probabilities<false>(s, softmax, scale_log2);
    const Ring<kStages> next = ring.next();
    next.wait_full();  // its branch is what keeps ptxas from making the probabilities after the wait below
    wgmma_wait<0>();
    settle(o);
    if (key > 0) before.release();
    if (rescale) rescale_rows(o, softmax.shrink);
    pack_fragments(p, s);
    wgmma_begin();
    row_products(s, q, keys(next));
    wgmma_commit();
    add_weighted_rows(o, p, keys(ring) + kBytesTile);
    wgmma_commit();
    wgmma_wait<1>();
    settle(s);
    before = ring;
    ring = next;
  }
  const bool rescale = make_probabilities<true>(s, softmax, scale_log2);
  wgmma_wait<0>();
  settle(o);
  if (tile > 0) before.release();
  if (rescale) rescale_rows(o, softmax.shrink);
  pack_fragments(p, s);
  wgmma_begin();
  add_weighted_rows(o, p, keys(ring) + kBytesTile);
  wgmma_commit();
  wgmma_wait<0>();
  settle(o);
  ring.release();
  ring = ring.next();
}

template <int kStages>
__device__ __forceinline__ void attend(const AttentionMaps& maps, float* lse, const AttentionWork& work, const OwnQueries<kStages>& own) {
  Fragments q;
  load_fragments(q, own.at);
  float o[32] = {};
  Softmax softmax;
  walk_keys(o, softmax, q, own.tile, own.memory, own.ring, work.scale_log2);
  pass_over(own.ring, own.end - own.tile - 1);

  const float total[2] = {row_sum(softmax.total[0]), row_sum(softmax.total[1])};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int query = own.tile * kTileRows + row_of(2 * r);
    if (threadIdx.x % 4 == 0 && query < work.T)
      lse[static_cast<int64_t>(own.item.number) * work.T + query] = softmax.max[r] * work.scale + logf(total[r]);
  }
  stage_rows(own.at, o, 1.0f / total[0], 1.0f / total[1]);
  store_and_release(own.w, own.empty,
                    [&] { tma_store(&maps.out, own.at, own.item.head * kHeadChannels, own.tile * kTileRows, own.item.batch); });
}

template <class L>
__global__ __launch_bounds__(AttentionThreads<L::kWarpgroups>::kCount,
                             1) void hopper_attention_forward_kernel(const __grid_constant__ AttentionMaps maps, float* lse,
                                                                     AttentionWork work) {
  walk_items_of_queries<L>(
      maps, work,
      [&](const Item& item, uint32_t to, int tile, uint32_t full) {
        tma_load(to, &maps.qkv, item.head * kHeadChannels, tile * kTileRows, item.batch, full);
      },
      [&](const OwnQueries<L::kStages>& own) { attend(maps, lse, work, own); });
}

template <int kWarpgroups>
void launch(bf16* out, float* lse, const bf16* qkv, const gpt2::ops::AttentionShape& s, cudaStream_t stream) {
  using L = ForwardLayout<kWarpgroups>;
  AttentionMaps maps{};
  maps.qkv = stack_map(qkv, s.B, s.T, 3 * s.C);
  maps.out = stack_map(out, s.B, s.T, s.C);
  launch_attention<L>(hopper_attention_forward_kernel<L>, s, stream, maps, lse);
}

}  // namespace

void attention_forward(bf16* out, float* lse, const bf16* qkv, const gpt2::ops::AttentionShape& shape, cudaStream_t stream,
                       const AttentionCut& cut) {
  require_attention(shape, {out, qkv});
  const bool three = cut.forward == 0 ? attention_work(shape, 3).items >= 8 * multiprocessors() : cut.forward == 3;
  if (!three) return launch<2>(out, lse, qkv, shape, stream);
  launch<3>(out, lse, qkv, shape, stream);
}

}  // namespace hopper
