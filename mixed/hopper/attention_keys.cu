// Attention backward, dk and dv: a warpgroup owns 64 keys and walks the query tiles from the diagonal on. Scores are computed transposed (keys
// are the rows), so that p^T and ds^T are left operands as they come out of their products.
#include <cmath>

#include "mixed/hopper/attention_backward.cuh"

namespace hopper {
namespace {

// Own: keys and values. Beside a tile of queries and one of dout lie the statistics of their rows, beside what is owned column sums of dk and dv.
constexpr int kBytesOfSums = kHeadChannels * 4;  // of a warp
using L = AttentionLayout<2, 6, 2, kBytesStatistics, 2 * 4 * kBytesOfSums>;

__device__ __forceinline__ void load(const AttentionMaps& maps, const float* statistics, const AttentionWork& work, uint32_t memory,
                                     const AttentionBarriers<L>& barrier) {
  Ring<L::kStages> ring{barrier.full, barrier.empty};
  Item item;
  for (int n = 0; find_item<false>(work, n, item); ++n) {
    const int channel = item.head * kHeadChannels;
    load_own(work, item, n, memory, barrier, [&](uint32_t to, int tile, uint32_t full) {
      tma_load(to, &maps.qkv, work.C + channel, tile * kTileRows, item.batch, full);
      tma_load(to + kBytesTile, &maps.qkv, 2 * work.C + channel, tile * kTileRows, item.batch, full);
    });
    for (int tile = item.group * L::kWarpgroups; tile < work.tiles; ++tile, ring = ring.next()) {
      ring.wait_empty();
      const uint32_t full = ring.full + 8 * ring.index, to = memory + ring.index * L::kBytesPlace;
      barrier_arrive_expecting(full, L::kBytesPlace + kBytesStatistics);
      tma_load(to, &maps.qkv, channel, tile * kTileRows, item.batch, full);
      tma_load(to + kBytesTile, &maps.dout, channel, tile * kTileRows, item.batch, full);
      bulk_load(memory + L::kAtExtra + ring.index * kBytesStatistics, statistics + statistics_of_tile(work, item.number, tile),
                kBytesStatistics, full);
    }
  }
}

__device__ __forceinline__ float4 load_shared(uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address));
  return v;
}

// p^T in place of the scores. `statistics` is where this lane's first two columns have theirs.
__device__ __forceinline__ void make_probabilities(float (&s)[32], uint32_t statistics, bool diagonal, float scale_log2) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 of = load_shared(statistics + j * 64);
#pragma unroll
    for (int i = 4 * j; i < 4 * j + 4; ++i) s[i] = exp2_fast(fmaf(s[i], scale_log2, -(i & 1 ? of.y : of.x)));
  }
  if (diagonal)
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (column_of(i) < row_of(i)) s[i] = 0;
}

// ds^T / scale in place of dp^T.
__device__ __forceinline__ void make_score_gradients(float (&dp)[32], const float (&p)[32], uint32_t statistics) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float4 of = load_shared(statistics + j * 64);
#pragma unroll
    for (int i = 4 * j; i < 4 * j + 4; ++i) dp[i] = p[i] * (dp[i] - (i & 1 ? of.w : of.z));
  }
}

// What a warpgroup works with while it walks.
struct Walk {
  float s[32], dp[32], dk[32] = {}, dv[32] = {};
  Fragments k, v, p, ds;
};

// One tile of queries, whose scores are there and dp under way when it begins. kMore: so are those of the next when it ends. The products are
// under way in the order: scores of the next tile; dv and dk of this, dout v^T of the next.
template <bool kMore>
__device__ __forceinline__ void add_queries(Walk& walk, bool first, uint32_t memory, Ring<L::kStages>& ring, float scale_log2) {
  const auto at = [&](const Ring<L::kStages>& r) { return memory + static_cast<uint32_t>(r.index) * (2 * kBytesTile); };
  const uint32_t queries = at(ring);
  const uint32_t statistics = memory + L::kAtExtra + static_cast<uint32_t>(ring.index) * kBytesStatistics + threadIdx.x % 4 * 16;
  make_probabilities(walk.s, statistics, first, scale_log2);
  const Ring<L::kStages> next = ring.next();
  if constexpr (kMore) next.wait_full();  // its branch is what keeps ptxas from making the probabilities after the wait below
  wgmma_wait<0>();
  settle(walk.dp);
  settle(walk.dk);
  settle(walk.dv);
  if (!first) ring.before().release();
  pack_fragments(walk.p, walk.s);
  make_score_gradients(walk.dp, walk.s, statistics);
  pack_fragments(walk.ds, walk.dp);
  wgmma_begin();
  if constexpr (kMore) {
    row_products(walk.s, walk.k, at(next));
    wgmma_commit();
  }
  add_weighted_rows(walk.dv, walk.p, queries + kBytesTile);
  add_weighted_rows(walk.dk, walk.ds, queries);
  if constexpr (kMore) row_products(walk.dp, walk.v, at(next) + kBytesTile);
  wgmma_commit();
  if constexpr (kMore) {
    wgmma_wait<1>();
    settle(walk.s);
  } else {
    wgmma_wait<0>();
    settle(walk.dk);
    settle(walk.dv);
    ring.release();
  }
  ring = next;
}

