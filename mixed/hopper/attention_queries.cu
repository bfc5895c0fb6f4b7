// Attention backward, dq: a warpgroup owns 64 queries and walks the key tiles up to the diagonal. It makes the row sums of dout * out on the
// way, which the kernel for dk and dv reads beside the log-sum-exp.
#include <cmath>

#include "mixed/hopper/attention_backward.cuh"

namespace hopper {
namespace {

// Own: q, dout, out.
template <int kWarpgroups>
using QueriesLayout = AttentionLayout<kWarpgroups, kWarpgroups == 2 ? 6 : 5, 3>;

// A warpgroup's queries: q and dout as left operands, and what a thread's two rows are compared with. With three warpgroups registers do not
// reach for dout, which stays in shared memory.
template <bool kDoutInRegisters>
struct Own {
  Fragments q, g;
  uint32_t g_tile;
  float lse_log2[2], D[2];
  __device__ __forceinline__ void times_dout(float (&dp)[32], uint32_t values) const {
    if constexpr (kDoutInRegisters)
      row_products(dp, g, values);
    else
      row_products(dp, g_tile, values);
  }
};

__device__ __forceinline__ float product_of_pairs(uint32_t a, uint32_t b) {
  return __uint_as_float(a << 16) * __uint_as_float(b << 16) + __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
}

// Loads q and dout, sums dout * out along the rows.
template <class Own>
__device__ __forceinline__ void read_own(Own& own, uint32_t at) {
  own.g_tile = at + kBytesTile;
  load_fragments(own.q, at);
  load_fragments(own.g, at + kBytesTile);
  own.D[0] = own.D[1] = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint32_t out[4];
    load_matrices(fragment_address(at + 2 * kBytesTile, k), out);
#pragma unroll
    for (int i = 0; i < 4; ++i) own.D[i & 1] += product_of_pairs(own.g[k][i], out[i]);
  }
  own.D[0] = row_sum(own.D[0]), own.D[1] = row_sum(own.D[1]);
}

// p in place of the scores.
template <bool kDiagonal, class Own>
__device__ __forceinline__ void make_probabilities(float (&s)[32], const Own& own, float scale_log2) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    s[i] = exp2_fast(fmaf(s[i], scale_log2, -own.lse_log2[i >> 1 & 1]));
    if (kDiagonal && column_of(i) > row_of(i)) s[i] = 0;
  }
}

// dq / scale of one tile of queries. Products are under way in the order: scores of the next tile, dq of this, dout v^T of the next.
template <class Own, int kStages>
__device__ __forceinline__ void walk_keys(float (&dq)[32], const Own& own, int tile, uint32_t memory, Ring<kStages>& ring,
                                          float scale_log2) {
  const auto keys = [&](const Ring<kStages>& r) { return memory + static_cast<uint32_t>(r.index) * (2 * kBytesTile); };
  float s[32], dp[32];
  Fragments ds;
  Ring<kStages> before = ring;
  ring.wait_full();
  wgmma_begin();
  row_products(s, own.q, keys(ring));
  own.times_dout(dp, keys(ring) + kBytesTile);
  wgmma_commit();
  wgmma_wait<0>();  // of dp too: ptxas carries no product under way into a loop that defines its sums again
  settle(s);
  settle(dp);
#pragma unroll 1
  for (int key = 0; key < tile; ++key) {
    make_probabilities<false>(s, own, scale_log2);
    const Ring<kStages> next = ring.next();
    next.wait_full();  // its branch is what keeps ptxas from making the probabilities after the wait below
    wgmma_wait<0>();
    settle(dp);
    settle(dq);
    if (key > 0) before.release();
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] *= dp[i] - own.D[i >> 1 & 1];
    pack_fragments(ds, s);
    wgmma_begin();
    row_products(s, own.q, keys(next));
    wgmma_commit();
    add_weighted_rows(dq, ds, keys(ring));
    own.times_dout(dp, keys(next) + kBytesTile);
    wgmma_commit();
    wgmma_wait<1>();
    settle(s);
    before = ring;
    ring = next;
  }
  make_probabilities<true>(s, own, scale_log2);
  wgmma_wait<0>();
  settle(dp);
  settle(dq);
  if (tile > 0) before.release();
#pragma unroll
  for (int i = 0; i < 32; ++i) s[i] *= dp[i] - own.D[i >> 1 & 1];
  pack_fragments(ds, s);
  wgmma_begin();
  add_weighted_rows(dq, ds, keys(ring));
  wgmma_commit();
  wgmma_wait<0>();
  settle(dq);
  ring.release();
  ring = ring.next();
}

