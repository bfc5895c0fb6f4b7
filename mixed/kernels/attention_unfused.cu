// Attention as batched matrix products over (T,T) scores of one layer, with a softmax kernel between them. Scores and dp = dout v^T stay
// fp32 until the softmax; probabilities and ds are rounded to bf16 for the products that read them.
//
// Scores are cut into blocks of rows: rows [begin, end) are computed for columns [0, end) only. Inside that block the entries above the
// diagonal exist and are written as exact zeros, because the products that follow read them; beyond column `end` nothing is ever
// written or read. Columns are cut at the same places, so dk and dv of columns [begin, end) read rows from `begin` on.
#include "mixed/kernels/attention.cuh"

#include <algorithm>
#include <cmath>

#include "mixed/kernels/common.cuh"

namespace mixed {
namespace {

constexpr int kRowsPerBlock = 4;  // warps of a softmax block

// One block per row (b,t), threads over its parts * C channels. Moves between (B,T,parts,NH,HS) and (parts,B,NH,T,HS).
template <int N, bool kToHeads>
__global__ void permute_heads_kernel(bf16* __restrict__ out, const bf16* __restrict__ in, int64_t B, int64_t T, int C, int NH, int parts) {
  const int HS = C / NH;
  const int64_t row = blockIdx.x;
  const int64_t b = row / T;
  const int64_t t = row % T;
  for (int c = threadIdx.x * N; c < parts * C; c += blockDim.x * N) {
    const int part = c / C;
    const int h = (c % C) / HS;
    const int d = c % HS;  // C is a multiple of HS
    const int64_t by_head = (((part * B + b) * NH + h) * T + t) * HS + d;
    const int64_t by_row = row * parts * C + c;
    if constexpr (kToHeads)
      store(out + by_head, load<N>(in + by_row));
    else
      store(out + by_row, load<N>(in + by_head));
  }
}

// Columns of the block of rows that row t lies in.
__device__ __forceinline__ int64_t block_columns(int64_t t, int64_t T, int64_t rows_per_block) {
  return min((t / rows_per_block + 1) * rows_per_block, T);
}

// One warp per row of scores (b,h,t), lanes over columns: scores to probabilities, zero above the diagonal; lse is kept.
template <int N>
__global__ void causal_softmax_kernel(bf16* __restrict__ probabilities, const float* __restrict__ scores, float* __restrict__ lse,
                                      int64_t rows, int64_t T, int64_t rows_per_block, float scale) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = blockIdx.x * static_cast<int64_t>(kRowsPerBlock) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int64_t t = row % T;
  const float* s_row = scores + row * T;

  float max = -INFINITY;
  float sum = 0;
  for (int64_t c = lane * N; c <= t; c += kWarp * N) {
    const Pack<N> s = load<N>(s_row + c);
    float pack_max = -INFINITY;
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (c + k <= t) pack_max = fmaxf(pack_max, s.v[k] * scale);
    if (pack_max > max) {
      sum *= expf(max - pack_max);
      max = pack_max;
    }
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (c + k <= t) sum += expf(s.v[k] * scale - max);
  }
  const float row_max = warp_max(max);
  const float row_sum = warp_sum(sum * expf(max - row_max));
  if (lane == 0) lse[row] = row_max + logf(row_sum);

