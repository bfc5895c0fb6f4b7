// A product for Hopper whose tail is any function of the fp32 sums: out = tail(A B), bf16 in, bf16 out, sums in fp32.
//
// One CTA per SM, 384 threads: one warpgroup with a loader and a fetcher (one thread each), two warpgroups that multiply. Every CTA takes
// tiles of 128 x kN results in turn (persistent). A cluster of across_m x across_n CTAs works on neighbouring tiles: CTAs of the same
// rows share A, CTAs of the same columns share B; each copies its part of a shared tile into all of them (multicast), so that a tile of A is
// read from the L2 once for across_n CTAs. For 128 x 192 and 2 x 2 CTAs that is 20 KB from L2 for each 64 of K, against 40 KB alone.
//   loader      TMA copies the next 64 columns of A and B into a ring of places;
//   multipliers kTurns: each takes every second tile whole, so that one works on its tail while the other keeps the tensor cores busy.
//               Else both work on the same tile, 64 rows each, the second `lag` places behind the first, so that their tails do not
//               coincide. The sums never leave the registers before the tail.
//   fetcher     where a tail reads a matrix of the results' shape, TMA copies its tile to where the results will be staged, ahead of time.
//   tail        sums (and what was fetched) become results, which are staged as bf16 in shared memory; TMA stores them.
// Rows of all tiles in shared memory are 128 bytes long with the 128-byte swizzle: 16-byte piece c of row r lies at c ^ (r % 8).
#pragma once
#include "gpt2/ops/storage.cuh"
#include "mixed/hopper/multiply.h"
#include "mixed/hopper/ptx.cuh"

namespace hopper {

inline constexpr int kTileM = 128, kTileK = 64, kMaxStages = 8;
inline constexpr int kThreads = 384;
inline constexpr int kBytesBlock = 64 * 128;  // 64 rows of 64 bf16: what TMA stores and fetches at once
inline constexpr int kBytesBarriers = 256;
inline constexpr int kMaxSharedBytes = 232448;

// What a width of tiles decides.
template <int kN>
struct Sizes {
  static constexpr int kBytesA = kTileM * kTileK * 2, kBytesB = kN * kTileK * 2, kBytesStage = kBytesA + kBytesB;
  static constexpr int kBytesStaged = kTileM * kN * 2;
  static constexpr int kBytesSums = 4 * kN * 4;  // column sums: one row per warp
  static constexpr int shared_bytes(int stages) { return stages * kBytesStage + kBytesStaged + kBytesBarriers + kBytesSums; }
};

struct Shape {
  int M, N, K;  // A: M x K; results: M x N
};

// What TMA needs to know of the matrices.
struct Maps {
  CUtensorMap a, b, out, second, given;
};

#ifdef __CUDACC__

using gpt2::ops::pack_bf16;

// This CTA's place in its cluster and the tiles of all clusters.
struct Work {
  int m_part, n_part;        // place in the cluster
  int rows, columns, count;  // of cluster tiles
  int cluster, clusters, group;

