// What the attention kernels for Hopper share. Each warpgroup of a CTA owns a tile of 64 rows (queries, or keys for dk and dv) and walks the
// tiles of the other side up to, or from, the diagonal; the tiles that it walks arrive in a ring that all warpgroups of the CTA read. One
// thread of another warpgroup fills it by TMA. A CTA takes items (kWarpgroups neighbouring tiles of a head) in turn, so that the loads of the
// next item run while this one is computed, and warpgroups need not wait for each other at an item's end.
//
// Every tile is 64 rows of 64 bf16: 8 KB with the 128-byte swizzle (16-byte piece c of row r lies at c ^ (r % 8)). Left operands come from
// registers wherever they fit: a result of one product, rounded and packed, is the left operand of the next, and a product whose left
// operand comes from shared memory reads twice the bytes there.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "gpt2/cuda/check.h"
#include "gpt2/ops/storage.cuh"
#include "mixed/hopper/attention.h"
#include "mixed/hopper/ptx.cuh"

namespace hopper {

using gpt2::ops::bf16;

inline constexpr int kTileRows = 64;
inline constexpr int kBytesTile = kTileRows * 128;
inline constexpr int kHeadChannels = 64;

// What the kernels know of a shape, and how heads are cut into items.
struct AttentionWork {
  int T, NH, C;
  int heads;     // of all batches
  int tiles;     // of 64 rows in T
  int groups;    // items of a head
  int together;  // heads whose items are worked on at the same time, so that the L2 still has what they share
  int items;
  float scale, scale_log2;
};

struct AttentionMaps {
  CUtensorMap qkv, out, dout, dqkv;
};

#ifdef __CUDACC__

using gpt2::ops::pack_bf16;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));  // volatile: it stays before the waits behind it
  return y;
}

// ---- items: the long ones of a chunk of heads first, dealt out forth and back so that every CTA has its share of both ----------------

struct Item {
  int batch, head, group;  // head of its batch
  int number;              // of the head among all
};

// Item n of this CTA; false when there is none. kLastGroupsFirst: where those have the most tiles to walk.
template <bool kLastGroupsFirst>
__device__ __forceinline__ bool find_item(const AttentionWork& work, int n, Item& item) {
  const int ctas = static_cast<int>(gridDim.x), cta = static_cast<int>(blockIdx.x);
  const int i = n * ctas + (n & 1 ? ctas - 1 - cta : cta);
  if (i >= work.items) return false;
  const int chunk = i / (work.together * work.groups), first = chunk * work.together, heads = min(work.together, work.heads - first);
  const int within = i - first * work.groups, rank = within / heads;
  item.number = first + within % heads;
  item.batch = item.number / work.NH;
  item.head = item.number % work.NH;
  item.group = kLastGroupsFirst ? work.groups - 1 - rank : rank;
  return true;
}

// The tile of warpgroup w: they take turns, because of an item's tiles one has more to walk than another.
template <int kWarpgroups>
__device__ __forceinline__ int tile_of(const Item& item, int w, int n) {
  return item.group * kWarpgroups + (w + n) % kWarpgroups;
}

// ---- the ring -------------------------------------------------------------------------------------------------------------------

// A place in the ring. `full` and `empty` are addresses of the barriers of place 0. A warp that has read a place arrives at its `empty`;
// one that does not need it still waits for `full` first, so that nobody arrives twice in a phase.
template <int kStages>
struct Ring {
  uint32_t full, empty;
  int index = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ Ring next() const {
    Ring r = *this;
    if (++r.index == kStages) r.index = 0, r.parity ^= 1;
    return r;
  }
  __device__ __forceinline__ Ring before() const {  // to release it
    Ring r = *this;
    r.index = (r.index == 0 ? kStages : r.index) - 1;
    return r;
  }
  __device__ __forceinline__ void wait_full() const { barrier_wait(full + 8 * index, parity); }
  __device__ __forceinline__ void wait_empty() const { barrier_wait(empty + 8 * index, parity ^ 1); }
  __device__ __forceinline__ void release() const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * index);
  }
};

template <int kStages>
__device__ __forceinline__ void pass_over(Ring<kStages>& ring, int places) {
#pragma unroll 1
  for (int i = 0; i < places; ++i, ring = ring.next()) {
    ring.wait_full();
    ring.release();
  }
}

