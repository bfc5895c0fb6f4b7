// Attention without scores in memory, in fp32 arithmetic: `flash` with --matmul fp32. Tiles of 64 queries by 64 keys live in shared memory, the softmax is carried
// along ("FlashAttention-2", Dao 2023). The backward is two kernels, one per output (dk dv; dq), each recomputing p: seven tile
// products instead of five, and no sum over blocks that would need atomics.
//
// One block is 256 threads as 16 x 16; thread (tx, ty) owns rows ty*4 … ty*4+3 of a tile and columns tx*4 … tx*4+3. The 16 threads of
// one ty are half a warp, so sums over a row are shuffles. Heads are padded with zeros in shared memory to kHead = 16, 32, 64 or 128.
#include "fp32/kernels/attention.cuh"

#include <cmath>
#include <string>

#include "base/errors.h"
#include "fp32/kernels/attention_tiles.cuh"
#include "gpt2/ops/dout_dot_out.cuh"

namespace fp32 {
namespace {

using gpt2::ops::load;
using gpt2::ops::Pack;
using gpt2::ops::store;

constexpr int kThreads = 256;
constexpr int kTileLd = kTile + 4;  // leading dimension of transposed tiles; a multiple of 4 keeps packs aligned

template <int kHead>
constexpr int kHeadLd = kHead + 4;
// Floats of one tile buffer, whichever way round it is filled.
template <int kHead>
constexpr int kBuffer = kHead* kTileLd > kTile* kHeadLd<kHead> ? kHead* kTileLd : kTile* kHeadLd<kHead>;

// tile[row][d] = source[row * stride + d] for rows below `rows` and d below HS, zero elsewhere.
template <int kHead>
__device__ void load_rows(float* tile, const float* source, int64_t stride, int rows, int HS) {
  for (int i = threadIdx.x; i < kTile * kHead; i += kThreads) {
    const int row = i / kHead;
    const int d = i % kHead;
    tile[row * kHeadLd<kHead> + d] = row < rows && d < HS ? source[row * stride + d] : 0.0f;
  }
}

// tile[d][row], as above.
template <int kHead>
__device__ void load_transposed(float* tile, const float* source, int64_t stride, int rows, int HS) {
  for (int i = threadIdx.x; i < kTile * kHead; i += kThreads) {
    const int row = i / kHead;
    const int d = i % kHead;
    tile[d * kTileLd + row] = row < rows && d < HS ? source[row * stride + d] : 0.0f;
  }
}

// result[i][j] = sum over d of a[ty*4+i][d] * bt[d][tx*4+j]: a by rows, b transposed.
template <int kHead>
__device__ __forceinline__ void tile_product(float (&result)[4][4], const float* a, const float* bt, int tx, int ty) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) result[i][j] = 0;
#pragma unroll 4
  for (int d = 0; d < kHead; d += 4) {
    Pack<4> x[4];
    Pack<4> y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = load<4>(a + (ty * 4 + i) * kHeadLd<kHead> + d);
#pragma unroll
    for (int e = 0; e < 4; ++e) y[e] = load<4>(bt + (d + e) * kTileLd + tx * 4);
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) result[i][j] += x[i].v[e] * y[e].v[j];
  }
}

// A thread's part of a (64, kHead) result: 4 rows ty*4+i and kHead / 16 columns, in packs of kWidth at column(p).
template <int kHead>
struct HeadPart {
  static constexpr int kPerThread = kHead / 16;
  static constexpr int kWidth = kPerThread < 4 ? kPerThread : 4;
  static constexpr int kPacks = kPerThread / kWidth;
  float v[4][kPacks][kWidth] = {};

  static __device__ __forceinline__ int column(int p, int tx) { return (p * 16 + tx) * kWidth; }

  // += sum over k of wt[k][ty*4+i] * rows[k][column]: weights transposed, values by rows.
  __device__ __forceinline__ void add(const float* wt, const float* rows, int tx, int ty) {
#pragma unroll 4
    for (int k = 0; k < kTile; ++k) {
      const Pack<4> w = load<4>(wt + k * kTileLd + ty * 4);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const float* at = rows + k * kHeadLd<kHead> + column(p, tx);
        float x[kWidth];
        if constexpr (kWidth == 4) {
          const Pack<4> pack = load<4>(at);
#pragma unroll
          for (int e = 0; e < 4; ++e) x[e] = pack.v[e];
        } else {
#pragma unroll
          for (int e = 0; e < kWidth; ++e) x[e] = at[e];
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int e = 0; e < kWidth; ++e) v[i][p][e] += w.v[i] * x[e];
      }
    }
  }

  // target[row * stride + column] = factor[i] * value, for rows below `rows` and columns below HS.
  __device__ __forceinline__ void write(float* target, int64_t stride, int rows, int HS, const float (&factor)[4], int tx, int ty) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