  const float inverse_sum = 1.0f / row_sum;
  const int64_t columns = block_columns(t, T, rows_per_block);
  for (int64_t c = lane * N; c < columns; c += kWarp * N) {
    Pack<N> p{};
    if (c <= t) {
      const Pack<N> s = load<N>(s_row + c);
#pragma unroll
      for (int k = 0; k < N; ++k) p.v[k] = c + k <= t ? expf(s.v[k] * scale - row_max) * inverse_sum : 0.0f;
    }
    store(probabilities + row * T + c, p);
  }
}

// One warp per row (b,h,t), lanes over columns. In: scores and dp = dout v^T. Out: probabilities and ds, both zero above the diagonal.
template <int N>
__global__ void causal_softmax_backward_kernel(bf16* __restrict__ probabilities, bf16* __restrict__ ds_out,
                                               const float* __restrict__ scores, const float* __restrict__ dp,
                                               const float* __restrict__ lse, const bf16* __restrict__ out, const bf16* __restrict__ dout,
                                               int64_t rows, int64_t T, int64_t NH, int64_t HS, int64_t rows_per_block, float scale) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = blockIdx.x * static_cast<int64_t>(kRowsPerBlock) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int64_t t = row % T;
  const int64_t h = row / T % NH;
  const int64_t b = row / T / NH;
  const float* s_row = scores + row * T;
  const float* dp_row = dp + row * T;

  const int64_t at = (b * T + t) * NH * HS + h * HS;
  float product = 0;
  for (int64_t d = lane; d < HS; d += kWarp) product += __bfloat162float(out[at + d]) * __bfloat162float(dout[at + d]);
  const float D = warp_sum(product);
  const float row_lse = lse[row];

  const int64_t columns = block_columns(t, T, rows_per_block);
#pragma unroll 2
  for (int64_t c = lane * N; c < columns; c += kWarp * N) {
    Pack<N> p{};
    Pack<N> ds{};
    if (c <= t) {
      const Pack<N> s = load<N>(s_row + c);
      const Pack<N> g = load<N>(dp_row + c);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        p.v[k] = c + k <= t ? expf(s.v[k] * scale - row_lse) : 0.0f;
        ds.v[k] = c + k <= t ? p.v[k] * (g.v[k] - D) * scale : 0.0f;
      }
    }
    store(probabilities + row * T + c, p);
    store(ds_out + row * T + c, ds);
  }
}

// ---------------------------------------------------------------------------------------------------------------------

constexpr int64_t kCausalBlocks = 4;  // 10/16 of the work of whole matrices

constexpr int64_t round_up_64(int64_t n) { return ceil_div<int64_t>(n, 64) * 64; }

// Parts of the scratch memory in bytes, each 256-byte aligned when the scratch is.
class Parts {
 public:
  int64_t total() const { return total_; }
  template <class T>
  static T* at(void* scratch, int64_t offset) {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(scratch) + offset);
  }

 protected:
  int64_t take(int64_t bytes) {
    const int64_t offset = total_;
    total_ += ceil_div<int64_t>(bytes, 256) * 256;
    return offset;
  }

 private:
  int64_t total_ = 0;
};

struct ForwardScratch : Parts {
  explicit ForwardScratch(const AttentionShape& s)
      : q(take(3 * s.B * s.T * s.C * 2)),
        out_heads(take(s.B * s.T * s.C * 2)),
        scores(take(s.B * s.NH * s.T * s.T * 4)),
        probabilities(take(s.B * s.NH * s.T * s.T * 2)) {}
  int64_t q, out_heads, scores, probabilities;
};

struct BackwardScratch : Parts {
  explicit BackwardScratch(const AttentionShape& s)
      : q(take(3 * s.B * s.T * s.C * 2)),
        dq(take(3 * s.B * s.T * s.C * 2)),
        dout_heads(take(s.B * s.T * s.C * 2)),
        scores(take(s.B * s.NH * s.T * s.T * 4)),
        dp(take(s.B * s.NH * s.T * s.T * 4)),
        probabilities(take(s.B * s.NH * s.T * s.T * 2)),
        ds(take(s.B * s.NH * s.T * s.T * 2)) {}
  int64_t q, dq, dout_heads, scores, dp, probabilities, ds;
};

// Rows of one block: at least 64, a multiple of 64 so that packs and products stay aligned.
int64_t rows_per_block(int64_t T, int64_t blocks) { return round_up_64(ceil_div<int64_t>(T, blocks)); }