  struct Tile {
    int m, n;  // first row and column of this CTA's tile
  };
  template <int kN>
  __device__ __forceinline__ Tile tile(int t, const Plan& plan) const {
    const int before = t / (group * columns) * group, high = min(group, rows - before), within = t - before * columns;
    return {((before + within % high) * plan.across_m + m_part) * kTileM, (within / high * plan.across_n + n_part) * kN};
  }
  // Tile number u of this CTA.
  __device__ __forceinline__ int number(int u) const { return cluster + u * clusters; }
};

template <int kN>
__device__ __forceinline__ Work work_of(const Shape& s, const Plan& plan) {
  const int size = plan.across_m * plan.across_n, rank = static_cast<int>(cluster_rank());
  Work w;
  w.m_part = rank % plan.across_m;
  w.n_part = rank / plan.across_m;
  w.rows = (s.M + plan.across_m * kTileM - 1) / (plan.across_m * kTileM);
  w.columns = (s.N + plan.across_n * kN - 1) / (plan.across_n * kN);
  w.count = w.rows * w.columns;
  w.cluster = static_cast<int>(blockIdx.x) / size;
  w.clusters = static_cast<int>(gridDim.x) / size;
  w.group = plan.group;
  return w;
}

// A place in the ring and the parity of its round.
struct Place {
  int index = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next(int stages) {
    if (++index == stages) index = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(int places, int stages) {
    const int to = index + places;
    parity ^= static_cast<uint32_t>(to / stages) & 1;
    index = to % stages;
  }
};

// Addresses. `full`, `empty`: one barrier per place of the ring. The others: one phase per tile of the CTA. `taken`: all places of the tile
// have been waited for; `staging_free`: the staged tile has been stored; `given`: fetched.
// The trap: a wait names the parity of a phase, so whoever waits must know that the phase before has ended. Of a place whose phases two
// multipliers wait for in turns neither knows it alone: the second first waits for `taken`, `staging_free` before `given` likewise.
struct Barriers {
  uint32_t full, empty, taken, staging_free, given;
};

// kAcross*: the operand is stored as K x M or K x N, so that a tile of it is blocks of 64 columns whose rows are k.
template <int kN, bool kAcrossA, bool kAcrossB>
__device__ __forceinline__ void load_tiles(const Maps& maps, const Shape& s, const Plan& plan, const Work& work, uint32_t ring,
                                           const Barriers& barrier) {
  using Size = Sizes<kN>;
  uint16_t to_a = 0;  // CTAs of the same rows
  for (int i = 0; i < plan.across_n; ++i) to_a |= static_cast<uint16_t>(1u << (work.m_part + plan.across_m * i));
  const auto to_b = static_cast<uint16_t>(((1u << plan.across_m) - 1) << (plan.across_m * work.n_part));
  const auto load = [](uint32_t to, const CUtensorMap* map, int column, int row, uint32_t full, uint16_t ctas, bool shared) {
    if (shared)
      tma_load_multicast(to, map, column, row, full, ctas);
    else
      tma_load(to, map, column, row, full);
  };
  const bool share_a = plan.across_n > 1, share_b = plan.across_m > 1;
  Place place;
  for (int u = 0; work.number(u) < work.count; ++u) {
    const auto tile = work.tile<kN>(work.number(u), plan);
    for (int k = 0; k < s.K; k += kTileK, place.next(plan.stages)) {
      barrier_wait(barrier.empty + 8 * place.index, place.parity ^ 1);
      const uint32_t full = barrier.full + 8 * place.index, a = ring + place.index * Size::kBytesStage, b = a + Size::kBytesA;
      barrier_arrive_expecting(full, Size::kBytesStage);
      if constexpr (kAcrossA) {
        const int part = kTileK / plan.across_n * work.n_part;
#pragma unroll
        for (int block = 0; block < kTileM / 64; ++block)
          load(a + block * kBytesBlock + part * 128, &maps.a, tile.m + block * 64, k + part, full, to_a, share_a);
      } else {
        const int part = kTileM / plan.across_n * work.n_part;
        load(a + part * 128, &maps.a, k, tile.m + part, full, to_a, share_a);
      }
      if constexpr (kAcrossB) {
        const int part = kTileK / plan.across_m * work.m_part;
#pragma unroll
        for (int block = 0; block < kN / 64; ++block)
          load(b + block * kBytesBlock + part * 128, &maps.b, tile.n + block * 64, k + part, full, to_b, share_b);
      } else {
        const int part = kN / plan.across_m * work.m_part;
        load(b + part * 128, &maps.b, k, tile.n + part, full, to_b, share_b);
      }
    }
  }
}

// The tiles of the matrix that the tail reads, each as soon as the staged results of the tile before have been stored.
template <int kN>
__device__ __forceinline__ void fetch_given(const Maps& maps, const Plan& plan, const Work& work, uint32_t staging,
                                            const Barriers& barrier) {
  for (int u = 0; work.number(u) < work.count; ++u) {
    const auto tile = work.tile<kN>(work.number(u), plan);
    barrier_wait(barrier.staging_free, (u & 1) ^ 1);
    barrier_arrive_expecting(barrier.given, Sizes<kN>::kBytesStaged);
#pragma unroll
    for (int i = 0; i < 2 * (kN / 64); ++i)
      tma_load(staging + i * kBytesBlock, &maps.given, tile.n + i % (kN / 64) * 64, tile.m + i / (kN / 64) * 64, barrier.given);
  }
}

// Sums of a multiplier: kBlocks blocks of 64 rows, kN columns. Of a thread, sum[b][8 j + 4 h + 2 i + e] is at row 64 b + 16 warp + lane / 4
// + 8 i, column 16 j + 8 h + 2 (lane % 4) + e.
template <int kN, int kBlocks, bool kAcrossA, bool kAcrossB>
__device__ __forceinline__ void multiply_tile(float (&sum)[kBlocks][kN / 2], const Shape& s, const Plan& plan, uint32_t ring,
                                              const Barriers& barrier, Place& place, int which, uint32_t release_to, bool releases,
                                              bool leads, bool announces) {
  using Size = Sizes<kN>;
  int behind = -1, step = 0;
  for (int k = 0; k < s.K; k += kTileK, ++step) {
    barrier_wait(barrier.full + 8 * place.index, place.parity);
    const uint32_t a = ring + place.index * Size::kBytesStage + which * kBytesBlock,
                   b = ring + place.index * Size::kBytesStage + Size::kBytesA;
    wgmma_begin();
#pragma unroll
    for (int kk = 0; kk < kTileK / 16; ++kk) {
      // Blocks of 64 columns lie kBytesBlock apart; the next 16 of k are 16 rows on.
      const uint64_t right = kAcrossB ? operand(b + kk * 2048, kBytesBlock, 1024) : operand(b + kk * 32, 16, 1024);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const uint32_t at = a + block * kBytesBlock;
        const uint64_t left = kAcrossA ? operand(at + kk * 2048, kBytesBlock, 1024) : operand(at + kk * 32, 16, 1024);
        wgmma_64xNx16<kN, kAcrossA, kAcrossB>(sum[block], left, right, k + kk > 0);
      }
    }
    wgmma_commit();
    if (announces && k + kTileK >= s.K) barrier_arrive(barrier.taken);
    // The products of the place before are done: whoever fills it may fill it again.
    wgmma_wait<1>();
    if (behind >= 0 && releases) barrier_arrive_at(barrier.empty + 8 * behind, release_to);
    behind = place.index;
    place.next(plan.stages);
    if (leads && step == plan.lag) named_arrive(3, 256);
  }
  wgmma_wait<0>();
  if (releases) barrier_arrive_at(barrier.empty + 8 * behind, release_to);
}

// Turns the sums of blocks kFirst .. kFirst + kCount - 1 into staged results. Slot of a block: its own, or with two outputs 0 and 1.
template <int kN, int kBlocks, int kFirst, int kCount, class Tail>
__device__ __forceinline__ void stage(float (&sum)[kBlocks][kN / 2], Tail& tail, const Shape& s, int m, int n, uint32_t staging,
                                      float* column_sums, int tile_n) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int row = warp * 16 + lane % 16, piece = lane / 16;  // this lane's row of the four matrices that a warp stores at once
  const int r = m + warp * 16 + lane / 4, c = n + 2 * (lane % 4);
  typename Tail::Row of_row[kCount][2];
  float row_sum[kCount][2] = {};
#pragma unroll
  for (int b = 0; b < kCount; ++b)
#pragma unroll
    for (int i = 0; i < 2; ++i) of_row[b][i] = tail.row(r + 64 * (kFirst + b) + 8 * i, s);
#pragma unroll
  for (int j = 0; j < kN / 16; ++j) {
    typename Tail::Column of_column[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) of_column[h] = tail.column(c + 16 * j + 8 * h, s);
    float total[4] = {0, 0, 0, 0};
#pragma unroll
    for (int b = 0; b < kCount; ++b) {
      const int piece_at = 2 * j + piece;
      const uint32_t in_slot = piece_at / 8 * kBytesBlock + row * 128 + ((piece_at % 8) ^ (row % 8)) * 16;
      const uint32_t slot = staging + (Tail::kOutputs == 2 ? 0 : kFirst + b) * (kN / 64 * kBytesBlock) + in_slot;
      uint32_t given[4] = {0, 0, 0, 0}, first[4], second[4];
      if constexpr (Tail::kGiven) load_matrices(slot, given);
#pragma unroll
      for (int p = 0; p < 4; ++p) {  // p = 2 h + i
        float* d = &sum[kFirst + b][8 * j + 2 * p];
        const auto y = tail.pair(of_row[b][p & 1], of_column[p >> 1], d[0], d[1], given[p]);
        first[p] = pack_bf16(y.first[0], y.first[1]);
        if constexpr (Tail::kOutputs == 2) second[p] = pack_bf16(y.second[0], y.second[1]);
        if constexpr (Tail::kColumnSums) total[2 * (p >> 1)] += y.first[0], total[2 * (p >> 1) + 1] += y.first[1];
        if constexpr (Tail::kRowSums) row_sum[b][p & 1] += y.first[0] + y.first[1];
      }
      store_matrices(slot, first[0], first[1], first[2], first[3]);
      if constexpr (Tail::kOutputs == 2) store_matrices(slot + kN / 64 * kBytesBlock, second[0], second[1], second[2], second[3]);
    }
    if constexpr (Tail::kColumnSums) {
      // Over the eight lanes of the same columns; each step halves what a lane still answers for. In the end lane l has the column of
      // total[bit 4 of l * 2 + bit 3 of l], summed once more over bit 2.
      const bool high = lane & 16, odd = lane & 8;
      const float mine0 = high ? total[2] : total[0], mine1 = high ? total[3] : total[1];
      const float pass0 = high ? total[0] : total[2], pass1 = high ? total[1] : total[3];
      const float half0 = mine0 + __shfl_xor_sync(~0u, pass0, 16), half1 = mine1 + __shfl_xor_sync(~0u, pass1, 16);
      float one = (odd ? half1 : half0) + __shfl_xor_sync(~0u, odd ? half0 : half1, 8);
      one += __shfl_xor_sync(~0u, one, 4);
      if ((lane & 4) == 0) column_sums[warp * kN + 16 * j + 8 * (lane >> 4) + 2 * (lane % 4) + (lane >> 3 & 1)] = one;
    }
  }
  if constexpr (Tail::kRowSums) {
#pragma unroll
    for (int b = 0; b < kCount; ++b)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float all = row_sum[b][i];
        all += __shfl_xor_sync(~0u, all, 1);
        all += __shfl_xor_sync(~0u, all, 2);
        if (lane % 4 == 0 && n < s.N) tail.row_sum(all, r + 64 * (kFirst + b) + 8 * i, tile_n, s);
      }
  }
}

