// Attention on tensor cores without scores in memory: tiles of 64 queries by 64 keys, the softmax carried along ("FlashAttention-2", Dao
// 2023). Products are mma.sync m16n8k16, bf16 in, fp32 out; p and ds are rounded to bf16 only as operands. The backward is two kernels,
// one per output (dk dv; dq), each recomputing p: seven tile products instead of five, and no sum over blocks that would need atomics.
//
// One block is four warps; each owns 16 rows of the tile that stays (queries, or keys in the kernel for dk and dv) and walks the tiles of
// the other side. Fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane l holds of a 16 x 8 result rows l/4 and l/4 + 8, columns
// 2 (l%4) and one more; two neighbouring results are, rounded and packed, one 16 x 16 left operand, so a product of products never leaves
// the registers. Heads are padded with zeros in shared memory to kHead = 16, 32, 64 or 128.
#include <cmath>
#include <string>

#include "base/errors.h"
#include "gpt2/ops/dout_dot_out.cuh"
#include "mixed/kernels/attention.cuh"

namespace mixed {
namespace {

constexpr int kTile = 64;
constexpr int kThreads = 128;
constexpr int kChunk = 32;  // columns of scores in registers at a time, in the backward
constexpr float kLog2E = 1.4426950408889634f;

// Rows of a tile in shared memory lie 16 bytes further apart than they are long: the 8 rows of an ldmatrix then hit all banks once.
template <int kHead>
constexpr int kLd = kHead + 8;
template <int kHead>
constexpr int kTileValues = kTile* kLd<kHead>;

// ---- instructions -------------------------------------------------------------------------------------------------------

__device__ __forceinline__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const bf16* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const bf16* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p)));
}

// c (16,8) += a (16,16) b (16,8)
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 16 bytes, or zeros where `valid` is false.
__device__ __forceinline__ void copy_async(bf16* to, const bf16* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0));
}
__device__ __forceinline__ void end_of_copies() { asm volatile("cp.async.commit_group;"); }
// All but the newest `kPending` groups have arrived.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---- tiles and fragments ------------------------------------------------------------------------------------------------

// tile[row][d] = source[row * stride + d] for rows below `rows` and d below HS, zero elsewhere. kVector: HS is a multiple of 8 and
// everything is 16-byte aligned.
template <int kHead, bool kVector>
__device__ __forceinline__ void load_tile(bf16* tile, const bf16* source, int64_t stride, int rows, int HS) {
  if constexpr (kVector) {
    constexpr int kPacks = kHead / 8;
    for (int i = threadIdx.x; i < kTile * kPacks; i += kThreads) {
      const int row = i / kPacks;
      const int d = i % kPacks * 8;
      const bool valid = row < rows && d < HS;
      copy_async(tile + row * kLd<kHead> + d, valid ? source + row * stride + d : source, valid);
    }
  } else {
    for (int i = threadIdx.x; i < kTile * kHead; i += kThreads) {
      const int row = i / kHead;
      const int d = i % kHead;
      tile[row * kLd<kHead> + d] = row < rows && d < HS ? source[row * stride + d] : __float2bfloat16_rn(0.0f);
    }
  }
}

// Left operands: 16 rows of a tile from `row` on, all of the head.
template <int kHead>
struct RowFragments {
  uint32_t a[kHead / 16][4];
  __device__ __forceinline__ void load(const bf16* tile, int row, int lane) {
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) load_matrices(a[k], tile + (row + lane % 16) * kLd<kHead> + k * 16 + lane / 16 * 8);
  }
};

// s (16, 8 kBlocks) = rows (16, head) * tile[column …]^T (head, 8 kBlocks)
template <int kHead, int kBlocks>
__device__ __forceinline__ void row_products(float (&s)[kBlocks][4], const RowFragments<kHead>& rows, const bf16* tile, int column,
                                             int lane) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[j][i] = 0;
#pragma unroll
  for (int j = 0; j < kBlocks; j += 2)
#pragma unroll
    for (int k = 0; k < kHead / 16; ++k) {
      uint32_t b[4];
      load_matrices(b, tile + (column + j * 8 + lane / 16 * 8 + lane % 8) * kLd<kHead> + k * 16 + lane / 8 % 2 * 8);
      mma(s[j], rows.a[k], b[0], b[1]);
      mma(s[j + 1], rows.a[k], b[2], b[3]);
    }
}

