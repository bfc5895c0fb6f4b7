// Attention without scores in memory on TF32 tensor cores: `flash` with --matmul tf32. Tiles of 64 queries by 64 keys, the softmax carried
// along ("FlashAttention-2", Dao 2023); products are mma.sync m16n8k8, of operands rounded to TF32 (11 significant bits), sums in fp32. The
// backward is two kernels, one per output (dk dv; dq), each recomputing p: seven tile products instead of five, and no sum over blocks that
// would need atomics.
//
// One block is four warps; each owns 16 rows of the tile that stays (queries, or keys in the kernel for dk and dv) and walks the tiles of
// the other side. Heads are padded with zeros in shared memory to kHead = 16, 32 or 64; with 128 a warp's four matrices would not fit into
// its registers.
//
// Fragments (PTX ISA, "Matrix Fragments for mma.m16n8k8", .tf32), lane l, q = l / 4, r = l % 4:
//   left operand (16 x 8): rows q and q + 8 of column r, then of column r + 4     right operand (8 x 8): rows r and r + 4 of column q
//   result (16 x 8): columns 2r and 2r + 1 of row q, then of row q + 8
// The order of the eight terms of a sum is free, so a result is the left operand of the next product as it stands, when column r there
// means its column 2r and column r + 4 its column 2r + 1, and the right operand's rows are taken in that order too.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/errors.h"
#include "fp32/kernels/attention.cuh"
#include "fp32/kernels/attention_tiles.cuh"
#include "gpt2/ops/dout_dot_out.cuh"