#pragma unroll
        for (int e = 0; e < kWidth; ++e)
          if (ty * 4 + i < rows && column(p, tx) + e < HS) target[(ty * 4 + i) * stride + column(p, tx) + e] = v[i][p][e] * factor[i];
  }
};

// Over the 16 threads of one ty.
__device__ __forceinline__ float row_max(float v) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}
__device__ __forceinline__ float row_sum(float v) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) v += __shfl_xor_sync(0xffffffffu, v, offset);
  return v;
}

// One block per (tile of 64 queries, head): walks the key tiles up to the diagonal.
template <int kHead>
__global__ void __launch_bounds__(kThreads)
    flash_forward_kernel(float* __restrict__ out, float* __restrict__ lse, const float* __restrict__ qkv, int64_t T, int64_t C, int64_t NH,
                         float scale) {
  extern __shared__ __align__(16) float memory[];
  float* q = memory;               // [query][d]
  float* kt = q + kBuffer<kHead>;  // [d][key]
  float* v = kt + kBuffer<kHead>;  // [key][d]
  float* pt = v + kBuffer<kHead>;  // [key][query]
  const int tx = threadIdx.x % 16;
  const int ty = threadIdx.x / 16;
  const int HS = static_cast<int>(C / NH);
  const Place place(T, NH, true);
  const float* base = qkv + place.b * T * 3 * C + place.h * HS;

  load_rows<kHead>(q, base + place.first * 3 * C, 3 * C, place.rows, HS);
  HeadPart<kHead> sum;
  float max[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  float total[4] = {0, 0, 0, 0};  // this thread's columns only, until the end

  for (int64_t key = 0; key <= place.first; key += kTile) {
    __syncthreads();  // the tiles before are done with, and q is there
    load_transposed<kHead>(kt, base + C + key * 3 * C, 3 * C, rows_from(key, T), HS);
    load_rows<kHead>(v, base + 2 * C + key * 3 * C, 3 * C, rows_from(key, T), HS);
    __syncthreads();
    float s[4][4];
    tile_product<kHead>(s, q, kt, tx, ty);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t query = place.first + ty * 4 + i;
      float tile_max = -INFINITY;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t column = key + tx * 4 + j;
        s[i][j] = column <= query && column < T ? s[i][j] * scale : -INFINITY;
        tile_max = fmaxf(tile_max, s[i][j]);
      }
      // Every row has a key in every tile up to the diagonal (its own at the latest), so the new maximum is finite.
      const float new_max = fmaxf(max[i], row_max(tile_max));
      const float shrink = expf(max[i] - new_max);
      max[i] = new_max;
      total[i] *= shrink;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] = expf(s[i][j] - new_max);
        total[i] += s[i][j];
      }
#pragma unroll
      for (int p = 0; p < HeadPart<kHead>::kPacks; ++p)
#pragma unroll
        for (int e = 0; e < HeadPart<kHead>::kWidth; ++e) sum.v[i][p][e] *= shrink;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) store(pt + (tx * 4 + j) * kTileLd + ty * 4, Pack<4>{{s[0][j], s[1][j], s[2][j], s[3][j]}});
    __syncthreads();
    sum.add(pt, v, tx, ty);
  }

  float inverse[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float all = row_sum(total[i]);
    inverse[i] = 1.0f / all;
    if (tx == 0 && ty * 4 + i < place.rows) lse[(place.b * NH + place.h) * T + place.first + ty * 4 + i] = max[i] + logf(all);
  }
  sum.write(out + (place.b * T + place.first) * C + place.h * HS, C, place.rows, HS, inverse, tx, ty);
}

// A thread's 4 x 4 part of p and ds for queries from `query` and keys from `key`; zero above the diagonal and outside T.
// In: s = q k^T, dp = dout v^T. Out: s holds p, dp holds ds.
__device__ __forceinline__ void probabilities(float (&s)[4][4], float (&dp)[4][4], const float* lse, const float* D, int64_t query,
                                              int64_t key, int64_t T, float scale, int tx, int ty) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t t = query + ty * 4 + i;
    const float row_lse = t < T ? lse[t] : 0.0f;
    const float row_D = t < T ? D[t] : 0.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t column = key + tx * 4 + j;
      const bool seen = t < T && column <= t;
      s[i][j] = seen ? expf(s[i][j] * scale - row_lse) : 0.0f;
      dp[i][j] = seen ? s[i][j] * (dp[i][j] - row_D) * scale : 0.0f;
    }
  }
}