// Stores what was staged. Called by the whole multiplier; its first thread returns when shared memory has been read.
template <int kN, int kOutputs>
__device__ __forceinline__ void store_staged(const Maps& maps, uint32_t staging, int m, int n, int blocks, int name) {
  fence_for_tma();
  named_sync(name, 128);
  if (threadIdx.x % 128 == 0) {
#pragma unroll
    for (int i = 0; i < kN / 64; ++i)
      for (int b = 0; b < blocks; ++b) tma_store(&maps.out, staging + (b * (kN / 64) + i) * kBytesBlock, n + 64 * i, m + 64 * b);
    if constexpr (kOutputs == 2)
#pragma unroll
      for (int i = 0; i < kN / 64; ++i) tma_store(&maps.second, staging + (kN / 64 + i) * kBytesBlock, n + 64 * i, m);
    tma_store_commit();
  }
}

// The multiplier whose tiles are whole: every second one of its CTA's.
template <int kN, bool kAcrossA, bool kAcrossB, class Tail>
__device__ __forceinline__ void multiply_in_turns(const Maps& maps, const Shape& s, const Plan& plan, const Work& work, uint32_t ring,
                                                  uint32_t staging, const Barriers& barrier, float* column_sums, int which,
                                                  uint32_t release_to, bool releases, Tail& tail) {
  const int thread = threadIdx.x % 128, steps = (s.K + kTileK - 1) / kTileK;
  Place place;
  if (which == 1) place.skip(steps, plan.stages);
  for (int u = which; work.number(u) < work.count; u += 2) {
    const auto tile = work.tile<kN>(work.number(u), plan);
    float sum[2][kN / 2];
    barrier_wait(barrier.taken, (u & 1) ^ 1);
    multiply_tile<kN, 2, kAcrossA, kAcrossB>(sum, s, plan, ring, barrier, place, 0, release_to, releases, false, thread == 0);
    place.skip(steps, plan.stages);
    barrier_wait(barrier.staging_free, (u & 1) ^ 1);
    if constexpr (Tail::kGiven) barrier_wait(barrier.given, u & 1);
    if constexpr (Tail::kOutputs == 2) {
      stage<kN, 2, 0, 1>(sum, tail, s, tile.m, tile.n, staging, column_sums, tile.n / kN);
      store_staged<kN, 2>(maps, staging, tile.m, tile.n, 1, 1 + which);
      if (thread == 0) tma_store_wait_read();
      named_sync(1 + which, 128);
      stage<kN, 2, 1, 1>(sum, tail, s, tile.m, tile.n, staging, column_sums, tile.n / kN);
      store_staged<kN, 2>(maps, staging, tile.m + 64, tile.n, 1, 1 + which);
    } else {
      stage<kN, 2, 0, 2>(sum, tail, s, tile.m, tile.n, staging, column_sums, tile.n / kN);
      store_staged<kN, 1>(maps, staging, tile.m, tile.n, 2, 1 + which);
    }
    if constexpr (Tail::kColumnSums) {
      for (int c = thread; c < kN; c += 128)  // behind the barrier of store_staged
        tail.column_sum(column_sums[c] + column_sums[kN + c] + column_sums[2 * kN + c] + column_sums[3 * kN + c], tile.m / kTileM,
                        tile.n + c, s);
      named_sync(1 + which, 128);
    }
    if (thread == 0) {
      tma_store_wait_read();
      barrier_arrive(barrier.staging_free);
    }
  }
}