namespace fp32 {
namespace {

using gpt2::ops::aligned_16;
using gpt2::ops::kWarp;

constexpr int kThreads = 128;
constexpr int kChunk = 32;  // columns of scores in registers at a time, in the backward
constexpr float kLog2E = 1.4426950408889634f;

// Rows of a tile lie four floats further apart than they are long. So the eight rows of an ldmatrix hit all banks once, and so do the
// pairs (row 2r, columns 2q and 2q + 1) of a right operand that is read against its rows: 2 (kHead + 4) is 8 modulo 32.
template <int kHead>
constexpr int kLd = kHead + 4;
template <int kHead>
constexpr int kTileFloats = kTile* kLd<kHead>;

// ---- instructions -------------------------------------------------------------------------------------------------------

__device__ __forceinline__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

// The nearest number of 11 significant bits, which is what mma reads of a float, whose other bits it drops (Dekker 1971: the upper part of
// a split). NaN stays NaN; above 2^115 the result is not finite.
__device__ __forceinline__ float round_to_tf32(float x) { return __fmaf_rn(x, -8192.0f, __fmul_rn(x, 8193.0f)); }
__device__ __forceinline__ uint32_t tf32_bits(float x) { return __float_as_uint(round_to_tf32(x)); }

// Four matrices of 8 rows by 4 floats; lane l gives the address of row l % 8 of matrix l / 8 and gets element (l / 4, l % 4) of each.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const float* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}

// c (16,8) += a (16,8) b (8,8)
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x, off by 2^-22 of it at most: a tenth of a percent of what TF32 loses of it as a factor.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 16 bytes, or zeros where `valid` is false.
__device__ __forceinline__ void copy_async(float* to, const float* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0));
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- tiles and fragments ------------------------------------------------------------------------------------------------

// What a thread moves of a tile: four channels of every kRowsAtOnce-th row.
template <int kHead>
struct Share {
  static constexpr int kRowsAtOnce = kThreads / (kHead / 4);
  int row, d;
  __device__ Share() : row(threadIdx.x / (kHead / 4)), d(threadIdx.x % (kHead / 4) * 4) {}
  __device__ int at() const { return row * kLd<kHead> + d; }
};

// tile[row][d] = source[row * stride + d] for rows below `rows` and d below HS, zero elsewhere. kVector: HS is a multiple of 4 and
// everything is 16-byte aligned; the copies are then under way, and their values not rounded, until round_tile().
template <int kHead, bool kVector>
__device__ __forceinline__ void load_tile(float* tile, const float* source, int64_t stride, int rows, int HS) {
  if constexpr (kVector) {
    using Mine = Share<kHead>;
    const Mine mine;
    float* to = tile + mine.at();
    const float* from = source + mine.row * stride + mine.d;
#pragma unroll
    for (int row = 0; row < kTile; row += Mine::kRowsAtOnce) {
      const bool valid = mine.row + row < rows && mine.d < HS;
      copy_async(to + row * kLd<kHead>, valid ? from : source, valid);
      from += Mine::kRowsAtOnce * stride;
    }
  } else {
    for (int i = threadIdx.x; i < kTile * kHead; i += kThreads) {
      const int row = i / kHead;
      const int d = i % kHead;
      tile[row * kLd<kHead> + d] = row < rows && d < HS ? round_to_tf32(source[row * stride + d]) : 0.0f;
    }
  }
}

// Rounds what this thread copied into the tile, after wait_for_copies(): once for all four warps that read it.
template <int kHead, bool kVector>
__device__ __forceinline__ void round_tile(float* tile) {
  if constexpr (kVector) {
    using Mine = Share<kHead>;
    float* at = tile + Mine().at();
#pragma unroll
    for (int row = 0; row < kTile; row += Mine::kRowsAtOnce) {
      gpt2::ops::Pack<4> x = gpt2::ops::load<4>(at + row * kLd<kHead>);
#pragma unroll
      for (float& v : x.v) v = round_to_tf32(v);
      gpt2::ops::store(at + row * kLd<kHead>, x);
    }
  }
}

// Left operands: 16 rows of a tile from `row` on, all of the head.
template <int kHead>
struct RowFragments {
  uint32_t a[kHead / 8][4];
  __device__ __forceinline__ void load(const float* tile, int row, int lane) {
#pragma unroll
    for (int k = 0; k < kHead / 8; ++k) load_matrices(a[k], tile + (row + lane % 16) * kLd<kHead> + k * 8 + lane / 16 * 4);
  }
};

// s (16, 8 kBlocks) = rows (16, head) * tile[column …]^T (head, 8 kBlocks). Four results grow side by side: a product waits for the one
// before that added to the same result.
template <int kHead, int kBlocks>
__device__ __forceinline__ void row_products(float (&s)[kBlocks][4], const RowFragments<kHead>& rows, const float* tile, int column,
                                             int lane) {
  constexpr int kSide = 4;
  static_assert(kBlocks % kSide == 0);
#pragma unroll
  for (int j = 0; j < kBlocks; j += kSide) {
#pragma unroll
    for (int i = 0; i < kSide; ++i)
#pragma unroll
      for (float& x : s[j + i]) x = 0;
#pragma unroll
    for (int k = 0; k < kHead / 8; k += 2) {
      uint32_t b[kSide][4];
#pragma unroll
      for (int i = 0; i < kSide; ++i) load_matrices(b[i], tile + (column + (j + i) * 8 + lane % 8) * kLd<kHead> + k * 8 + lane / 8 * 4);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < kSide; ++i) mma(s[j + i], rows.a[k + half], b[i][2 * half], b[i][2 * half + 1]);
    }
  }
}

// sum (16, head) += weights (16, 8 kBlocks) * tile[row …] (8 kBlocks, head). Column q of the right operand is channel 2q of 16 for sum[2p] and
// channel 2q + 1 for sum[2p + 1]: a lane reads both at once, and its four results of a row and p are four channels in a row.
template <int kHead, int kBlocks>
__device__ __forceinline__ void add_weighted_rows(float (&sum)[kHead / 8][4], const float (&weights)[kBlocks][4], const float* tile,
                                                  int row, int lane) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    const float(&w)[4] = weights[j];
    const uint32_t a[4] = {tf32_bits(w[0]), tf32_bits(w[2]), tf32_bits(w[1]), tf32_bits(w[3])};
    const float* at = tile + (row + j * 8 + lane % 4 * 2) * kLd<kHead> + lane / 4 * 2;
#pragma unroll
    for (int p = 0; p < kHead / 16; ++p) {
      const uint2 b0 = *reinterpret_cast<const uint2*>(at + p * 16);
      const uint2 b1 = *reinterpret_cast<const uint2*>(at + p * 16 + kLd<kHead>);
      mma(sum[2 * p], a, b0.x, b1.x);
      mma(sum[2 * p + 1], a, b0.y, b1.y);
    }
  }
}

