// The kernels between the products, and the order of both. Float probabilities and ds take the places of the scores and of dout v^T;
// bf16 ones are written beside them, rounded for the products that read them.
#include "gpt2/ops/attention_unfused.cuh"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace gpt2::ops {
namespace {

constexpr int kRowsPerBlock = 4;  // warps of a softmax block

// One block per row (b,t), threads over its parts * C channels. Moves between (B,T,parts,NH,HS) and (parts,B,NH,T,HS).
template <class S, int N, bool kToHeads>
__global__ void permute_heads_kernel(S* __restrict__ out, const S* __restrict__ in, int64_t B, int64_t T, int C, int NH, int parts) {
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
template <int N, class S>
__device__ __forceinline__ void causal_softmax(S* probabilities, const float* scores, float* lse, int64_t rows, int64_t T,
                                               int64_t rows_per_block, float scale) {
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
template <int N, class S>
__device__ __forceinline__ void causal_softmax_backward(S* probabilities, S* ds_out, const float* scores, const float* dp, const float* lse,
                                                        const S* out, const S* dout, int64_t rows, int64_t T, int64_t NH, int64_t HS,
                                                        int64_t rows_per_block, float scale) {
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
  for (int64_t d = lane; d < HS; d += kWarp) product += load<1>(out + at + d).v[0] * load<1>(dout + at + d).v[0];
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

// The kernels, once for results beside the scores and once for results in their place: only the first may promise the compiler that no
// two pointers meet.
template <int N>
__global__ void causal_softmax_kernel(bf16* __restrict__ probabilities, const float* __restrict__ scores, float* __restrict__ lse,
                                      int64_t rows, int64_t T, int64_t rows_per_block, float scale) {
  causal_softmax<N>(probabilities, scores, lse, rows, T, rows_per_block, scale);
}
template <int N>
__global__ void causal_softmax_kernel(float* scores, float* __restrict__ lse, int64_t rows, int64_t T, int64_t rows_per_block,
                                      float scale) {
  causal_softmax<N>(scores, scores, lse, rows, T, rows_per_block, scale);
}
template <int N>
__global__ void causal_softmax_backward_kernel(bf16* __restrict__ probabilities, bf16* __restrict__ ds, const float* __restrict__ scores,
                                               const float* __restrict__ dp, const float* __restrict__ lse, const bf16* __restrict__ out,
                                               const bf16* __restrict__ dout, int64_t rows, int64_t T, int64_t NH, int64_t HS,
                                               int64_t rows_per_block, float scale) {
  causal_softmax_backward<N>(probabilities, ds, scores, dp, lse, out, dout, rows, T, NH, HS, rows_per_block, scale);
}
template <int N>
__global__ void causal_softmax_backward_kernel(float* scores, float* dp, const float* __restrict__ lse, const float* __restrict__ out,
                                               const float* __restrict__ dout, int64_t rows, int64_t T, int64_t NH, int64_t HS,
                                               int64_t rows_per_block, float scale) {
  causal_softmax_backward<N>(scores, dp, scores, dp, lse, out, dout, rows, T, NH, HS, rows_per_block, scale);
}

// ---------------------------------------------------------------------------------------------------------------------

template <class S>
constexpr bool kInPlace = std::is_same_v<S, float>;

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

template <class S>
struct ForwardScratch : Parts {
  explicit ForwardScratch(const AttentionShape& s)
      : q(take(3 * s.B * s.T * s.C * kBytes)),
        out_heads(take(s.B * s.T * s.C * kBytes)),
        scores(take(s.B * s.NH * s.T * s.T * 4)),
        probabilities(kInPlace<S> ? scores : take(s.B * s.NH * s.T * s.T * kBytes)) {}
  static constexpr int64_t kBytes = sizeof(S);
  int64_t q, out_heads, scores, probabilities;
};

template <class S>
struct BackwardScratch : Parts {
  explicit BackwardScratch(const AttentionShape& s)
      : q(take(3 * s.B * s.T * s.C * kBytes)),
        dq(take(3 * s.B * s.T * s.C * kBytes)),
        dout_heads(take(s.B * s.T * s.C * kBytes)),
        scores(take(s.B * s.NH * s.T * s.T * 4)),
        dp(take(s.B * s.NH * s.T * s.T * 4)),
        probabilities(kInPlace<S> ? scores : take(s.B * s.NH * s.T * s.T * kBytes)),
        ds(kInPlace<S> ? dp : take(s.B * s.NH * s.T * s.T * kBytes)) {}
  static constexpr int64_t kBytes = sizeof(S);
  int64_t q, dq, dout_heads, scores, dp, probabilities, ds;
};

// Rows of one block: at least 64, a multiple of 64 so that packs and products stay aligned.
int64_t rows_per_block(int64_t T, int64_t blocks) { return round_up_64(ceil_div<int64_t>(T, blocks)); }

template <bool kToHeads, class S>
void permute_heads(S* out, const S* in, const AttentionShape& s, int parts, cudaStream_t stream) {
  const unsigned rows = grid_blocks(s.B * s.T);
  const int C = static_cast<int>(s.C);
  const int NH = static_cast<int>(s.NH);
  const int64_t columns = parts * s.C;
  constexpr int N = kPack<S>;
  if (can_pack<S>(s.HS(), out, in))
    permute_heads_kernel<S, N, kToHeads><<<rows, row_threads(columns / N), 0, stream>>>(out, in, s.B, s.T, C, NH, parts);
  else
    permute_heads_kernel<S, 1, kToHeads><<<rows, row_threads(columns), 0, stream>>>(out, in, s.B, s.T, C, NH, parts);
  STEPSCOPE_CHECK_LAUNCH();
}

template <int N, class S>
void launch_softmax(S* probabilities, float* scores, float* lse, const AttentionShape& s, int64_t block_rows, float scale,
                    cudaStream_t stream) {
  const int64_t rows = s.B * s.NH * s.T;
  const unsigned grid = grid_blocks(ceil_div<int64_t>(rows, kRowsPerBlock));
  constexpr int kThreads = kRowsPerBlock * kWarp;
  if constexpr (kInPlace<S>)
    causal_softmax_kernel<N><<<grid, kThreads, 0, stream>>>(scores, lse, rows, s.T, block_rows, scale);
  else
    causal_softmax_kernel<N><<<grid, kThreads, 0, stream>>>(probabilities, scores, lse, rows, s.T, block_rows, scale);
  STEPSCOPE_CHECK_LAUNCH();
}

template <int N, class S>
void launch_softmax_backward(S* probabilities, S* ds, float* scores, float* dp, const float* lse, const S* out, const S* dout,
                             const AttentionShape& s, int64_t block_rows, float scale, cudaStream_t stream) {
  const int64_t rows = s.B * s.NH * s.T;
  const unsigned grid = grid_blocks(ceil_div<int64_t>(rows, kRowsPerBlock));
  constexpr int kThreads = kRowsPerBlock * kWarp;
  if constexpr (kInPlace<S>)
    causal_softmax_backward_kernel<N>
        <<<grid, kThreads, 0, stream>>>(scores, dp, lse, out, dout, rows, s.T, s.NH, s.HS(), block_rows, scale);
  else
    causal_softmax_backward_kernel<N>
        <<<grid, kThreads, 0, stream>>>(probabilities, ds, scores, dp, lse, out, dout, rows, s.T, s.NH, s.HS(), block_rows, scale);
  STEPSCOPE_CHECK_LAUNCH();
}

// The products of one attention: (B*NH) matrices each, q k v out (T,HS), scores (T,T).
template <class S>
struct Products {
  const RunHeadProduct<S>& run;
  const AttentionShape& shape;

  // scores[begin:end, 0:end] = a[begin:end] b[0:end]^T
  void scores(float* result, const S* a, const S* b, int64_t begin, int64_t end) const {
    const int64_t T = shape.T;
    const int64_t HS = shape.HS();
    HeadProduct<S> p = every_head();
    p.transpose_b = true;
    p.m = end - begin, p.n = end, p.k = HS;
    p.a = a + begin * HS, p.lda = HS, p.stride_a = T * HS;
    p.b = b, p.ldb = HS, p.stride_b = T * HS;
    p.c = result + begin * T, p.ldc = T, p.stride_c = T * T, p.c_is_fp32 = true;
    run(p);
  }
  // result[begin:end] = weights[begin:end, 0:end] values[0:end]
  void rows(S* result, const S* weights, const S* values, int64_t begin, int64_t end) const {
    const int64_t T = shape.T;
    const int64_t HS = shape.HS();
    HeadProduct<S> p = every_head();
    p.m = end - begin, p.n = HS, p.k = end;
    p.a = weights + begin * T, p.lda = T, p.stride_a = T * T;
    p.b = values, p.ldb = HS, p.stride_b = T * HS;
    p.c = result + begin * HS, p.ldc = HS, p.stride_c = T * HS;
    run(p);
  }
  // result[begin:end] = weights[begin:T, begin:end]^T values[begin:T]
  void columns(S* result, const S* weights, const S* values, int64_t begin, int64_t end) const {
    const int64_t T = shape.T;
    const int64_t HS = shape.HS();
    HeadProduct<S> p = every_head();
    p.transpose_a = true;
    p.m = end - begin, p.n = HS, p.k = T - begin;
    p.a = weights + begin * T + begin, p.lda = T, p.stride_a = T * T;
    p.b = values + begin * HS, p.ldb = HS, p.stride_b = T * HS;
    p.c = result + begin * HS, p.ldc = HS, p.stride_c = T * HS;
    run(p);
  }

 private:
  HeadProduct<S> every_head() const {
    HeadProduct<S> p;
    p.batch = shape.B * shape.NH;
    return p;
  }
};

}  // namespace

template <class S>
int64_t unfused_forward_scratch_bytes(const AttentionShape& s) {
  return ForwardScratch<S>(s).total();
}

template <class S>
void unfused_attention_forward(const RunHeadProduct<S>& product, S* out, float* lse, const S* qkv, const AttentionShape& s, int64_t blocks,
                               void* scratch, cudaStream_t stream) {
  const ForwardScratch<S> part(s);
  S* q = part.template at<S>(scratch, part.q);  // q, k, v lie together, as permute_heads writes them
  S* k = q + s.B * s.T * s.C;
  S* v = k + s.B * s.T * s.C;
  S* out_heads = part.template at<S>(scratch, part.out_heads);
  float* scores = part.template at<float>(scratch, part.scores);
  S* probabilities = part.template at<S>(scratch, part.probabilities);
  const int64_t block_rows = rows_per_block(s.T, blocks);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.HS()));
  const Products<S> products{product, s};

  permute_heads<true>(q, qkv, s, 3, stream);
  for (int64_t begin = 0; begin < s.T; begin += block_rows) products.scores(scores, q, k, begin, std::min(begin + block_rows, s.T));
  if (can_pack<S>(s.T, scores, probabilities))
    launch_softmax<kPack<S>>(probabilities, scores, lse, s, block_rows, scale, stream);
  else
    launch_softmax<1>(probabilities, scores, lse, s, block_rows, scale, stream);
  for (int64_t begin = 0; begin < s.T; begin += block_rows)
    products.rows(out_heads, probabilities, v, begin, std::min(begin + block_rows, s.T));
  permute_heads<false>(out, out_heads, s, 1, stream);
}

template <class S>
int64_t unfused_backward_scratch_bytes(const AttentionShape& s) {
  return BackwardScratch<S>(s).total();
}

template <class S>
void unfused_attention_backward(const RunHeadProduct<S>& product, S* dqkv, const S* dout, const S* qkv, const S* out, const float* lse,
                                const AttentionShape& s, int64_t blocks, void* scratch, cudaStream_t stream) {
  const BackwardScratch<S> part(s);
  const int64_t plane = s.B * s.T * s.C;
  S* q = part.template at<S>(scratch, part.q);
  S* k = q + plane;
  S* v = k + plane;
  S* dq = part.template at<S>(scratch, part.dq);
  S* dk = dq + plane;
  S* dv = dk + plane;
  S* dout_heads = part.template at<S>(scratch, part.dout_heads);
  float* scores = part.template at<float>(scratch, part.scores);
  float* dp = part.template at<float>(scratch, part.dp);
  S* probabilities = part.template at<S>(scratch, part.probabilities);
  S* ds = part.template at<S>(scratch, part.ds);
  const int64_t block_rows = rows_per_block(s.T, blocks);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.HS()));
  const Products<S> products{product, s};

  permute_heads<true>(q, qkv, s, 3, stream);
  permute_heads<true>(dout_heads, dout, s, 1, stream);
  for (int64_t begin = 0; begin < s.T; begin += block_rows) {
    const int64_t end = std::min(begin + block_rows, s.T);
    products.scores(scores, q, k, begin, end);
    products.scores(dp, dout_heads, v, begin, end);
  }
  if (can_pack<S>(s.T, scores, dp, probabilities, ds))
    launch_softmax_backward<kPack<S>>(probabilities, ds, scores, dp, lse, out, dout, s, block_rows, scale, stream);
  else
    launch_softmax_backward<1>(probabilities, ds, scores, dp, lse, out, dout, s, block_rows, scale, stream);
  for (int64_t begin = 0; begin < s.T; begin += block_rows) {
    const int64_t end = std::min(begin + block_rows, s.T);
    products.rows(dq, ds, k, begin, end);
    products.columns(dk, ds, q, begin, end);
    products.columns(dv, probabilities, dout_heads, begin, end);
  }
  permute_heads<false>(dqkv, dq, s, 3, stream);
}

#define STEPSCOPE_INSTANTIATE(S)                                                                                                    \
  template void unfused_attention_forward<S>(const RunHeadProduct<S>&, S*, float*, const S*, const AttentionShape&, int64_t, void*, \
                                             cudaStream_t);                                                                         \
  template int64_t unfused_forward_scratch_bytes<S>(const AttentionShape&);                                                         \
  template void unfused_attention_backward<S>(const RunHeadProduct<S>&, S*, const S*, const S*, const S*, const float*,             \
                                              const AttentionShape&, int64_t, void*, cudaStream_t);                                 \
  template int64_t unfused_backward_scratch_bytes<S>(const AttentionShape&);
STEPSCOPE_INSTANTIATE(float)
STEPSCOPE_INSTANTIATE(bf16)
#undef STEPSCOPE_INSTANTIATE

}  // namespace gpt2::ops