// ---- fragments: of a warp's 16 rows, 16 columns for each k; lane l has rows l / 4 and l / 4 + 8, columns 2 (l % 4) and one more, + 8 --

using Fragments = uint32_t[4][4];

// Where this lane reads or writes its row of the four 8 x 8 matrices k of a tile.
__device__ __forceinline__ uint32_t fragment_address(uint32_t tile, int k) {
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 16, piece = 2 * k + threadIdx.x % 32 / 16;
  return tile + row * 128 + ((piece ^ (row & 7)) << 4);
}
__device__ __forceinline__ void load_fragments(Fragments& a, uint32_t tile) {
#pragma unroll
  for (int k = 0; k < 4; ++k) load_matrices(fragment_address(tile, k), a[k]);
}
__device__ __forceinline__ void pack_fragments(Fragments& a, const float (&x)[32]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = pack_bf16(x[8 * k + 2 * i], x[8 * k + 2 * i + 1]);
}
// x times its row's factor, rounded, to a tile in shared memory.
__device__ __forceinline__ void stage_rows(uint32_t tile, const float (&x)[32], float factor0, float factor1) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    store_matrices(fragment_address(tile, k), pack_bf16(x[8 * k] * factor0, x[8 * k + 1] * factor0),
                   pack_bf16(x[8 * k + 2] * factor1, x[8 * k + 3] * factor1), pack_bf16(x[8 * k + 4] * factor0, x[8 * k + 5] * factor0),
                   pack_bf16(x[8 * k + 6] * factor1, x[8 * k + 7] * factor1));
}

// ---- products of 64 x 64 by 64 x 64; the caller fences, commits and waits ---------------------------------------------------------

// Where a tile lies as the right operand of four products that each take 16 of k: steps of one word of the descriptor, because the address is
// the lowest field and no step leaves it.
struct TileOperand {
  uint32_t low, high;
  __device__ explicit TileOperand(uint32_t tile) {
    const uint64_t whole = operand(tile, 16, 1024);
    low = static_cast<uint32_t>(whole), high = static_cast<uint32_t>(whole >> 32);
  }
  // Rows of the tile along n, their channels along k; or the other way round, and k goes on with the rows.
  __device__ uint64_t along(int k) const { return static_cast<uint64_t>(high) << 32 | (low + 2 * k); }
  __device__ uint64_t across(int k) const { return static_cast<uint64_t>(high) << 32 | (low + 128 * k); }
};

// s = a tile^T, both along their channels.
__device__ __forceinline__ void row_products(float (&s)[32], const Fragments& a, uint32_t tile) {
  const TileOperand right(tile);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_64x64x16<0>(s, a[k], right.along(k), k > 0);
}
__device__ __forceinline__ void row_products(float (&s)[32], uint32_t a_tile, uint32_t tile) {
  const TileOperand left(a_tile), right(tile);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_64x64x16<0>(s, left.along(k), right.along(k), k > 0);
}
// sum += weights tile: column r of the weights belongs to row r of the tile.
__device__ __forceinline__ void add_weighted_rows(float (&sum)[32], const Fragments& weights, uint32_t tile) {
  const TileOperand right(tile);
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_64x64x16<1>(sum, weights[k], right.across(k), 1);
}

// ---- rows -------------------------------------------------------------------------------------------------------------------------

// Value i of a thread's 32 is at this row and column of the tile.
__device__ __forceinline__ int row_of(int i) { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + (i & 2) * 4; }
__device__ __forceinline__ int column_of(int i) { return i / 4 * 8 + 2 * (threadIdx.x % 4) + (i & 1); }

// Over the four lanes of a row.
__device__ __forceinline__ float row_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
  return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}
__device__ __forceinline__ float row_sum(float v) {
  v += __shfl_xor_sync(~0u, v, 1);
  return v + __shfl_xor_sync(~0u, v, 2);
}

// ---- a CTA ------------------------------------------------------------------------------------------------------------------------