// target[row * stride + d] = factor[i] * sum for the lane's rows l/4 + 8 i below `rows` and d below HS.
template <int kHead>
__device__ __forceinline__ void write_rows(float* target, int64_t stride, int rows, int HS, const float (&sum)[kHead / 8][4],
                                           const float (&factor)[2], int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane / 4 + 8 * i;
    if (row >= rows) continue;
#pragma unroll
    for (int p = 0; p < kHead / 16; ++p) {
      const int d = p * 16 + lane % 4 * 4;
      float* to = target + row * stride + d;
      const gpt2::ops::Pack<4> x{{sum[2 * p][2 * i] * factor[i], sum[2 * p + 1][2 * i] * factor[i], sum[2 * p][2 * i + 1] * factor[i],
                                  sum[2 * p + 1][2 * i + 1] * factor[i]}};
      if (d + 3 < HS && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
        gpt2::ops::store(to, x);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (d + e < HS) to[e] = x.v[e];
      }
    }
  }
}

// Over the four lanes that share a row.
__device__ __forceinline__ float row_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ __forceinline__ float row_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// ---- forward ------------------------------------------------------------------------------------------------------------

// One block per (tile of 64 queries, head): walks the key tiles up to the diagonal, the next one on its way while this one is worked on.
template <int kHead, bool kVector>
__global__ void __launch_bounds__(kThreads, 3)
    tf32_flash_forward_kernel(float* __restrict__ out, float* __restrict__ lse, const float* __restrict__ qkv, int64_t T, int64_t C,
                              int64_t NH, float scale) {
  extern __shared__ __align__(16) float memory[];
  float* k_tiles = memory;  // two of each, taken in turn
  float* v_tiles = k_tiles + 2 * kTileFloats<kHead>;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int HS = static_cast<int>(C / NH);
  const Place place(T, NH, true);
  const float* base = qkv + place.b * T * 3 * C + place.h * HS;
  const auto turn = [](int64_t key) { return static_cast<int>(key / kTile % 2) * kTileFloats<kHead>; };
  const auto load_keys = [&](int64_t key) {
    load_tile<kHead, kVector>(k_tiles + turn(key), base + C + key * 3 * C, 3 * C, rows_from(key, T), HS);
    load_tile<kHead, kVector>(v_tiles + turn(key), base + 2 * C + key * 3 * C, 3 * C, rows_from(key, T), HS);
  };

  // Queries pass through a tile of the second turn into registers, which is where they stay.
  load_tile<kHead, kVector>(k_tiles + turn(kTile), base + place.first * 3 * C, 3 * C, place.rows, HS);
  load_keys(0);
  wait_for_copies();
  round_tile<kHead, kVector>(k_tiles + turn(kTile));
  __syncthreads();
  RowFragments<kHead> q;
  q.load(k_tiles + turn(kTile), warp * 16, lane);

  float sum[kHead / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // this lane's columns only, until the end
  const float scale_log2 = scale * kLog2E;
  const int row = warp * 16 + lane / 4;  // of the tile, and 8 more

  for (int64_t key = 0; key <= place.first; key += kTile) {
    float* k_tile = k_tiles + turn(key);
    float* v_tile = v_tiles + turn(key);
    wait_for_copies();
    round_tile<kHead, kVector>(k_tile);
    round_tile<kHead, kVector>(v_tile);
    __syncthreads();  // this tile is there for all, and the one before is done with
    if (key + kTile <= place.first) load_keys(key + kTile);
    float s[kTile / 8][4];
    row_products<kHead>(s, q, k_tile, 0, lane);
    if (key == place.first) {  // the diagonal; it also holds every key beyond T
#pragma unroll
      for (int j = 0; j < kTile / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (j * 8 + lane % 4 * 2 + i % 2 > row + 8 * (i / 2)) s[j][i] = -INFINITY;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float tile_max = -INFINITY;
#pragma unroll
      for (int j = 0; j < kTile / 8; ++j) tile_max = fmaxf(tile_max, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
      // Every row sees a key in every tile up to the diagonal (its own at the latest), so the new maximum is finite.
      const float new_max = fmaxf(max[r], row_max(tile_max));
      const float shift = new_max * scale_log2;
      const float shrink = exp2_fast(fmaf(max[r], scale_log2, -shift));
      max[r] = new_max;
      total[r] *= shrink;
#pragma unroll
      for (int j = 0; j < kTile / 8; ++j)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          s[j][i] = exp2_fast(fmaf(s[j][i], scale_log2, -shift));
          total[r] += s[j][i];
        }
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        sum[n][2 * r] *= shrink;
        sum[n][2 * r + 1] *= shrink;
      }
    }
    add_weighted_rows<kHead>(sum, s, v_tile, 0, lane);
  }

  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float all = row_sum(total[r]);
    inverse[r] = 1.0f / all;
    if (lane % 4 == 0 && row + 8 * r < place.rows)
      lse[(place.b * NH + place.h) * T + place.first + row + 8 * r] = max[r] * scale + logf(all);
  }
  write_rows<kHead>(out + (place.b * T + place.first + warp * 16) * C + place.h * HS, C, place.rows - warp * 16, HS, sum, inverse, lane);
}