// What the kernel for dk and dv reads of this thread's rows. Rows beyond T have a probability of zero.
template <class Own>
__device__ __forceinline__ void keep_statistics(float* statistics, Own& own, const float* lse, const AttentionWork& work, const Item& item,
                                                int tile) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row_of(2 * r), query = tile * kTileRows + row;
    own.lse_log2[r] = query < work.T ? lse[static_cast<int64_t>(item.number) * work.T + query] * kLog2E : INFINITY;
    if (threadIdx.x % 4 != 0) continue;
    float* to = statistics + statistics_of_tile(work, item.number, tile) + row / 2 * 4 + row % 2;
    to[0] = own.lse_log2[r];
    to[2] = own.D[r];
  }
}

template <class L>
__device__ __forceinline__ void make_gradients(const AttentionMaps& maps, float* statistics, float* sums, const float* lse,
                                               const AttentionWork& work, const OwnQueries<L::kStages>& of) {
  Own<L::kWarpgroups == 2> own;
  read_own(own, of.at);
  keep_statistics(statistics, own, lse, work, of.item, of.tile);
  float dq[32] = {};
  walk_keys(dq, own, of.tile, of.memory, of.ring, work.scale_log2);
  pass_over(of.ring, of.end - of.tile - 1);
  stage_rows(of.at, dq, work.scale, work.scale);
  constexpr int kRowsOfWarp = kBytesTile / 4;  // of the tile of out, which no other warp has read and nobody needs any more
  const uint32_t sums_dq = of.at + 2 * kBytesTile;
  if (sums != nullptr) keep_column_sums<kRowsOfWarp>(sums_dq, dq, work.scale);
  const auto store = [&] { tma_store(&maps.dqkv, of.at, of.item.head * kHeadChannels, of.tile * kTileRows, of.item.batch); };
  store_and_release(of.w, of.empty, store, [&] {
    if (sums != nullptr && threadIdx.x % 128 < 32) write_column_sums<kRowsOfWarp>(sums_of_tile(sums, work, of.item, of.tile, 0), sums_dq);
    __syncwarp();
  });
}

template <class L>
__global__ __launch_bounds__(AttentionThreads<L::kWarpgroups>::kCount,
                             1) void hopper_attention_queries_kernel(const __grid_constant__ AttentionMaps maps, float* statistics,
                                                                     float* sums, const float* lse, AttentionWork work) {
  walk_items_of_queries<L>(
      maps, work,
      [&](const Item& item, uint32_t to, int tile, uint32_t full) {
        const int channel = item.head * kHeadChannels;
        tma_load(to, &maps.qkv, channel, tile * kTileRows, item.batch, full);
        tma_load(to + kBytesTile, &maps.dout, channel, tile * kTileRows, item.batch, full);
        tma_load(to + 2 * kBytesTile, &maps.out, channel, tile * kTileRows, item.batch, full);
      },
      [&](const OwnQueries<L::kStages>& own) { make_gradients<L>(maps, statistics, sums, lse, work, own); });
}

template <int kWarpgroups>
void launch(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse, const gpt2::ops::AttentionShape& s,
            float* statistics, float* sums, cudaStream_t stream) {
  using L = QueriesLayout<kWarpgroups>;
  AttentionMaps maps{};
  maps.qkv = stack_map(qkv, s.B, s.T, 3 * s.C);
  maps.out = stack_map(out, s.B, s.T, s.C);
  maps.dout = stack_map(dout, s.B, s.T, s.C);
  maps.dqkv = stack_map(dqkv, s.B, s.T, 3 * s.C);
  launch_attention<L>(hopper_attention_queries_kernel<L>, s, stream, maps, statistics, sums, lse);
}

}  // namespace

void attention_backward_queries(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse,
                                const gpt2::ops::AttentionShape& shape, void* scratch, cudaStream_t stream, float* sums,
                                const AttentionCut& cut) {
  require_attention(shape, {dqkv, dout, qkv, out, scratch, sums});
  auto* statistics = static_cast<float*>(scratch);
  if (cut.queries == 2) return launch<2>(dqkv, dout, qkv, out, lse, shape, statistics, sums, stream);
  launch<3>(dqkv, dout, qkv, out, lse, shape, statistics, sums, stream);
}

}  // namespace hopper