// One block per (tile of 64 keys, head): walks the query tiles from the diagonal on. Writes dk and dv of its keys.
template <int kHead>
__global__ void __launch_bounds__(kThreads)
    flash_backward_keys_kernel(float* __restrict__ dqkv, const float* __restrict__ dout, const float* __restrict__ qkv,
                               const float* __restrict__ lse, const float* __restrict__ D, int64_t T, int64_t C, int64_t NH, float scale) {
  extern __shared__ __align__(16) float memory[];
  float* kt = memory;               // [d][key]
  float* vt = kt + kBuffer<kHead>;  // [d][key]
  float* q = vt + kBuffer<kHead>;   // [query][d]
  float* g = q + kBuffer<kHead>;    // dout, [query][d]
  float* w = g + kBuffer<kHead>;    // p, then ds, [query][key]
  const int tx = threadIdx.x % 16;
  const int ty = threadIdx.x / 16;
  const int HS = static_cast<int>(C / NH);
  const Place place(T, NH, false);  // the first keys are seen by the most queries
  const float* base = qkv + place.b * T * 3 * C + place.h * HS;
  const float* dout_base = dout + place.b * T * C + place.h * HS;
  const int64_t row0 = (place.b * NH + place.h) * T;

  load_transposed<kHead>(kt, base + C + place.first * 3 * C, 3 * C, place.rows, HS);
  load_transposed<kHead>(vt, base + 2 * C + place.first * 3 * C, 3 * C, place.rows, HS);
  HeadPart<kHead> dk;
  HeadPart<kHead> dv;
  for (int64_t query = place.first; query < T; query += kTile) {
    __syncthreads();
    load_rows<kHead>(q, base + query * 3 * C, 3 * C, rows_from(query, T), HS);
    load_rows<kHead>(g, dout_base + query * C, C, rows_from(query, T), HS);
    __syncthreads();
    float s[4][4];
    float dp[4][4];
    tile_product<kHead>(s, q, kt, tx, ty);
    tile_product<kHead>(dp, g, vt, tx, ty);
    probabilities(s, dp, lse + row0, D + row0, query, place.first, T, scale, tx, ty);
#pragma unroll
    for (int i = 0; i < 4; ++i) store(w + (ty * 4 + i) * kTileLd + tx * 4, Pack<4>{{s[i][0], s[i][1], s[i][2], s[i][3]}});
    __syncthreads();
    dv.add(w, g, tx, ty);  // w[query][key] is "weights transposed" for rows of keys
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) store(w + (ty * 4 + i) * kTileLd + tx * 4, Pack<4>{{dp[i][0], dp[i][1], dp[i][2], dp[i][3]}});
    __syncthreads();
    dk.add(w, q, tx, ty);
  }
  const float one[4] = {1, 1, 1, 1};
  float* target = dqkv + (place.b * T + place.first) * 3 * C + place.h * HS;
  dk.write(target + C, 3 * C, place.rows, HS, one, tx, ty);
  dv.write(target + 2 * C, 3 * C, place.rows, HS, one, tx, ty);
}

// One block per (tile of 64 queries, head): walks the key tiles up to the diagonal. Writes dq of its queries. Keys are needed both ways
// round; the buffer of v takes the second copy once v has been used.
template <int kHead>
__global__ void __launch_bounds__(kThreads)
    flash_backward_queries_kernel(float* __restrict__ dqkv, const float* __restrict__ dout, const float* __restrict__ qkv,
                                  const float* __restrict__ lse, const float* __restrict__ D, int64_t T, int64_t C, int64_t NH,
                                  float scale) {
  extern __shared__ __align__(16) float memory[];
  float* q = memory;                // [query][d]
  float* g = q + kBuffer<kHead>;    // dout, [query][d]
  float* kt = g + kBuffer<kHead>;   // [d][key]
  float* vt = kt + kBuffer<kHead>;  // [d][key], then k by rows: [key][d]
  float* w = vt + kBuffer<kHead>;   // ds, [key][query]
  const int tx = threadIdx.x % 16;
  const int ty = threadIdx.x / 16;
  const int HS = static_cast<int>(C / NH);
  const Place place(T, NH, true);
  const float* base = qkv + place.b * T * 3 * C + place.h * HS;
  const int64_t row0 = (place.b * NH + place.h) * T;

  load_rows<kHead>(q, base + place.first * 3 * C, 3 * C, place.rows, HS);
  load_rows<kHead>(g, dout + (place.b * T + place.first) * C + place.h * HS, C, place.rows, HS);
  HeadPart<kHead> dq;
  for (int64_t key = 0; key <= place.first; key += kTile) {
    __syncthreads();
    load_transposed<kHead>(kt, base + C + key * 3 * C, 3 * C, rows_from(key, T), HS);
    load_transposed<kHead>(vt, base + 2 * C + key * 3 * C, 3 * C, rows_from(key, T), HS);
    __syncthreads();
    float s[4][4];
    float dp[4][4];
    tile_product<kHead>(s, q, kt, tx, ty);
    tile_product<kHead>(dp, g, vt, tx, ty);
    probabilities(s, dp, lse + row0, D + row0, place.first, key, T, scale, tx, ty);
    __syncthreads();  // all have read vt
    load_rows<kHead>(vt, base + C + key * 3 * C, 3 * C, rows_from(key, T), HS);
#pragma unroll
    for (int j = 0; j < 4; ++j) store(w + (tx * 4 + j) * kTileLd + ty * 4, Pack<4>{{dp[0][j], dp[1][j], dp[2][j], dp[3][j]}});
    __syncthreads();
    dq.add(w, vt, tx, ty);
  }
  const float one[4] = {1, 1, 1, 1};
  dq.write(dqkv + (place.b * T + place.first) * 3 * C + place.h * HS, 3 * C, place.rows, HS, one, tx, ty);
}