// ---- backward -----------------------------------------------------------------------------------------------------------

// A lane's part of p and ds at (query, key). In: s = q k^T, -infinity where the key is not seen, dp = dout v^T. Out: s holds p, dp holds ds.
__device__ __forceinline__ void probability(float& s, float& dp, float lse_log2, float D, float scale, float scale_log2) {
  s = exp2_fast(fmaf(s, scale_log2, -lse_log2));
  dp = s * (dp - D) * scale;
}

// One block per (tile of 64 keys, head): walks the query tiles from the diagonal on. Writes dk and dv of its keys. Scores are computed
// transposed (keys are the rows), so that p^T and ds^T are left operands as they come out of their products.
template <int kHead, bool kVector>
__global__ void __launch_bounds__(kThreads, 2)
    tf32_flash_backward_keys_kernel(float* __restrict__ dqkv, const float* __restrict__ dout, const float* __restrict__ qkv,
                                    const float* __restrict__ lse, const float* __restrict__ D, int64_t T, int64_t C, int64_t NH,
                                    float scale) {
  extern __shared__ __align__(16) float memory[];
  float* q_tiles = memory;  // two of each, taken in turn
  float* g_tiles = q_tiles + 2 * kTileFloats<kHead>;
  float* lse_tiles = g_tiles + 2 * kTileFloats<kHead>;  // times log2(e)
  float* D_tiles = lse_tiles + 2 * kTile;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int HS = static_cast<int>(C / NH);
  const Place place(T, NH, false);  // the first keys are seen by the most queries
  const float* base = qkv + place.b * T * 3 * C + place.h * HS;
  const float* dout_base = dout + place.b * T * C + place.h * HS;
  const int64_t row0 = (place.b * NH + place.h) * T;
  const float scale_log2 = scale * kLog2E;
  const auto turn = [](int64_t query) { return static_cast<int>(query / kTile % 2); };
  const auto load_queries = [&](int64_t query) {
    const int at = turn(query);
    load_tile<kHead, kVector>(q_tiles + at * kTileFloats<kHead>, base + query * 3 * C, 3 * C, rows_from(query, T), HS);
    load_tile<kHead, kVector>(g_tiles + at * kTileFloats<kHead>, dout_base + query * C, C, rows_from(query, T), HS);
    if (threadIdx.x < kTile) {
      const int64_t t = query + threadIdx.x;
      lse_tiles[at * kTile + threadIdx.x] = t < T ? lse[row0 + t] * kLog2E : 0.0f;
      D_tiles[at * kTile + threadIdx.x] = t < T ? D[row0 + t] : 0.0f;
    }
  };

  // Keys and values pass through the tiles of the second turn into registers, which is where they stay.
  float* k_tile = q_tiles + turn(place.first + kTile) * kTileFloats<kHead>;
  float* v_tile = g_tiles + turn(place.first + kTile) * kTileFloats<kHead>;
  load_tile<kHead, kVector>(k_tile, base + C + place.first * 3 * C, 3 * C, place.rows, HS);
  load_tile<kHead, kVector>(v_tile, base + 2 * C + place.first * 3 * C, 3 * C, place.rows, HS);
  load_queries(place.first);
  wait_for_copies();
  round_tile<kHead, kVector>(k_tile);
  round_tile<kHead, kVector>(v_tile);
  __syncthreads();
  RowFragments<kHead> k, v;
  k.load(k_tile, warp * 16, lane);
  v.load(v_tile, warp * 16, lane);

  float dk[kHead / 8][4] = {};
  float dv[kHead / 8][4] = {};
  const int row = warp * 16 + lane / 4;  // of the tile of keys, and 8 more
  for (int64_t query = place.first; query < T; query += kTile) {
    float* q_tile = q_tiles + turn(query) * kTileFloats<kHead>;
    float* g_tile = g_tiles + turn(query) * kTileFloats<kHead>;
    const float* lse_tile = lse_tiles + turn(query) * kTile;
    const float* D_tile = D_tiles + turn(query) * kTile;
    wait_for_copies();
    round_tile<kHead, kVector>(q_tile);
    round_tile<kHead, kVector>(g_tile);
    __syncthreads();  // this tile is there for all, and the one before is done with
    if (query + kTile < T) load_queries(query + kTile);
    const int rows = rows_from(query, T);
    const bool whole = query > place.first && rows == kTile;  // no query before a key, none beyond T
#pragma unroll 1
    for (int column = 0; column < kTile; column += kChunk) {
      float s[kChunk / 8][4];
      float dp[kChunk / 8][4];
      row_products<kHead>(s, k, q_tile, column, lane);
      row_products<kHead>(dp, v, g_tile, column, lane);
      if (!whole) {
#pragma unroll
        for (int j = 0; j < kChunk / 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int c = column + j * 8 + lane % 4 * 2 + i % 2;
            if (c >= rows || (query == place.first && row + 8 * (i / 2) > c)) s[j][i] = -INFINITY;
          }
      }
#pragma unroll
      for (int j = 0; j < kChunk / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = column + j * 8 + lane % 4 * 2 + i % 2;
          probability(s[j][i], dp[j][i], lse_tile[c], D_tile[c], scale, scale_log2);
        }
      add_weighted_rows<kHead>(dv, s, g_tile, column, lane);
      add_weighted_rows<kHead>(dk, dp, q_tile, column, lane);
    }
  }
  const float one[2] = {1, 1};
  float* target = dqkv + (place.b * T + place.first + warp * 16) * 3 * C + place.h * HS;
  write_rows<kHead>(target + C, 3 * C, place.rows - warp * 16, HS, dk, one, lane);
  write_rows<kHead>(target + 2 * C, 3 * C, place.rows - warp * 16, HS, dv, one, lane);
}