// dk / scale and dv of one tile of keys. `memory` is the CTA's.
__device__ __forceinline__ void walk_queries(Walk& walk, int tile, int tiles, uint32_t memory, Ring<L::kStages>& ring, float scale_log2) {
  const uint32_t queries = memory + static_cast<uint32_t>(ring.index) * (2 * kBytesTile);
  ring.wait_full();
  wgmma_begin();
  row_products(walk.s, walk.k, queries);
  row_products(walk.dp, walk.v, queries + kBytesTile);
  wgmma_commit();
  wgmma_wait<0>();  // of dp too: ptxas carries no product under way into a loop that defines its sums again
  settle(walk.s);
  settle(walk.dp);
#pragma unroll 1
  for (int query = tile; query + 1 < tiles; ++query) add_queries<true>(walk, query == tile, memory, ring, scale_log2);
  add_queries<false>(walk, tile + 1 == tiles, memory, ring, scale_log2);
}

__device__ __forceinline__ void compute(const AttentionMaps& maps, float* sums, const AttentionWork& work, uint32_t memory,
                                        const AttentionBarriers<L>& barrier, int w) {
  Ring<L::kStages> ring{barrier.full, barrier.empty};
  Item item;
  for (int n = 0; find_item<false>(work, n, item); ++n) {
    const int first = item.group * L::kWarpgroups, tile = tile_of<L::kWarpgroups>(item, w, n), place = 2 * w + (n & 1);
    const uint32_t own = L::own(memory, place), own_empty = barrier.own_empty + 8 * place;
    barrier_wait(barrier.own_full + 8 * place, n >> 1 & 1);
    if (tile >= work.tiles) {
      if (threadIdx.x % 128 == 0) barrier_arrive(own_empty);
      pass_over(ring, work.tiles - first);
      continue;
    }
    Walk walk;
    load_fragments(walk.k, own);
    load_fragments(walk.v, own + kBytesTile);
    pass_over(ring, tile - first);
    walk_queries(walk, tile, work.tiles, memory, ring, work.scale_log2);
    stage_rows(own, walk.dk, work.scale, work.scale);
    stage_rows(own + kBytesTile, walk.dv, 1, 1);
    const uint32_t sums_dk = L::sums(memory, place), sums_dv = sums_dk + 4 * kBytesOfSums;
    if (sums != nullptr) {
      keep_column_sums<kBytesOfSums>(sums_dk, walk.dk, work.scale);
      keep_column_sums<kBytesOfSums>(sums_dv, walk.dv, 1);
    }
    const auto store = [&] {
      const int channel = item.head * kHeadChannels;
      tma_store(&maps.dqkv, own, work.C + channel, tile * kTileRows, item.batch);
      tma_store(&maps.dqkv, own + kBytesTile, 2 * work.C + channel, tile * kTileRows, item.batch);
    };
    store_and_release(w, own_empty, store, [&] {
      if (sums != nullptr && threadIdx.x % 128 < 32) {
        write_column_sums<kBytesOfSums>(sums_of_tile(sums, work, item, tile, 1), sums_dk);
        write_column_sums<kBytesOfSums>(sums_of_tile(sums, work, item, tile, 2), sums_dv);
      }
      __syncwarp();
    });
  }
}

__global__ __launch_bounds__(AttentionThreads<L::kWarpgroups>::kCount,
                             1) void hopper_attention_keys_kernel(const __grid_constant__ AttentionMaps maps, const float* statistics,
                                                                  float* sums, AttentionWork work) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t memory = shared_address(shared);
  const AttentionBarriers<L> barrier(memory);
  share_roles(
      barrier, [&] { load(maps, statistics, work, memory, barrier); }, [&](int w) { compute(maps, sums, work, memory, barrier, w); });
}

}  // namespace

void attention_backward_keys(bf16* dqkv, const bf16* dout, const bf16* qkv, const gpt2::ops::AttentionShape& s, const void* scratch,
                             cudaStream_t stream, float* sums) {
  require_attention(s, {dqkv, dout, qkv, scratch, sums});
  AttentionMaps maps{};
  maps.qkv = stack_map(qkv, s.B, s.T, 3 * s.C);
  maps.dout = stack_map(dout, s.B, s.T, s.C);
  maps.dqkv = stack_map(dqkv, s.B, s.T, 3 * s.C);
  launch_attention<L>(hopper_attention_keys_kernel, s, stream, maps, static_cast<const float*>(scratch), sums);
}

}  // namespace hopper