template <bool kToHeads>
void permute_heads(bf16* out, const bf16* in, const AttentionShape& s, int parts, cudaStream_t stream) {
  const unsigned rows = grid_blocks(s.B * s.T);
  const int C = static_cast<int>(s.C);
  const int NH = static_cast<int>(s.NH);
  const int64_t columns = parts * s.C;
  if (can_pack(s.HS(), out, in))
    permute_heads_kernel<8, kToHeads><<<rows, row_threads(columns / 8), 0, stream>>>(out, in, s.B, s.T, C, NH, parts);
  else
    permute_heads_kernel<1, kToHeads><<<rows, row_threads(columns), 0, stream>>>(out, in, s.B, s.T, C, NH, parts);
  STEPSCOPE_CHECK_LAUNCH();
}

// The products of one attention: (B*NH) matrices each, q k v out (T,HS), scores (T,T).
struct Products {
  MatmulEngine& engine;
  const AttentionShape& shape;
  cudaStream_t stream;

  // scores[begin:end, 0:end] = a[begin:end] b[0:end]^T
  void scores(float* result, const bf16* a, const bf16* b, int64_t begin, int64_t end) const {
    const int64_t T = shape.T;
    const int64_t HS = shape.HS();
    Gemm g = batched();
    g.transpose_b = true;
    g.m = end - begin, g.n = end, g.k = HS;
    g.a = a + begin * HS, g.lda = HS, g.stride_a = T * HS;
    g.b = b, g.ldb = HS, g.stride_b = T * HS;
    g.c = result + begin * T, g.ldc = T, g.stride_c = T * T, g.c_storage = Storage::fp32;
    engine.run(g, stream);
  }
  // result[begin:end] = weights[begin:end, 0:end] values[0:end]
  void rows(bf16* result, const bf16* weights, const bf16* values, int64_t begin, int64_t end) const {
    const int64_t T = shape.T;
    const int64_t HS = shape.HS();
    Gemm g = batched();
    g.m = end - begin, g.n = HS, g.k = end;
    g.a = weights + begin * T, g.lda = T, g.stride_a = T * T;
    g.b = values, g.ldb = HS, g.stride_b = T * HS;
    g.c = result + begin * HS, g.ldc = HS, g.stride_c = T * HS;
    engine.run(g, stream);
  }
  // result[begin:end] = weights[begin:T, begin:end]^T values[begin:T]
  void columns(bf16* result, const bf16* weights, const bf16* values, int64_t begin, int64_t end) const {
    const int64_t T = shape.T;
    const int64_t HS = shape.HS();
    Gemm g = batched();
    g.transpose_a = true;
    g.m = end - begin, g.n = HS, g.k = T - begin;
    g.a = weights + begin * T + begin, g.lda = T, g.stride_a = T * T;
    g.b = values + begin * HS, g.ldb = HS, g.stride_b = T * HS;
    g.c = result + begin * HS, g.ldc = HS, g.stride_c = T * HS;
    engine.run(g, stream);
  }

 private:
  Gemm batched() const {
    Gemm g;
    g.batch = shape.B * shape.NH;
    return g;
  }
};

}  // namespace

int64_t unfused_forward_scratch_bytes(const AttentionShape& s) { return ForwardScratch(s).total(); }

