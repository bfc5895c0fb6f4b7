// A product for Hopper whose tail is any function of the fp32 sums: out = tail(A B), bf16 in, bf16 out, sums in fp32.
//
// One CTA per SM, 384 threads: one warpgroup with a loader and a carrier (one thread each), two warpgroups that multiply. Every CTA takes
// tiles of 128 x kN results in turn (persistent). A cluster of across_m x across_n CTAs works on neighbouring tiles: CTAs of the same
// rows share A, CTAs of the same columns share B; each copies its part of a shared tile into all of them (multicast), so that a tile of A is
// read from the L2 once for across_n CTAs. For 128 x 192 and 2 x 2 CTAs that is 20 KB from L2 for each 64 of K, against 40 KB alone.
//   loader      TMA copies the next 64 columns of A and B into a ring of places;
//   multipliers each takes every second tile whole, so that one works on its tail while the other keeps the tensor cores busy. The sums
//               never leave the registers before the tail.
//   tail        sums become results, which are staged as bf16 in shared memory, 8 KB at a time;
//   carrier     stores them by TMA while the next are made, and where a tail reads a matrix of the results' shape it fetches that by TMA to the
//               places where results will be staged, ahead of time.
// Staging takes 24 KB, so that the ring has five places of 40 KB: with four, a multiplier waited for memory (of the five, one is being read,
// one is the next, three are under way).
// Rows of operands in shared memory are 128 bytes long with the 128-byte swizzle: 16-byte piece c of row r lies at c ^ (r % 8). Rows of
// staged results are 64 bytes long with the 64-byte swizzle: c ^ (r / 2 % 4).
#pragma once
#include "gpt2/ops/storage.cuh"
#include "mixed/hopper/multiply.h"
#include "mixed/hopper/ptx.cuh"