// One block per (tile of 64 queries, head): walks the key tiles up to the diagonal. Writes dq of its queries.
template <int kHead, bool kVector>
__global__ void __launch_bounds__(kThreads, 3)
    tf32_flash_backward_queries_kernel(float* __restrict__ dqkv, const float* __restrict__ dout, const float* __restrict__ qkv,
                                       const float* __restrict__ lse, const float* __restrict__ D, int64_t T, int64_t C, int64_t NH,
                                       float scale) {
  extern __shared__ __align__(16) float memory[];
  float* k_tiles = memory;  // two of each, taken in turn
  float* v_tiles = k_tiles + 2 * kTileFloats<kHead>;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int HS = static_cast<int>(C / NH);
  const Place place(T, NH, true);
  const float* base = qkv + place.b * T * 3 * C + place.h * HS;
  const int64_t row0 = (place.b * NH + place.h) * T;
  const float scale_log2 = scale * kLog2E;
  const auto turn = [](int64_t key) { return static_cast<int>(key / kTile % 2) * kTileFloats<kHead>; };
  const auto load_keys = [&](int64_t key) {
    load_tile<kHead, kVector>(k_tiles + turn(key), base + C + key * 3 * C, 3 * C, rows_from(key, T), HS);
    load_tile<kHead, kVector>(v_tiles + turn(key), base + 2 * C + key * 3 * C, 3 * C, rows_from(key, T), HS);
  };

  // Queries and dout pass through the tiles of the second turn into registers, which is where they stay.
  float* q_tile = k_tiles + turn(kTile);
  float* g_tile = v_tiles + turn(kTile);
  load_tile<kHead, kVector>(q_tile, base + place.first * 3 * C, 3 * C, place.rows, HS);
  load_tile<kHead, kVector>(g_tile, dout + (place.b * T + place.first) * C + place.h * HS, C, place.rows, HS);
  load_keys(0);
  wait_for_copies();
  round_tile<kHead, kVector>(q_tile);
  round_tile<kHead, kVector>(g_tile);
  __syncthreads();
  RowFragments<kHead> q, g;
  q.load(q_tile, warp * 16, lane);
  g.load(g_tile, warp * 16, lane);

  const int row = warp * 16 + lane / 4;  // of the tile of queries, and 8 more
  float row_lse[2];
  float row_D[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool inside = row + 8 * r < place.rows;
    row_lse[r] = inside ? lse[row0 + place.first + row + 8 * r] * kLog2E : 0.0f;
    row_D[r] = inside ? D[row0 + place.first + row + 8 * r] : 0.0f;
  }

  float dq[kHead / 8][4] = {};
  for (int64_t key = 0; key <= place.first; key += kTile) {
    float* k_tile = k_tiles + turn(key);
    float* v_tile = v_tiles + turn(key);
    wait_for_copies();
    round_tile<kHead, kVector>(k_tile);
    round_tile<kHead, kVector>(v_tile);
    __syncthreads();  // this tile is there for all, and the one before is done with
    if (key + kTile <= place.first) load_keys(key + kTile);
#pragma unroll 1
    for (int column = 0; column < kTile; column += kChunk) {
      float s[kChunk / 8][4];
      float dp[kChunk / 8][4];
      row_products<kHead>(s, q, k_tile, column, lane);
      row_products<kHead>(dp, g, v_tile, column, lane);
      if (key == place.first) {  // the diagonal; rows beyond T are computed from zeros and not written
#pragma unroll
        for (int j = 0; j < kChunk / 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (column + j * 8 + lane % 4 * 2 + i % 2 > row + 8 * (i / 2)) s[j][i] = -INFINITY;
      }
#pragma unroll
      for (int j = 0; j < kChunk / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) probability(s[j][i], dp[j][i], row_lse[i / 2], row_D[i / 2], scale, scale_log2);
      add_weighted_rows<kHead>(dq, dp, k_tile, column, lane);
    }
  }
  const float one[2] = {1, 1};
  write_rows<kHead>(dqkv + (place.b * T + place.first + warp * 16) * 3 * C + place.h * HS, 3 * C, place.rows - warp * 16, HS, dq, one,
                    lane);
}

// ---------------------------------------------------------------------------------------------------------------------

template <class Kernel, class... Arguments>
void launch(Kernel* kernel, int shared_floats, const AttentionShape& s, cudaStream_t stream, Arguments... arguments) {
  const int bytes = shared_floats * static_cast<int>(sizeof(float));
  allow_shared_memory(kernel, bytes);
  kernel<<<tile_blocks(s), kThreads, static_cast<size_t>(bytes), stream>>>(arguments..., s.T, s.C, s.NH, score_scale(s));
  STEPSCOPE_CHECK_LAUNCH();
}

// Calls `launcher` with the padded head size and the way of loading as template arguments.
template <class Launcher>
void with_head(const AttentionShape& s, bool vector, const Launcher& launcher) {
  const auto choose = [&](auto head) {
    if (vector)
      launcher(head, std::true_type{});
    else
      launcher(head, std::false_type{});
  };
  const int64_t HS = s.HS();
  if (HS <= 16) return choose(std::integral_constant<int, 16>{});
  if (HS <= 32) return choose(std::integral_constant<int, 32>{});
  if (HS <= 64) return choose(std::integral_constant<int, 64>{});
  throw stepscope::InputError("flash attention: " + *why_not_flash(MatmulRate::tf32, HS, 0));
}

}  // namespace

void tf32_flash_forward(float* out, float* lse, const float* qkv, const AttentionShape& s, cudaStream_t stream) {
  with_head(s, s.HS() % 4 == 0 && aligned_16(qkv), [&](auto head, auto vector) {
    launch(tf32_flash_forward_kernel<head(), vector()>, 4 * kTileFloats<head()>, s, stream, out, lse, qkv);
  });
}

void tf32_flash_backward(float* dqkv, const float* dout, const float* qkv, const float* out, const float* lse, const AttentionShape& s,
                         void* scratch, cudaStream_t stream) {
  auto* D = static_cast<float*>(scratch);
  gpt2::ops::dout_dot_out(D, dout, out, s, stream);
  with_head(s, s.HS() % 4 == 0 && aligned_16(qkv, dout), [&](auto head, auto vector) {
    constexpr int tiles = 4 * kTileFloats<head()>;
    launch(tf32_flash_backward_keys_kernel<head(), vector()>, tiles + 4 * kTile, s, stream, dqkv, dout, qkv, lse, D);
    launch(tf32_flash_backward_queries_kernel<head(), vector()>, tiles, s, stream, dqkv, dout, qkv, lse, D);
  });
}

}  // namespace fp32
