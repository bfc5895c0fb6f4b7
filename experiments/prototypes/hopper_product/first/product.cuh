// A product for Hopper whose tail is any function of 8 neighbouring results: out = finish(A B^T), bf16 in, fp32 sums.
//
// One CTA per SM (512 threads, four warpgroups), two CTAs a cluster, tiles of 128 x 192 results taken in turn (persistent):
//   loader      one thread has TMA copy the next 64 columns of A (128 rows) and of B (192 rows) into a ring of kStages places. B is the
//               same for both CTAs of a cluster: each copies half of it into both.
//   multipliers two warpgroups, 64 rows each: wgmma over the ring; at the end of a tile its results, rounded to bf16, go to the staging
//               tile, and the next tile begins at once;
//   finisher    seven warps turn the staged tile into what is asked for (bias, GELU, column sums) while the next one is multiplied.
// Rows of all tiles in shared memory are 128 bytes long with the 128-byte swizzle: 16-byte piece c of row r lies at c ^ (r % 8).
#pragma once
#include "gpt2/ops/storage.cuh"
#include "mixed/hopper/ptx.cuh"

namespace hopper_first {

inline constexpr int kTileM = 128, kTileN = 192, kTileK = 64, kStages = 4;
inline constexpr int kThreads = 512, kFinisherWarps = 7;
inline constexpr int kBytesA = kTileM * kTileK * 2, kBytesB = kTileN * kTileK * 2, kBytesStage = kBytesA + kBytesB;
inline constexpr int kBytesStaged = kTileM / 2 * kTileN * 2;  // the rows of one multiplier
inline constexpr int kBytesBarriers = 128;
// Ring, staging tiles, barriers, one row of column sums.
inline constexpr int kSharedBytes = kStages * kBytesStage + 2 * kBytesStaged + kBytesBarriers + kTileN * 4;

struct Shape {
  int M, N, K;  // A: M x K; results: M x N
};

#ifdef __CUDACC__

using namespace hopper;  // the instructions
using gpt2::ops::pack_bf16;

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));  // volatile: stays behind the wait
  return v;
}

// Tile `t` of a cluster: rows begin at m (both CTAs: 256), columns at n. Eight rows of tiles together walk over the columns, so that what
// the running clusters read stays in the L2.
struct Tile {
  int m, n;
};
__device__ __forceinline__ Tile tile_of(int t, int pairs, int columns) {
  constexpr int kGroup = 8;
  const int group = t / (kGroup * columns), first = group * kGroup;
  const int rows = min(kGroup, pairs - first), within = t - first * columns;
  return {(first + within % rows) * 2 * kTileM, within / rows * kTileN};
}

// A place in the ring and the parity of its round.
struct Place {
  int index = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++index == kStages) index = 0, parity ^= 1;
  }
};

// Addresses. `full` and `empty`: one barrier per place of the ring; `staged` and `free`: one per multiplier.
struct Barriers {
  uint32_t full, empty, staged, free;
};

struct Tiles {
  int count, pairs, columns;
};

// kAcross: B is stored as K x N, so a tile of it is three blocks of 64 columns whose rows run along n; each CTA copies half of their rows.
template <bool kAcross>
__device__ __forceinline__ void load_tiles(const CUtensorMap* a, const CUtensorMap* b, const Shape& s, uint32_t ring,
                                           const Barriers& barrier, int rank, const Tiles& tiles) {
  Place place;
  for (int t = blockIdx.x / 2; t < tiles.count; t += gridDim.x / 2) {
    const Tile tile = tile_of(t, tiles.pairs, tiles.columns);
    for (int k = 0; k < s.K; k += kTileK, place.next()) {
      barrier_wait(barrier.empty + 8 * place.index, place.parity ^ 1);
      const uint32_t full = barrier.full + 8 * place.index, at = ring + place.index * kBytesStage;
      barrier_arrive_expecting(full, kBytesStage);
      tma_load(at, a, k, tile.m + rank * kTileM, full);
      if constexpr (kAcross) {
#pragma unroll
        for (int block = 0; block < kTileN / 64; ++block)
          tma_load_multicast(at + kBytesA + block * kTileK * 128 + rank * (kTileK / 2 * 128), b, tile.n + block * 64,
                             k + rank * (kTileK / 2), full, 3);
      } else {
        tma_load_multicast(at + kBytesA + rank * (kBytesB / 2), b, k, tile.n + rank * (kTileN / 2), full, 3);
      }
    }
  }
}