namespace hopper {

inline constexpr int kTileK = 64, kMaxStages = 8;
inline constexpr int kThreads = 384;
inline constexpr int kBytesBlock = 64 * 128;                               // 64 rows of 64 bf16
inline constexpr int kBytesPiece = 64 * 64, kBytesPair = 2 * kBytesPiece;  // 64 rows of 32 bf16: results on their way
inline constexpr int kBytesBarriers = 256;
inline constexpr int kMaxSharedBytes = 232448;

// What a width of tiles decides.
template <int kN>
struct Sizes {
  static constexpr int kBytesA = kTileM * kTileK * 2, kBytesB = kN * kTileK * 2, kBytesStage = kBytesA + kBytesB;
  static constexpr int kStaged = kN == 192 ? 3 : 4;  // places for staged pairs, of which a tile has a multiple
  static constexpr int kBytesSums = 2 * kN * 4;      // column sums: one row for two warps; else a row for each multiplier
  static constexpr int shared_bytes(int stages, int staged) {
    return stages * kBytesStage + staged * kBytesPair + kBytesBarriers + kBytesSums;
  }
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

// Addresses. `full`, `empty`: one barrier per place of the ring. `taken`: all places of a tile have been waited for; `staged_all`: all its
// results are staged. Per place of staging: `staged`: a pair is there to be stored; `free`: it has been stored and, where a tail reads a
// matrix, the next pair of that is there.
// The trap: a wait names the parity of a phase, so whoever waits must know that the phase before has ended. Of a place whose phases two
// multipliers wait for in turns neither knows it alone: the second first waits for `taken` of the ring, for `staged_all` of staging.
struct Barriers {
  uint32_t full, empty, taken, staged_all, staged, free;
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

// Sums of a tile in its multiplier. Of a thread, sum[b][8 j + 4 h + 2 i + e] is at row 64 b + 16 warp + lane / 4 + 8 i, column 16 j + 8 h +
// 2 (lane % 4) + e.
template <int kN, bool kAcrossA, bool kAcrossB>
__device__ __forceinline__ void multiply_tile(float (&sum)[2][kN / 2], const Shape& s, const Plan& plan, uint32_t ring,
                                              const Barriers& barrier, Place& place, uint32_t release_to, bool releases, bool announces) {
  using Size = Sizes<kN>;
  int behind = -1;
  for (int k = 0; k < s.K; k += kTileK) {
    barrier_wait(barrier.full + 8 * place.index, place.parity);
    const uint32_t a = ring + place.index * Size::kBytesStage, b = a + Size::kBytesA;
    wgmma_begin();
#pragma unroll
    for (int kk = 0; kk < kTileK / 16; ++kk) {
      // Blocks of 64 columns lie kBytesBlock apart; the next 16 of k are 16 rows on.
      const uint64_t right = kAcrossB ? operand(b + kk * 2048, kBytesBlock, 1024) : operand(b + kk * 32, 16, 1024);
#pragma unroll
      for (int block = 0; block < 2; ++block) {
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
  }
  wgmma_wait<0>();
  if (releases) barrier_arrive_at(barrier.empty + 8 * behind, release_to);
}

// How the results of a tile pass through shared memory: in pairs of pieces of 64 rows x 32 columns, one pair after the other. With two
// outputs a pair is both of them for the same rows; else it is the same columns of both blocks of 64 rows.
template <int kN, class Tail>
struct Pairs {
  static constexpr int kGroups = kN / 32, kCount = Tail::kOutputs == 2 ? 2 * kGroups : kGroups;
  static constexpr bool kTwo = Tail::kOutputs == 2;
  __device__ static constexpr int column(int q) { return q % kGroups * 32; }  // in the tile
  __device__ static constexpr int block(int q, int piece) { return kTwo ? q / kGroups : piece; }
};

// Sums over the eight lanes of the same columns; each step halves what a lane still answers for. In the end lane l has the column of
// total[bit 4 of l * 2 + bit 3 of l], in two lanes that differ in bit 2.
__device__ __forceinline__ float summed_over_lanes(const float (&total)[4], int lane) {
  const bool high = lane & 16, odd = lane & 8;
  const float mine0 = high ? total[2] : total[0], mine1 = high ? total[3] : total[1];
  const float pass0 = high ? total[0] : total[2], pass1 = high ? total[1] : total[3];
  const float half0 = mine0 + __shfl_xor_sync(~0u, pass0, 16), half1 = mine1 + __shfl_xor_sync(~0u, pass1, 16);
  const float one = (odd ? half1 : half0) + __shfl_xor_sync(~0u, odd ? half0 : half1, 8);
  return one + __shfl_xor_sync(~0u, one, 4);
}

// What a thread keeps of its tile between the pairs.
template <int kN, class Tail>
struct Kept {
  typename Tail::Row row[2][2];  // of block, row / 8 % 2
  float row_sum[2][2] = {};
  float column_sum[kN / 16];  // over the rows of this warp, one column of each 16
};

// Turns the sums of pair q into staged results at `pair`. A thread's sums lie as multiply_tile says; a warp stores four matrices of 8 x 8
// at once, and each lane gives the address of one row of them.
template <int kN, class Tail>
__device__ __forceinline__ void stage_pair(float (&sum)[2][kN / 2], Tail& tail, Kept<kN, Tail>& kept, int n, int q, uint32_t pair,
                                           const float* of_columns) {
  using P = Pairs<kN, Tail>;
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, row = warp * 16 + lane % 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t at = pair + row * 64 + ((2 * half + lane / 16) ^ (row >> 1 & 3)) * 16;
    typename Tail::Column columns[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int c = P::column(q) + 16 * half + 8 * h + 2 * (lane % 4);
      columns[h] = tail.column(n + c, of_columns + c);
    }
    float total[4] = {0, 0, 0, 0};
#pragma unroll
    for (int piece = 0; piece < (P::kTwo ? 1 : 2); ++piece) {
      const int b = P::block(q, piece);
      uint32_t given[4] = {0, 0, 0, 0}, first[4], second[4];
      if constexpr (Tail::kGiven) load_matrices(at + piece * kBytesPiece, given);
      const int from = P::column(q) / 2 + 8 * half;
      const float x[8] = {sum[b][from],     sum[b][from + 1], sum[b][from + 2], sum[b][from + 3],
                          sum[b][from + 4], sum[b][from + 5], sum[b][from + 6], sum[b][from + 7]};
      float y[8], z[8];
      tail.eight(kept.row[b], columns, x, given, y, z);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        first[p] = pack_bf16(y[2 * p], y[2 * p + 1]);
        if constexpr (P::kTwo) second[p] = pack_bf16(z[2 * p], z[2 * p + 1]);
        if constexpr (Tail::kColumnSums) total[p / 2 * 2] += y[2 * p], total[p / 2 * 2 + 1] += y[2 * p + 1];
        if constexpr (Tail::kRowSums) kept.row_sum[b][p % 2] += y[2 * p] + y[2 * p + 1];
      }
      store_matrices(at + piece * kBytesPiece, first[0], first[1], first[2], first[3]);
      if constexpr (P::kTwo) store_matrices(at + kBytesPiece, second[0], second[1], second[2], second[3]);
    }
    if constexpr (Tail::kColumnSums) kept.column_sum[2 * q + half] = summed_over_lanes(total, lane);
  }
}

// Stores what is staged, pair after pair, and fetches what the tail reads to the places that become free. One thread; it is a step behind
// with the places, so that no multiplier waits for its stores.
template <int kN, int kStaged, class Tail>
__device__ __forceinline__ void carry_results(const Maps& maps, const Plan& plan, const Work& work, uint32_t staging,
                                              const Barriers& barrier) {
  using P = Pairs<kN, Tail>;
  static_assert(P::kCount % kStaged == 0);
  const auto fetch = [&](Work::Tile tile, int q) {
    const int place = q % kStaged;
    barrier_arrive_expecting(barrier.free + 8 * place, kBytesPair);
#pragma unroll
    for (int piece = 0; piece < 2; ++piece)
      tma_load(staging + place * kBytesPair + piece * kBytesPiece, &maps.given, tile.n + P::column(q), tile.m + 64 * P::block(q, piece),
               barrier.free + 8 * place);
  };
  // The place of the pair before q of tile u has been read.
  const auto release = [&](int u, int q) {
    if constexpr (Tail::kGiven) {
      const int next = q - 1 + kStaged, in_tile = next % P::kCount, number = work.number(u + next / P::kCount);
      if (number < work.count) fetch(work.tile<kN>(number, plan), in_tile);
    } else {
      barrier_arrive(barrier.free + 8 * ((q + kStaged - 1) % kStaged));
    }
  };
  if constexpr (Tail::kGiven)
    if (work.number(0) < work.count)
      for (int q = 0; q < kStaged; ++q) fetch(work.tile<kN>(work.number(0), plan), q);
  for (int u = 0; work.number(u) < work.count; ++u) {
    const auto tile = work.tile<kN>(work.number(u), plan);
    if (Tail::kGiven && work.number(u + 1) < work.count) {  // on its way from memory while this tile is made
      const auto next = work.tile<kN>(work.number(u + 1), plan);
      for (int q = 0; q < P::kCount; ++q)
        for (int piece = 0; piece < 2; ++piece) tma_prefetch(&maps.given, next.n + P::column(q), next.m + 64 * P::block(q, piece));
    }
    for (int q = 0; q < P::kCount; ++q) {
      const int place = q % kStaged;
      barrier_wait(barrier.staged + 8 * place, (u * (P::kCount / kStaged) + q / kStaged) & 1);
#pragma unroll
      for (int piece = 0; piece < 2; ++piece)
        tma_store(P::kTwo && piece == 1 ? &maps.second : &maps.out, staging + place * kBytesPair + piece * kBytesPiece,
                  tile.n + P::column(q), tile.m + 64 * P::block(q, piece));
      tma_store_commit();
      tma_store_wait_read<1>();
      if (u > 0 || q > 0) release(u, q);
    }
  }
  tma_store_wait_read<0>();
}

// The sums of a tile's columns over 128 rows: warps 0 and 1 write theirs, warps 2 and 3 add theirs.
template <int kN>
__device__ __forceinline__ void add_warps(const float (&of_warp)[kN / 16], float* columns, int name) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  float* to = columns + (warp & 1) * kN + 8 * (lane >> 4) + 2 * (lane % 4) + (lane >> 3 & 1);
#pragma unroll
  for (int add = 0; add < 2; ++add) {
    if ((warp >= 2) == (add == 1) && (lane & 4) == 0)
#pragma unroll
      for (int i = 0; i < kN / 16; ++i) to[16 * i] = add ? to[16 * i] + of_warp[i] : of_warp[i];
    named_sync(name, 128);
  }
}

// The tail of tile number u of this CTA, in kStaged places of shared memory for pairs. `columns`: what the tail has of each column, or two
// rows for column sums.
template <int kN, int kStaged, class Tail>
__device__ __forceinline__ void finish_tile(float (&sum)[2][kN / 2], const Shape& s, Work::Tile tile, int u, uint32_t staging,
                                            const Barriers& barrier, float* columns, int which, Tail& tail) {
  using P = Pairs<kN, Tail>;
  const int thread = threadIdx.x % 128, lane = thread % 32, first_row = tile.m + thread / 32 * 16 + lane / 4;
  Kept<kN, Tail> kept;
#pragma unroll
  for (int i = 0; i < 4; ++i) kept.row[i / 2][i % 2] = tail.row(first_row + 64 * (i / 2) + 8 * (i % 2), s);
  if constexpr (Tail::kPerColumn) named_sync(1 + which, 128);
  barrier_wait(barrier.staged_all, (u & 1) ^ 1);
#pragma unroll
  for (int q = 0; q < P::kCount; ++q) {
    const int place = q % kStaged, use = u * (P::kCount / kStaged) + q / kStaged;
    // A place that a tail reads is filled before its first use, another is free from the start.
    barrier_wait(barrier.free + 8 * place, (Tail::kGiven ? use : use + 1) & 1);
    stage_pair<kN>(sum, tail, kept, tile.n, q, staging + place * kBytesPair, columns);
    fence_for_tma();
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier.staged + 8 * place);
  }
  if constexpr (Tail::kColumnSums) {
    add_warps<kN>(kept.column_sum, columns, 1 + which);
    for (int c = thread; c < kN; c += 128) tail.column_sum(columns[c] + columns[kN + c], tile.m / kTileM, tile.n + c, s);
    named_sync(1 + which, 128);
  }
  if (lane == 0) barrier_arrive(barrier.staged_all);
  if constexpr (Tail::kRowSums) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float all = kept.row_sum[i / 2][i % 2];
      all += __shfl_xor_sync(~0u, all, 1);
      all += __shfl_xor_sync(~0u, all, 2);
      if (lane % 4 == 0 && tile.n < s.N) tail.row_sum(all, first_row + 64 * (i / 2) + 8 * (i % 2), tile.n / kN, s);
    }
  }
}