// Both multipliers on each tile, 64 rows each.
template <int kN, bool kAcrossA, bool kAcrossB, class Tail>
__device__ __forceinline__ void multiply_together(const Maps& maps, const Shape& s, const Plan& plan, const Work& work, uint32_t ring,
                                                  uint32_t staging, const Barriers& barrier, int which, uint32_t release_to, bool releases,
                                                  Tail& tail) {
  static_assert(!Tail::kGiven && !Tail::kColumnSums && Tail::kOutputs == 1, "tails that need more take turns");
  // Neither can then be a whole tile ahead, which named barriers would not survive.
  const bool lagging = plan.lag > 0 && s.K > (plan.stages + plan.lag) * kTileK;
  staging += which * (kN / 64 * kBytesBlock);
  Place place;
  for (int u = 0; work.number(u) < work.count; ++u) {
    const auto tile = work.tile<kN>(work.number(u), plan);
    float sum[1][kN / 2];
    if (lagging && which == 1) named_sync(3, 256);
    multiply_tile<kN, 1, kAcrossA, kAcrossB>(sum, s, plan, ring, barrier, place, which, release_to, releases, lagging && which == 0, false);
    if (threadIdx.x % 128 == 0) tma_store_wait_read();
    named_sync(1 + which, 128);
    stage<kN, 1, 0, 1>(sum, tail, s, tile.m + 64 * which, tile.n, staging, nullptr, tile.n / kN);
    store_staged<kN, 1>(maps, staging, tile.m + 64 * which, tile.n, 1, 1 + which);
  }
  if (threadIdx.x % 128 == 0) tma_store_wait_read();
}