void unfused_attention_forward(MatmulEngine& engine, bf16* out, float* lse, const bf16* qkv, const AttentionShape& s, void* scratch,
                               cudaStream_t stream) {
  const ForwardScratch part(s);
  bf16* q = part.at<bf16>(scratch, part.q);  // q, k, v lie together, as permute_heads writes them
  bf16* k = q + s.B * s.T * s.C;
  bf16* v = k + s.B * s.T * s.C;
  bf16* out_heads = part.at<bf16>(scratch, part.out_heads);
  float* scores = part.at<float>(scratch, part.scores);
  bf16* probabilities = part.at<bf16>(scratch, part.probabilities);
  const int64_t block_rows = rows_per_block(s.T, kCausalBlocks);
  const int64_t rows = s.B * s.NH * s.T;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.HS()));
  const Products products{engine, s, stream};

  permute_heads<true>(q, qkv, s, 3, stream);
  for (int64_t begin = 0; begin < s.T; begin += block_rows) products.scores(scores, q, k, begin, std::min(begin + block_rows, s.T));
  const unsigned softmax_blocks = grid_blocks(ceil_div<int64_t>(rows, kRowsPerBlock));
  if (can_pack(s.T, scores, probabilities))
    causal_softmax_kernel<8>
        <<<softmax_blocks, kRowsPerBlock * kWarp, 0, stream>>>(probabilities, scores, lse, rows, s.T, block_rows, scale);
  else
    causal_softmax_kernel<1>
        <<<softmax_blocks, kRowsPerBlock * kWarp, 0, stream>>>(probabilities, scores, lse, rows, s.T, block_rows, scale);
  STEPSCOPE_CHECK_LAUNCH();
  for (int64_t begin = 0; begin < s.T; begin += block_rows)
    products.rows(out_heads, probabilities, v, begin, std::min(begin + block_rows, s.T));
  permute_heads<false>(out, out_heads, s, 1, stream);
}

int64_t unfused_backward_scratch_bytes(const AttentionShape& s) { return BackwardScratch(s).total(); }

void unfused_attention_backward(MatmulEngine& engine, bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse,
                                const AttentionShape& s, void* scratch, cudaStream_t stream) {
  const BackwardScratch part(s);
  const int64_t plane = s.B * s.T * s.C;
  bf16* q = part.at<bf16>(scratch, part.q);
  bf16* k = q + plane;
  bf16* v = k + plane;
  bf16* dq = part.at<bf16>(scratch, part.dq);
  bf16* dk = dq + plane;
  bf16* dv = dk + plane;
  bf16* dout_heads = part.at<bf16>(scratch, part.dout_heads);
  float* scores = part.at<float>(scratch, part.scores);
  float* dp = part.at<float>(scratch, part.dp);
  bf16* probabilities = part.at<bf16>(scratch, part.probabilities);
  bf16* ds = part.at<bf16>(scratch, part.ds);
  const int64_t block_rows = rows_per_block(s.T, kCausalBlocks);
  const int64_t rows = s.B * s.NH * s.T;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.HS()));
  const Products products{engine, s, stream};

  permute_heads<true>(q, qkv, s, 3, stream);
  permute_heads<true>(dout_heads, dout, s, 1, stream);
  for (int64_t begin = 0; begin < s.T; begin += block_rows) {
    const int64_t end = std::min(begin + block_rows, s.T);
    products.scores(scores, q, k, begin, end);
    products.scores(dp, dout_heads, v, begin, end);
  }
  const unsigned softmax_blocks = grid_blocks(ceil_div<int64_t>(rows, kRowsPerBlock));
  if (can_pack(s.T, scores, dp, probabilities, ds))
    causal_softmax_backward_kernel<8><<<softmax_blocks, kRowsPerBlock * kWarp, 0, stream>>>(probabilities, ds, scores, dp, lse, out, dout,
                                                                                            rows, s.T, s.NH, s.HS(), block_rows, scale);
  else
    causal_softmax_backward_kernel<1><<<softmax_blocks, kRowsPerBlock * kWarp, 0, stream>>>(probabilities, ds, scores, dp, lse, out, dout,
                                                                                            rows, s.T, s.NH, s.HS(), block_rows, scale);
  STEPSCOPE_CHECK_LAUNCH();
  for (int64_t begin = 0; begin < s.T; begin += block_rows) {
    const int64_t end = std::min(begin + block_rows, s.T);
    products.rows(dq, ds, k, begin, end);
    products.columns(dk, ds, q, begin, end);
    products.columns(dv, probabilities, dout_heads, begin, end);
  }
  permute_heads<false>(dqkv, dq, s, 3, stream);
}

}  // namespace mixed