// sum (16, head) += weights (16, 8 kBlocks) * tile[row …] (8 kBlocks, head)
template <int kHead, int kBlocks>
__device__ __forceinline__ void add_weighted_rows(float (&sum)[kHead / 8][4], const float (&weights)[kBlocks][4], const bf16* tile, int row,
                                                  int lane) {
#pragma unroll
  for (int j = 0; j < kBlocks; j += 2) {
    const uint32_t a[4] = {pack_bf16(weights[j][0], weights[j][1]), pack_bf16(weights[j][2], weights[j][3]),
                           pack_bf16(weights[j + 1][0], weights[j + 1][1]), pack_bf16(weights[j + 1][2], weights[j + 1][3])};
#pragma unroll
    for (int n = 0; n < kHead / 8; n += 2) {
      uint32_t b[4];
      load_matrices_transposed(b, tile + (row + j * 8 + lane % 16) * kLd<kHead> + n * 8 + lane / 16 * 8);
      mma(sum[n], a, b[0], b[1]);
      mma(sum[n + 1], a, b[2], b[3]);
    }
  }
}

// target[row * stride + d] = factor[i] * sum for the lane's rows l/4 + 8 i below `rows` and d below HS.
template <int kHead>
__device__ __forceinline__ void write_rows(bf16* target, int64_t stride, int rows, int HS, const float (&sum)[kHead / 8][4],
                                           const float (&factor)[2], int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane / 4 + 8 * i;
    if (row >= rows) continue;
#pragma unroll
    for (int n = 0; n < kHead / 8; ++n) {
      const int d = n * 8 + lane % 4 * 2;
      bf16* to = target + row * stride + d;
      const float first = sum[n][2 * i] * factor[i];
      const float second = sum[n][2 * i + 1] * factor[i];
      if (d + 1 < HS && reinterpret_cast<uintptr_t>(to) % 4 == 0) {
        *reinterpret_cast<uint32_t*>(to) = pack_bf16(first, second);
      } else {
        if (d < HS) to[0] = __float2bfloat16_rn(first);
        if (d + 1 < HS) to[1] = __float2bfloat16_rn(second);
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

// Which tile and head this block works on. The longest tiles come first, so that the short ones fill the tail.
struct Place {
  int64_t b, h, first;  // first row of the tile
  int rows;             // rows of the tile inside T
  __device__ Place(int64_t T, int64_t NH, bool last_tiles_first) {
    const int64_t tiles = (T + kTile - 1) / kTile;
    const int64_t heads = gridDim.x / tiles;
    const int64_t order = blockIdx.x / heads;
    const int64_t head = blockIdx.x % heads;
    b = head / NH;
    h = head % NH;
    first = (last_tiles_first ? tiles - 1 - order : order) * kTile;
    rows = static_cast<int>(min(static_cast<int64_t>(kTile), T - first));
  }
};

__device__ __forceinline__ int rows_from(int64_t first, int64_t T) {
  return static_cast<int>(max(int64_t{0}, min(static_cast<int64_t>(kTile), T - first)));
}

// ---- forward ------------------------------------------------------------------------------------------------------------

// One block per (tile of 64 queries, head): walks the key tiles up to the diagonal, the next one on its way while this one is worked on.
template <int kHead, bool kVector>
__global__ void __launch_bounds__(kThreads)
    flash_forward_kernel(bf16* __restrict__ out, float* __restrict__ lse, const bf16* __restrict__ qkv, int64_t T, int64_t C, int64_t NH,
                         float scale) {
  extern __shared__ __align__(16) bf16 memory[];
  bf16* q_tile = memory;
  bf16* k_tiles = q_tile + kTileValues<kHead>;  // two, taken in turn
  bf16* v_tiles = k_tiles + 2 * kTileValues<kHead>;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int HS = static_cast<int>(C / NH);
  const Place place(T, NH, true);
  const bf16* base = qkv + place.b * T * 3 * C + place.h * HS;
  const auto load_keys = [&](int64_t key) {
    const int turn = static_cast<int>(key / kTile % 2);
    load_tile<kHead, kVector>(k_tiles + turn * kTileValues<kHead>, base + C + key * 3 * C, 3 * C, rows_from(key, T), HS);
    load_tile<kHead, kVector>(v_tiles + turn * kTileValues<kHead>, base + 2 * C + key * 3 * C, 3 * C, rows_from(key, T), HS);
  };

  load_tile<kHead, kVector>(q_tile, base + place.first * 3 * C, 3 * C, place.rows, HS);
  load_keys(0);
  end_of_copies();

  RowFragments<kHead> q;
  float sum[kHead / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float total[2] = {0, 0};  // this lane's columns only, until the end
  const float scale_log2 = scale * kLog2E;
  const int64_t query = place.first + warp * 16 + lane / 4;

  for (int64_t key = 0; key <= place.first; key += kTile) {
    wait_for_copies<0>();
    __syncthreads();  // this tile is there for all, and the one before is done with
    if (key == 0) q.load(q_tile, warp * 16, lane);
    if (key + kTile <= place.first) load_keys(key + kTile);
    end_of_copies();
    const int turn = static_cast<int>(key / kTile % 2);
    float s[kTile / 8][4];
    row_products<kHead>(s, q, k_tiles + turn * kTileValues<kHead>, 0, lane);
    if (key == place.first) {  // the diagonal; it also holds every key beyond T
#pragma unroll
      for (int j = 0; j < kTile / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (key + j * 8 + lane % 4 * 2 + i % 2 > query + 8 * (i / 2)) s[j][i] = -INFINITY;
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
    add_weighted_rows<kHead>(sum, s, v_tiles + turn * kTileValues<kHead>, 0, lane);
  }

  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float all = row_sum(total[r]);
    inverse[r] = 1.0f / all;
    if (lane % 4 == 0 && query + 8 * r < T) lse[(place.b * NH + place.h) * T + query + 8 * r] = max[r] * scale + logf(all);
  }
  write_rows<kHead>(out + (place.b * T + place.first + warp * 16) * C + place.h * HS, C, place.rows - warp * 16, HS, sum, inverse, lane);
}

// ---- backward -----------------------------------------------------------------------------------------------------------

// A lane's part of p and ds at (query, key). In: s = q k^T, dp = dout v^T. Out: s holds p, dp holds ds; zero where the key is not seen.
__device__ __forceinline__ void probability(float& s, float& dp, float lse_log2, float D, bool seen, float scale, float scale_log2) {
  s = seen ? exp2_fast(fmaf(s, scale_log2, -lse_log2)) : 0.0f;
  dp = s * (dp - D) * scale;
}

// One block per (tile of 64 keys, head): walks the query tiles from the diagonal on. Writes dk and dv of its keys. Scores are computed
// transposed (keys are the rows), so that p^T and ds^T are left operands as they come out of their products.
template <int kHead, bool kVector>
__global__ void __launch_bounds__(kThreads)
    flash_backward_keys_kernel(bf16* __restrict__ dqkv, const bf16* __restrict__ dout, const bf16* __restrict__ qkv,
                               const float* __restrict__ lse, const float* __restrict__ D, int64_t T, int64_t C, int64_t NH, float scale) {
  extern __shared__ __align__(16) bf16 memory[];
  bf16* q_tiles = memory;  // two of each, taken in turn
  bf16* g_tiles = q_tiles + 2 * kTileValues<kHead>;
  auto* lse_tile = reinterpret_cast<float*>(g_tiles + 2 * kTileValues<kHead>);  // times log2(e)
  float* D_tile = lse_tile + 2 * kTile;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int HS = static_cast<int>(C / NH);
  const Place place(T, NH, false);  // the first keys are seen by the most queries
  const bf16* base = qkv + place.b * T * 3 * C + place.h * HS;
  const bf16* dout_base = dout + place.b * T * C + place.h * HS;
  const int64_t row0 = (place.b * NH + place.h) * T;
  const float scale_log2 = scale * kLog2E;
  const auto load_queries = [&](int64_t query) {
    const int turn = static_cast<int>(query / kTile % 2);
    load_tile<kHead, kVector>(q_tiles + turn * kTileValues<kHead>, base + query * 3 * C, 3 * C, rows_from(query, T), HS);
    load_tile<kHead, kVector>(g_tiles + turn * kTileValues<kHead>, dout_base + query * C, C, rows_from(query, T), HS);
    if (threadIdx.x < kTile) {
      const int64_t t = query + threadIdx.x;
      lse_tile[turn * kTile + threadIdx.x] = t < T ? lse[row0 + t] * kLog2E : 0.0f;
      D_tile[turn * kTile + threadIdx.x] = t < T ? D[row0 + t] : 0.0f;
    }
  };

  // Keys and values pass through the tiles of the second turn into registers, which is where they stay.
  const int other = static_cast<int>((place.first / kTile + 1) % 2);
  load_tile<kHead, kVector>(q_tiles + other * kTileValues<kHead>, base + C + place.first * 3 * C, 3 * C, place.rows, HS);
  load_tile<kHead, kVector>(g_tiles + other * kTileValues<kHead>, base + 2 * C + place.first * 3 * C, 3 * C, place.rows, HS);
  load_queries(place.first);
  end_of_copies();
  wait_for_copies<0>();
  __syncthreads();
  RowFragments<kHead> k, v;
  k.load(q_tiles + other * kTileValues<kHead>, warp * 16, lane);
  v.load(g_tiles + other * kTileValues<kHead>, warp * 16, lane);

  float dk[kHead / 8][4] = {};
  float dv[kHead / 8][4] = {};
  const int64_t key = place.first + warp * 16 + lane / 4;
  for (int64_t query = place.first; query < T; query += kTile) {
    wait_for_copies<0>();
    __syncthreads();  // this tile is there for all, and the one before is done with
    if (query + kTile < T) load_queries(query + kTile);
    end_of_copies();
    const int turn = static_cast<int>(query / kTile % 2);
    const bf16* q_tile = q_tiles + turn * kTileValues<kHead>;
    const bf16* g_tile = g_tiles + turn * kTileValues<kHead>;
    const bool whole = query > place.first && query + kTile <= T;  // no query before a key, none beyond T
#pragma unroll 1
    for (int column = 0; column < kTile; column += kChunk) {
      float s[kChunk / 8][4];
      float dp[kChunk / 8][4];
      row_products<kHead>(s, k, q_tile, column, lane);
      row_products<kHead>(dp, v, g_tile, column, lane);
#pragma unroll
      for (int j = 0; j < kChunk / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = column + j * 8 + lane % 4 * 2 + i % 2;
          const bool seen = whole || (query + c < T && key + 8 * (i / 2) <= query + c);
          probability(s[j][i], dp[j][i], lse_tile[turn * kTile + c], D_tile[turn * kTile + c], seen, scale, scale_log2);
        }
      add_weighted_rows<kHead>(dv, s, g_tile, column, lane);
      add_weighted_rows<kHead>(dk, dp, q_tile, column, lane);
    }
  }
  const float one[2] = {1, 1};
  bf16* target = dqkv + (place.b * T + place.first + warp * 16) * 3 * C + place.h * HS;
  write_rows<kHead>(target + C, 3 * C, place.rows - warp * 16, HS, dk, one, lane);
  write_rows<kHead>(target + 2 * C, 3 * C, place.rows - warp * 16, HS, dv, one, lane);
}

// One block per (tile of 64 queries, head): walks the key tiles up to the diagonal. Writes dq of its queries.
template <int kHead, bool kVector>
__global__ void __launch_bounds__(kThreads)
    flash_backward_queries_kernel(bf16* __restrict__ dqkv, const bf16* __restrict__ dout, const bf16* __restrict__ qkv,
                                  const float* __restrict__ lse, const float* __restrict__ D, int64_t T, int64_t C, int64_t NH,
                                  float scale) {
  extern __shared__ __align__(16) bf16 memory[];
  bf16* k_tiles = memory;  // two of each, taken in turn
  bf16* v_tiles = k_tiles + 2 * kTileValues<kHead>;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int HS = static_cast<int>(C / NH);
  const Place place(T, NH, true);
  const bf16* base = qkv + place.b * T * 3 * C + place.h * HS;
  const int64_t row0 = (place.b * NH + place.h) * T;
  const float scale_log2 = scale * kLog2E;
  const auto load_keys = [&](int64_t key) {
    const int turn = static_cast<int>(key / kTile % 2);
    load_tile<kHead, kVector>(k_tiles + turn * kTileValues<kHead>, base + C + key * 3 * C, 3 * C, rows_from(key, T), HS);
    load_tile<kHead, kVector>(v_tiles + turn * kTileValues<kHead>, base + 2 * C + key * 3 * C, 3 * C, rows_from(key, T), HS);
  };

  // Queries and dout pass through the tiles of the second turn into registers, which is where they stay.
  load_tile<kHead, kVector>(k_tiles + kTileValues<kHead>, base + place.first * 3 * C, 3 * C, place.rows, HS);
  load_tile<kHead, kVector>(v_tiles + kTileValues<kHead>, dout + (place.b * T + place.first) * C + place.h * HS, C, place.rows, HS);
  load_keys(0);
  end_of_copies();
  wait_for_copies<0>();
  __syncthreads();
  RowFragments<kHead> q, g;
  q.load(k_tiles + kTileValues<kHead>, warp * 16, lane);
  g.load(v_tiles + kTileValues<kHead>, warp * 16, lane);

  const int64_t query = place.first + warp * 16 + lane / 4;
  float row_lse[2];
  float row_D[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool inside = query + 8 * r < T;
    row_lse[r] = inside ? lse[row0 + query + 8 * r] * kLog2E : 0.0f;
    row_D[r] = inside ? D[row0 + query + 8 * r] : 0.0f;
  }

  float dq[kHead / 8][4] = {};
  for (int64_t key = 0; key <= place.first; key += kTile) {
    wait_for_copies<0>();
    __syncthreads();
    if (key + kTile <= place.first) load_keys(key + kTile);
    end_of_copies();
    const int turn = static_cast<int>(key / kTile % 2);
    const bf16* k_tile = k_tiles + turn * kTileValues<kHead>;
    const bf16* v_tile = v_tiles + turn * kTileValues<kHead>;
#pragma unroll 1
    for (int column = 0; column < kTile; column += kChunk) {
      float s[kChunk / 8][4];
      float dp[kChunk / 8][4];
      row_products<kHead>(s, q, k_tile, column, lane);
      row_products<kHead>(dp, g, v_tile, column, lane);
#pragma unroll
      for (int j = 0; j < kChunk / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          // Rows beyond T are computed from zeros and not written.
          const bool seen = key < place.first || key + column + j * 8 + lane % 4 * 2 + i % 2 <= query + 8 * (i / 2);
          probability(s[j][i], dp[j][i], row_lse[i / 2], row_D[i / 2], seen, scale, scale_log2);
        }
      add_weighted_rows<kHead>(dq, dp, k_tile, column, lane);
    }
  }
  const float one[2] = {1, 1};
  write_rows<kHead>(dqkv + (place.b * T + place.first + warp * 16) * 3 * C + place.h * HS, 3 * C, place.rows - warp * 16, HS, dq, one,
                    lane);
}

// ---------------------------------------------------------------------------------------------------------------------

template <class Kernel, class... Arguments>
void launch(Kernel kernel, int64_t shared_bytes, const AttentionShape& s, cudaStream_t stream, Arguments... arguments) {
  STEPSCOPE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.HS()));
  kernel<<<grid_blocks(ceil_div<int64_t>(s.T, kTile) * s.B * s.NH), kThreads, static_cast<size_t>(shared_bytes), stream>>>(
      arguments..., s.T, s.C, s.NH, scale);
  STEPSCOPE_CHECK_LAUNCH();
}

template <int kHead, bool kVector>
void launch_forward(bf16* out, float* lse, const bf16* qkv, const AttentionShape& s, cudaStream_t stream) {
  launch(flash_forward_kernel<kHead, kVector>, 5 * kTileValues<kHead> * 2, s, stream, out, lse, qkv);
}

template <int kHead, bool kVector>
void launch_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const float* lse, const float* D, const AttentionShape& s,
                     cudaStream_t stream) {
  constexpr int64_t kTiles = 4 * kTileValues<kHead> * 2;
  launch(flash_backward_keys_kernel<kHead, kVector>, kTiles + 4 * kTile * 4, s, stream, dqkv, dout, qkv, lse, D);
  launch(flash_backward_queries_kernel<kHead, kVector>, kTiles, s, stream, dqkv, dout, qkv, lse, D);
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
  if (HS <= 128) return choose(std::integral_constant<int, 128>{});
  throw stepscope::InputError("flash attention: " + *why_not_flash(HS));
}

}  // namespace

std::optional<std::string> why_not_flash(int64_t head_size) {
  if (head_size <= 128) return std::nullopt;
  return "it holds heads of up to 128 channels, the model has " + std::to_string(head_size) + "; use unfused";
}

void flash_attention_forward(bf16* out, float* lse, const bf16* qkv, const AttentionShape& s, cudaStream_t stream) {
  with_head(s, s.HS() % 8 == 0 && aligned_16(qkv),
            [&](auto head, auto vector) { launch_forward<head(), vector()>(out, lse, qkv, s, stream); });
}

int64_t flash_backward_scratch_bytes(const AttentionShape& s) { return s.B * s.NH * s.T * static_cast<int64_t>(sizeof(float)); }

void flash_attention_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse, const AttentionShape& s,
                              void* scratch, cudaStream_t stream) {
  auto* D = static_cast<float*>(scratch);
  gpt2::ops::dout_dot_out(D, dout, out, s, stream);
  with_head(s, s.HS() % 8 == 0 && aligned_16(qkv, dout),
            [&](auto head, auto vector) { launch_backward<head(), vector()>(dqkv, dout, qkv, lse, D, s, stream); });
}

}  // namespace mixed