// `which` multiplier: 0 or 1, rows 64 * which of the tile.
template <bool kAcross>
__device__ __forceinline__ void multiply_tiles(const Shape& s, uint32_t ring, uint32_t staging, const Barriers& barrier, int which,
                                               const Tiles& tiles) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  // This lane's row of the four matrices that a warp stores at once: 16 rows, two pieces of 8 columns.
  const int row = warp * 16 + lane % 16, piece = lane / 16;
  staging += which * kBytesStaged;
  Place place;
  uint32_t round = 0;
  for (int t = blockIdx.x / 2; t < tiles.count; t += gridDim.x / 2, round ^= 1) {
    float sum[96];
    int behind = -1;
    for (int k = 0; k < s.K; k += kTileK) {
      barrier_wait(barrier.full + 8 * place.index, place.parity);
      const uint32_t b = ring + place.index * kBytesStage + kBytesA, a = b - kBytesA + which * 64 * 128;
      wgmma_begin();
#pragma unroll
      for (int kk = 0; kk < kTileK / 16; ++kk) {
        const uint64_t left = operand(a + kk * 32, 16, 1024);
        if constexpr (kAcross)  // blocks of 64 columns lie kTileK rows apart; the next 16 of k are 16 rows on
          wgmma_64xNx16<kTileN, 0, 1>(sum, left, operand(b + kk * 2048, kTileK * 128, 1024), k + kk > 0);
        else
          wgmma_64xNx16<kTileN, 0, 0>(sum, left, operand(b + kk * 32, 16, 1024), k + kk > 0);
      }
      wgmma_commit();
      // The products of the place before are done: it may be filled again, in both CTAs, since both fill it.
      wgmma_wait<1>();
      if (behind >= 0 && thread < 2) barrier_arrive_at(barrier.empty + 8 * behind, thread);
      behind = place.index;
      place.next();
    }
    wgmma_wait<0>();
    if (thread < 2) barrier_arrive_at(barrier.empty + 8 * behind, thread);
    barrier_wait(barrier.free + 8 * which, round ^ 1);
#pragma unroll
    for (int j = 0; j < kTileN / 16; ++j) {
      const int c = 2 * j + piece;
      const uint32_t at = staging + c / 8 * (64 * 128) + row * 128 + ((c % 8) ^ (row % 8)) * 16;
      const float* d = sum + 8 * j;
      store_matrices(at, pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]), pack_bf16(d[4], d[5]), pack_bf16(d[6], d[7]));
    }
    barrier_arrive(barrier.staged + 8 * which);
  }
}

// The rows of a tile in groups of kBatch; the warps of the finisher take groups in turn, lane l < 24 has columns 8 l. `Finish` fetches what
// it reads of its own (`Ahead`) for a group before the group before it is worked on.
template <class Finish>
__device__ __forceinline__ void finish_tiles(const Shape& s, uint32_t staging, const Barriers& barrier, float* sums, int rank,
                                             const Tiles& tiles, Finish& finish) {
  constexpr int kBatch = 2, kGroups = kTileM / kBatch;
  const int warp = static_cast<int>(threadIdx.x) / 32 - 1, lane = threadIdx.x % 32;
  uint32_t round = 0;
  for (int t = blockIdx.x / 2; t < tiles.count; t += gridDim.x / 2, round ^= 1) {
    const Tile tile = tile_of(t, tiles.pairs, tiles.columns);
    const int top = tile.m + rank * kTileM, column = tile.n + lane * 8;
    const bool inside = lane < kTileN / 8 && column < s.N;
    const uint32_t block = staging + min(lane / 8, kTileN / 64 - 1) * (64 * 128);
    finish.begin(column, inside);
    typename Finish::Ahead now[kBatch], next[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) next[i] = finish.fetch(top + warp * kBatch + i, column, inside && top + warp * kBatch + i < s.M);
    int half = -1;
#pragma unroll 1
    for (int group = warp; group < kGroups; group += kFinisherWarps) {
      if (group / (kGroups / 2) != half) {
        if (++half == 1) barrier_arrive(barrier.free);
        barrier_wait(barrier.staged + 8 * half, round);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) now[i] = next[i];
      const int ahead = top + (group + kFinisherWarps) * kBatch;
      const bool more = group + kFinisherWarps < kGroups;
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (more) next[i] = finish.fetch(ahead + i, column, inside && ahead + i < s.M);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = group * kBatch + i;
        const uint4 raw = load_shared(block + half * kBytesStaged + row % 64 * 128 + ((lane % 8) ^ (row % 8)) * 16);
        finish.row(top + row, column, inside && top + row < s.M, raw, now[i]);
      }
    }
    barrier_arrive(barrier.free + 8);
    finish.end(sums, top / kTileM, tile.n, s);
  }
}

// Grid: an even number of CTAs, at most the SMs.
template <bool kAcross, class Finish>
__global__ __launch_bounds__(kThreads, 1)
    __cluster_dims__(2, 1, 1) void first_form_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, Shape s,
                                                     Finish finish) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t ring = shared_address(memory), staging = ring + kStages * kBytesStage, at = staging + 2 * kBytesStaged;
  const Barriers barrier{at, at + 8 * kStages, at + 16 * kStages, at + 16 * kStages + 16};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(barrier.full + 8 * i, 1);   // the loader; the bytes do the rest
      barrier_init(barrier.empty + 8 * i, 4);  // two multipliers in each of two CTAs
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(barrier.staged + 8 * i, 128);
      barrier_init(barrier.free + 8 * i, 32 * kFinisherWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();
  const int rank = static_cast<int>(cluster_rank());
  const int pairs = (s.M + 2 * kTileM - 1) / (2 * kTileM), columns = (s.N + kTileN - 1) / kTileN;
  const Tiles tiles{pairs * columns, pairs, columns};
  // Registers of a thread: 128 at the start, so 512 for four warpgroups.
  if (threadIdx.x < 256) {
    registers_down<64>();
    if (threadIdx.x >= 32)
      finish_tiles(s, staging, barrier, reinterpret_cast<float*>(memory + (at - ring) + kBytesBarriers), rank, tiles, finish);
    else if (threadIdx.x == 0)
      load_tiles<kAcross>(&a, &b, s, ring, barrier, rank, tiles);
    __syncwarp();
  } else {
    registers_up<192>();
    multiply_tiles<kAcross>(s, ring, staging, barrier, static_cast<int>(threadIdx.x / 128) - 2, tiles);
  }
  cluster_sync();  // the other CTA may still arrive here
}

#endif  // __CUDACC__

}  // namespace hopper_first