// ---------------------------------------------------------------------------------------------------------------------

template <int kHead>
void launch_forward(float* out, float* lse, const float* qkv, const AttentionShape& s, cudaStream_t stream) {
  constexpr int bytes = (3 * kBuffer<kHead> + kTile * kTileLd) * static_cast<int>(sizeof(float));
  allow_shared_memory(flash_forward_kernel<kHead>, bytes);
  flash_forward_kernel<kHead><<<tile_blocks(s), kThreads, bytes, stream>>>(out, lse, qkv, s.T, s.C, s.NH, score_scale(s));
  STEPSCOPE_CHECK_LAUNCH();
}

template <int kHead>
constexpr int kBackwardBytes = (4 * kBuffer<kHead> + kTile * kTileLd) * static_cast<int>(sizeof(float));

template <int kHead>
void launch_backward(float* dqkv, const float* dout, const float* qkv, const float* lse, const float* D, const AttentionShape& s,
                     cudaStream_t stream) {
  constexpr int bytes = kBackwardBytes<kHead>;
  allow_shared_memory(flash_backward_keys_kernel<kHead>, bytes);
  flash_backward_keys_kernel<kHead><<<tile_blocks(s), kThreads, bytes, stream>>>(dqkv, dout, qkv, lse, D, s.T, s.C, s.NH, score_scale(s));
  STEPSCOPE_CHECK_LAUNCH();
  allow_shared_memory(flash_backward_queries_kernel<kHead>, bytes);
  flash_backward_queries_kernel<kHead>
      <<<tile_blocks(s), kThreads, bytes, stream>>>(dqkv, dout, qkv, lse, D, s.T, s.C, s.NH, score_scale(s));
  STEPSCOPE_CHECK_LAUNCH();
}

[[noreturn]] void refuse_head_size(const AttentionShape& s, const char* slot) {
  throw stepscope::InputError(std::string(slot) + "=flash: " + *why_not_flash(MatmulRate::fp32, s.HS(), 0));
}

}  // namespace

void fp32_flash_forward(float* out, float* lse, const float* qkv, const AttentionShape& s, cudaStream_t stream) {
  const int64_t HS = s.HS();
  if (HS <= 16) return launch_forward<16>(out, lse, qkv, s, stream);
  if (HS <= 32) return launch_forward<32>(out, lse, qkv, s, stream);
  if (HS <= 64) return launch_forward<64>(out, lse, qkv, s, stream);
  if (HS <= 128) return launch_forward<128>(out, lse, qkv, s, stream);
  refuse_head_size(s, "attention_forward");
}

int64_t fp32_flash_shared_bytes(int64_t head_size) {
  if (head_size <= 16) return kBackwardBytes<16>;
  if (head_size <= 32) return kBackwardBytes<32>;
  if (head_size <= 64) return kBackwardBytes<64>;
  return kBackwardBytes<128>;
}

void fp32_flash_backward(float* dqkv, const float* dout, const float* qkv, const float* out, const float* lse, const AttentionShape& s,
                         void* scratch, cudaStream_t stream) {
  auto* D = static_cast<float*>(scratch);
  const int64_t HS = s.HS();
  if (HS > 128) refuse_head_size(s, "attention_backward");
  gpt2::ops::dout_dot_out(D, dout, out, s, stream);
  if (HS <= 16) return launch_backward<16>(dqkv, dout, qkv, lse, D, s, stream);
  if (HS <= 32) return launch_backward<32>(dqkv, dout, qkv, lse, D, s, stream);
  if (HS <= 64) return launch_backward<64>(dqkv, dout, qkv, lse, D, s, stream);
  launch_backward<128>(dqkv, dout, qkv, lse, D, s, stream);
}

}  // namespace fp32