// Its shared memory: the ring's places of two tiles, then for each warpgroup two places of kOwn tiles that it owns, so that the next item's
// arrive while this one is computed; results leave from there too. kExtra: bytes beside each place of the ring. kSums: beside each of those.
template <int kWarpgroupsOf, int kStagesOf, int kOwn, int kExtra = 0, int kSums = 0>
struct AttentionLayout {
  static constexpr int kWarpgroups = kWarpgroupsOf, kStages = kStagesOf;
  static constexpr int kBytesPlace = 2 * kBytesTile, kBytesOwn = kOwn * kBytesTile;
  static constexpr int kAtOwn = kStages * kBytesPlace, kAtExtra = kAtOwn + 2 * kWarpgroups * kBytesOwn,
                       kAtSums = kAtExtra + kStages * kExtra, kAtBarriers = kAtSums + 2 * kWarpgroups * kSums,
                       kBytes = kAtBarriers + 16 * kStages + 32 * kWarpgroups;
  static_assert(kBytes <= 232448);
  __device__ static uint32_t own(uint32_t memory, int place) { return memory + kAtOwn + static_cast<uint32_t>(place) * kBytesOwn; }
  __device__ static uint32_t sums(uint32_t memory, int place) { return memory + kAtSums + static_cast<uint32_t>(place) * kSums; }
};