// One of the two multipliers: every second tile of its CTA's.
template <int kN, int kStaged, bool kAcrossA, bool kAcrossB, class Tail>
__device__ __forceinline__ void multiply_in_turns(const Shape& s, const Plan& plan, const Work& work, uint32_t ring, uint32_t staging,
                                                  const Barriers& barrier, float* columns, int which, uint32_t release_to, bool releases,
                                                  Tail& tail) {
  const int thread = threadIdx.x % 128, steps = (s.K + kTileK - 1) / kTileK;
  Place place;
  if (which == 1) place.skip(steps, plan.stages);
  for (int u = which; work.number(u) < work.count; u += 2) {
    const auto tile = work.tile<kN>(work.number(u), plan);
    if constexpr (Tail::kPerColumn) {
      named_sync(1 + which, 128);  // a slower warp may still read what was there of its tile before
      for (int c = thread; c < kN; c += 128) columns[c] = tail.of_column(tile.n + c, s);
    }
    float sum[2][kN / 2];
    barrier_wait(barrier.taken, (u & 1) ^ 1);
    multiply_tile<kN, kAcrossA, kAcrossB>(sum, s, plan, ring, barrier, place, release_to, releases, thread == 0);
    place.skip(steps, plan.stages);
    finish_tile<kN, kStaged>(sum, s, tile, u, staging, barrier, columns, which, tail);
  }
}