template <int kN, bool kTurns, bool kAcrossA, bool kAcrossB, class Tail>
__global__ __launch_bounds__(kThreads, 1) void hopper_product_kernel(const __grid_constant__ Maps maps, Shape s, Plan plan, Tail tail) {
  using Size = Sizes<kN>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t ring = shared_address(memory), staging = ring + plan.stages * Size::kBytesStage, at = staging + Size::kBytesStaged;
  const Barriers barrier{at, at + 8 * kMaxStages, at + 16 * kMaxStages, at + 16 * kMaxStages + 8, at + 16 * kMaxStages + 16};
  const int writers = plan.across_m + plan.across_n - 1;  // CTAs that fill places of this one, and whose places this one fills
  if (threadIdx.x == 0) {
    for (int i = 0; i < plan.stages; ++i) {
      barrier_init(barrier.full + 8 * i, 1);  // the loader; the bytes do the rest
      barrier_init(barrier.empty + 8 * i, writers * (kTurns ? 1 : 2));
    }
    barrier_init(barrier.taken, 1);
    barrier_init(barrier.staging_free, 1);
    barrier_init(barrier.given, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();
  const Work work = work_of<kN>(s, plan);
  // Registers of a thread: 168 at the start, so 504 for three warpgroups. The loader is easier with 40; two matrices of results need them more.
  constexpr int kLoaderRegisters = Tail::kOutputs == 2 ? 24 : 40;
  if (threadIdx.x < 128) {
    registers_down<kLoaderRegisters>();
    if (threadIdx.x == 0) load_tiles<kN, kAcrossA, kAcrossB>(maps, s, plan, work, ring, barrier);
    if constexpr (Tail::kGiven)
      if (threadIdx.x == 32) fetch_given<kN>(maps, plan, work, staging, barrier);
    __syncwarp();
  } else {
    registers_up<(504 - kLoaderRegisters) / 2>();
    const int which = static_cast<int>(threadIdx.x / 128) - 1, thread = threadIdx.x % 128;
    // The CTAs of the same columns, then the others of the same rows.
    const int beyond = thread - plan.across_m, other = beyond < work.n_part ? beyond : beyond + 1;
    const auto release_to =
        static_cast<uint32_t>(thread < plan.across_m ? thread + plan.across_m * work.n_part : work.m_part + plan.across_m * other);
    if constexpr (kTurns)
      multiply_in_turns<kN, kAcrossA, kAcrossB>(maps, s, plan, work, ring, staging, barrier,
                                                reinterpret_cast<float*>(memory + (at - ring) + kBytesBarriers), which, release_to,
                                                thread < writers, tail);
    else
      multiply_together<kN, kAcrossA, kAcrossB>(maps, s, plan, work, ring, staging, barrier, which, release_to, thread < writers, tail);
  }
  cluster_sync();  // another CTA may still arrive here
}

#endif  // __CUDACC__

}  // namespace hopper