// Addresses. Of what warpgroup w owns in its n-th item the place is number 2 w + n % 2.
template <class L>
struct AttentionBarriers {
  uint32_t full, empty, own_full, own_empty;
  __device__ explicit AttentionBarriers(uint32_t memory)
      : full(memory + L::kAtBarriers),
        empty(full + 8 * L::kStages),
        own_full(empty + 8 * L::kStages),
        own_empty(own_full + 16 * L::kWarpgroups) {}
  __device__ void init() const {
    for (int i = 0; i < L::kStages; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, 4 * L::kWarpgroups);  // warps
    }
    for (int i = 0; i < 2 * L::kWarpgroups; ++i) {
      barrier_init(own_full + 8 * i, 1);
      barrier_init(own_empty + 8 * i, 1);  // whoever has stored the result
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
};

// The loader's part of an item: what each warpgroup owns. load_tile(to, tile, full) copies kOwn tiles.
template <class L, class LoadTile>
__device__ __forceinline__ void load_own(const AttentionWork& work, const Item& item, int n, uint32_t memory,
                                         const AttentionBarriers<L>& barrier, const LoadTile& load_tile) {
  for (int w = 0; w < L::kWarpgroups; ++w) {
    const int tile = tile_of<L::kWarpgroups>(item, w, n), place = 2 * w + (n & 1);
    const uint32_t full = barrier.own_full + 8 * place;
    barrier_wait(barrier.own_empty + 8 * place, (n >> 1 & 1) ^ 1);
    if (tile < work.tiles) {
      barrier_arrive_expecting(full, L::kBytesOwn);
      load_tile(L::own(memory, place), tile, full);
    } else {
      barrier_arrive(full);
    }
  }
}

// The loader's part of an item's ring: a tile of keys and one of values.
template <int kStages>
__device__ __forceinline__ void load_keys(const AttentionMaps& maps, const AttentionWork& work, const Item& item, int tile, uint32_t memory,
                                          const Ring<kStages>& ring) {
  ring.wait_empty();
  const int channel = item.head * kHeadChannels;
  const uint32_t full = ring.full + 8 * ring.index, to = memory + ring.index * 2 * kBytesTile;
  barrier_arrive_expecting(full, 2 * kBytesTile);
  tma_load(to, &maps.qkv, work.C + channel, tile * kTileRows, item.batch, full);
  tma_load(to + kBytesTile, &maps.qkv, 2 * work.C + channel, tile * kTileRows, item.batch, full);
}

struct NothingBefore {
  __device__ __forceinline__ void operator()() const {}
};
// A warpgroup's end of an item: its threads have staged results where its own tiles were; store() copies them out by TMA. before(), which all
// threads call, may read what any of them has staged: the first warp, in which the release comes after it.
template <class Store, class Before = NothingBefore>
__device__ __forceinline__ void store_and_release(int w, uint32_t own_empty, const Store& store, const Before& before = {}) {
  fence_for_tma();
  named_sync(1 + w, 128);
  before();
  if (threadIdx.x % 128 == 0) {
    store();
    tma_store_commit();
    tma_store_wait_read<0>();
    barrier_arrive(own_empty);
  }
  __syncwarp();
}

// Threads of a CTA: the warpgroups that compute, then one with the loader, which gives its registers to them.
template <int kWarpgroups>
struct AttentionThreads {
  static constexpr int kCompute = kWarpgroups * 128, kCount = kCompute + 128;
  static constexpr int kLoaderRegisters = kWarpgroups == 2 ? 24 : 32, kComputeRegisters = kWarpgroups == 2 ? 240 : 160;
};

// Readies the barriers and runs the two roles of a CTA's threads.
template <class L, class Load, class Compute>
__device__ __forceinline__ void share_roles(const AttentionBarriers<L>& barrier, const Load& load, const Compute& compute) {
  using T = AttentionThreads<L::kWarpgroups>;
  if (threadIdx.x == 0) barrier.init();
  __syncthreads();
  if (threadIdx.x >= T::kCompute) {
    registers_down<T::kLoaderRegisters>();
    if (threadIdx.x == T::kCompute) load();
  } else {
    registers_up<T::kComputeRegisters>();
    compute(__shfl_sync(~0u, static_cast<int>(threadIdx.x / 128),
                        0));  // from one lane: the compiler then keeps what follows in uniform registers
  }
}

// ---- a kernel whose warpgroups own queries ------------------------------------------------------------------------------------------

// A tile of queries and the warpgroup w that owns it. What the loader copied lies at `at`, and `empty` is the barrier to arrive at when it is
// used up. The item's tiles of keys end before `end`; `ring` stands at the first. `memory`: the CTA's.
template <int kStages>
struct OwnQueries {
  const Item& item;
  int w, tile, end;
  uint32_t memory, at, empty;
  Ring<kStages>& ring;
};

// The two roles of its threads. load_tile(item, to, tile, full) copies the kOwn tiles of a warpgroup; compute(OwnQueries) leaves the ring at
// `end` and sees to it that somebody arrives at `empty`.
template <class L, class LoadTile, class Compute>
__device__ __forceinline__ void walk_items_of_queries(const AttentionMaps& maps, const AttentionWork& work, const LoadTile& load_tile,
                                                      const Compute& compute) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t memory = shared_address(shared);
  const AttentionBarriers<L> barrier(memory);
  const auto end_of = [&](const Item& item) { return min((item.group + 1) * L::kWarpgroups, work.tiles); };
  const auto load = [&] {
    Ring<L::kStages> ring{barrier.full, barrier.empty};
    Item item;
    for (int n = 0; find_item<true>(work, n, item); ++n) {
      load_own(work, item, n, memory, barrier, [&](uint32_t to, int tile, uint32_t full) { load_tile(item, to, tile, full); });
      const int end = end_of(item);
      for (int tile = 0; tile < end; ++tile, ring = ring.next()) load_keys(maps, work, item, tile, memory, ring);
    }
  };
  const auto walk = [&](int w) {
    Ring<L::kStages> ring{barrier.full, barrier.empty};
    Item item;
    for (int n = 0; find_item<true>(work, n, item); ++n) {
      const int tile = tile_of<L::kWarpgroups>(item, w, n), end = end_of(item), place = 2 * w + (n & 1);
      const uint32_t at = L::own(memory, place), empty = barrier.own_empty + 8 * place;
      barrier_wait(barrier.own_full + 8 * place, n >> 1 & 1);
      if (tile >= work.tiles) {
        if (threadIdx.x % 128 == 0) barrier_arrive(empty);
        pass_over(ring, end);
        continue;
      }
      compute(OwnQueries<L::kStages>{item, w, tile, end, memory, at, empty, ring});
    }
  };
  share_roles(barrier, load, walk);
}

#endif  // __CUDACC__

// Boxes of 64 x 64 values of matrices that lie one behind the other (launch.cuh).
CUtensorMap stack_map(const bf16* p, int64_t matrices, int64_t rows, int64_t columns);

// Throws as attention.h says.
void require_attention(const gpt2::ops::AttentionShape& s, std::initializer_list<const void*> tensors);

int multiprocessors();  // of the current device

AttentionWork attention_work(const gpt2::ops::AttentionShape& s, int warpgroups);

// As many CTAs as there are multiprocessors, or items.
template <class L, class Kernel, class... Arguments>
void launch_attention(Kernel kernel, const gpt2::ops::AttentionShape& s, cudaStream_t stream, Arguments... arguments) {
  const AttentionWork work = attention_work(s, L::kWarpgroups);
  constexpr int kThreads = (L::kWarpgroups + 1) * 128;
  STEPSCOPE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kBytes));
  kernel<<<static_cast<unsigned>(std::min(multiprocessors(), work.items)), kThreads, L::kBytes, stream>>>(arguments..., work);
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace hopper