template <int kN, int kStaged, bool kAcrossA, bool kAcrossB, class Tail>
__global__ __launch_bounds__(kThreads, 1) void hopper_product_kernel(const __grid_constant__ Maps maps, Shape s, Plan plan, Tail tail,
                                                                     const int* only_if) {
  if (only_if != nullptr && *only_if == 0) return;
  using Size = Sizes<kN>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t ring = shared_address(memory), staging = ring + plan.stages * Size::kBytesStage, at = staging + kStaged * kBytesPair;
  const Barriers barrier{at,
                         at + 8 * kMaxStages,
                         at + 16 * kMaxStages,
                         at + 16 * kMaxStages + 8,
                         at + 16 * kMaxStages + 16,
                         at + 16 * kMaxStages + 16 + 8 * kStaged};
  const int writers = plan.across_m + plan.across_n - 1;  // CTAs that fill places of this one, and whose places this one fills
  if (threadIdx.x == 0) {
    for (int i = 0; i < plan.stages; ++i) {
      barrier_init(barrier.full + 8 * i, 1);  // the loader; the bytes do the rest
      barrier_init(barrier.empty + 8 * i, writers);
    }
    barrier_init(barrier.taken, 1);
    barrier_init(barrier.staged_all, 4);  // the warps of a multiplier
    for (int i = 0; i < kStaged; ++i) {
      barrier_init(barrier.staged + 8 * i, 4);
      barrier_init(barrier.free + 8 * i, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();
  const Work work = work_of<kN>(s, plan);
  // Registers of a thread: 168 at the start, so 504 for three warpgroups. The loader is easier with 40; two matrices of results need them more.
  constexpr int kLoaderRegisters = Tail::kOutputs == 2 ? 24 : 40;
  if (threadIdx.x < 128) {
    registers_down<kLoaderRegisters>();
    if (threadIdx.x == 0) load_tiles<kN, kAcrossA, kAcrossB>(maps, s, plan, work, ring, barrier);
    if (threadIdx.x == 32) carry_results<kN, kStaged, Tail>(maps, plan, work, staging, barrier);
    __syncwarp();
  } else {
    registers_up<(504 - kLoaderRegisters) / 2>();
    const int which = static_cast<int>(threadIdx.x / 128) - 1, thread = threadIdx.x % 128;
    // The CTAs of the same columns, then the others of the same rows.
    const int beyond = thread - plan.across_m, other = beyond < work.n_part ? beyond : beyond + 1;
    const auto release_to =
        static_cast<uint32_t>(thread < plan.across_m ? thread + plan.across_m * work.n_part : work.m_part + plan.across_m * other);
    // One row for what a tail has of columns, for each multiplier; column sums take both.
    float* columns = reinterpret_cast<float*>(memory + (at - ring) + kBytesBarriers) + (Tail::kPerColumn ? which * kN : 0);
    multiply_in_turns<kN, kStaged, kAcrossA, kAcrossB>(s, plan, work, ring, staging, barrier, columns, which, release_to, thread < writers,
                                                       tail);
  }
  cluster_sync();  // another CTA may still arrive here
}

#endif  // __CUDACC__

}  // namespace hopper
