// One plain kernel per op, and under each the function that launches it. Nothing is fused and nothing is
// clever; what each kernel leaves on the table is for the reader to find.
//
// Two rules hold throughout. Sums over the N rows of a batch run in two stages in a fixed order: first over
// chunks of rows, then over the chunks; there is no atomicAdd, so two runs give the same bits. And an index
// that counts elements is int64_t.
#pragma once
#include <cfloat>
#include <cstdint>

#include "check.cuh"

namespace baseline {

inline constexpr int kThreads = 256;     // of a block, where nothing else is said
inline constexpr int kRowsPerBlock = 8;  // kernels with one warp for each row: kThreads / 32
inline constexpr float kLayernormEps = 1e-5f;

inline int64_t blocks_for(int64_t items, int64_t per_block) { return (items + per_block - 1) / per_block; }

// ---- sums over a warp and over a block: every thread gets the result ----------------------------

template <typename T>
__device__ T warp_sum(T value) {
  for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffffu, value, other);
  return value;
}

__device__ inline float warp_max(float value) {
  for (int other = 16; other > 0; other /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, other));
  return value;
}

// blockDim.x must be a multiple of 32. The first barrier protects `partial` from a call that came just
// before.
template <typename T>
__device__ T block_sum(T value) {
  __shared__ T partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = warp_sum(value);
  __syncthreads();
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? partial[lane] : T(0));
}

__device__ inline float block_max(float value) {
  __shared__ float partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = warp_max(value);
  __syncthreads();
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_max(lane < warps ? partial[lane] : -FLT_MAX);
}

// ---- embedding ----------------------------------------------------------------------------------

// out (N,C) = wte[token] + wpe[position]. One block for each row.
__global__ void embedding_forward_kernel(float* out, const int* tokens, const float* wte, const float* wpe,
                                         int64_t T, int64_t C) {
  const int64_t n = blockIdx.x;
  const float* token_row = wte + tokens[n] * C;
  const float* position_row = wpe + (n % T) * C;
  for (int64_t c = threadIdx.x; c < C; c += blockDim.x) out[n * C + c] = token_row[c] + position_row[c];
}

inline void embedding_forward(float* out, const int* tokens, const float* wte, const float* wpe, int64_t N,
                              int64_t T, int64_t C, cudaStream_t stream) {
  embedding_forward_kernel<<<N, kThreads, 0, stream>>>(out, tokens, wte, wpe, T, C);
  CHECK_LAUNCH();
}

// dwte[token] += the rows of dout (N,C) at which the token stands. One block for 32 channels x one distinct
// token: 8 warps share the token's positions, each adding its own in ascending order, then the 8 sums are
// added in order. The positions come sorted by token.
__global__ void embedding_backward_wte_kernel(float* dwte, const float* dout, const int* group_tokens,
                                              const int* group_begins, const int* positions, int64_t C) {
  __shared__ float partial[8][32];
  const int64_t group = blockIdx.x;
  const int64_t c = static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x;
  float sum = 0.0f;
  if (c < C) {
    for (int i = group_begins[group] + threadIdx.y; i < group_begins[group + 1]; i += 8) {
      sum += dout[static_cast<int64_t>(positions[i]) * C + c];
    }
  }
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= C) return;
  float total = 0.0f;
  for (int warp = 0; warp < 8; ++warp) total += partial[warp][threadIdx.x];
  dwte[static_cast<int64_t>(group_tokens[group]) * C + c] += total;
}

// dwpe[t] = sum over the batch of dout at position t. One block for each t; rows t >= T of dwpe are not
// touched.
__global__ void embedding_backward_wpe_kernel(float* dwpe, const float* dout, int64_t B, int64_t T,
                                              int64_t C) {
  const int64_t t = blockIdx.x;
  for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
    float sum = 0.0f;
    for (int64_t b = 0; b < B; ++b) sum += dout[(b * T + t) * C + c];
    dwpe[t * C + c] = sum;
  }
}

inline void embedding_backward(float* dwte, float* dwpe, const float* dout, const int* group_tokens,
                               const int* group_begins, const int* positions, int64_t groups, int64_t B,
                               int64_t T, int64_t C, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(groups), static_cast<unsigned>(blocks_for(C, 32)));
  embedding_backward_wte_kernel<<<grid, dim3(32, 8), 0, stream>>>(dwte, dout, group_tokens, group_begins,
                                                                  positions, C);
  CHECK_LAUNCH();
  embedding_backward_wpe_kernel<<<T, kThreads, 0, stream>>>(dwpe, dout, B, T, C);
  CHECK_LAUNCH();
}

// ---- sums over the rows of a batch --------------------------------------------------------------

// At most 256 chunks, none shorter than 128 rows (but the last): partial sums need `chunks x columns` floats.
inline constexpr int64_t kMostChunks = 256;
struct RowChunks {
  int64_t rows, count;
  explicit RowChunks(int64_t N)
      : rows(blocks_for(N, kMostChunks) > 128 ? blocks_for(N, kMostChunks) : 128),
        count(blocks_for(N, rows)) {}
};

// Adds what the 8 warps of a (32, 8) block hold for the same 32 columns; valid in threads with threadIdx.y ==
// 0.
__device__ inline float add_warps(float value) {
  __shared__ float partial[8][32];
  __syncthreads();
  partial[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < 8; ++warp) sum += partial[warp][threadIdx.x];
  return sum;
}

// partial (chunks, columns): sums of in (N, columns) over each chunk of rows. One (32, 8) block for 32
// columns x one chunk.
__global__ void column_sum_kernel(float* partial, const float* in, int64_t N, int64_t columns,
                                  int64_t chunk_rows) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = begin + chunk_rows < N ? begin + chunk_rows : N;
  float sum = 0.0f;
  if (column < columns) {
    for (int64_t n = begin + threadIdx.y; n < end; n += 8) sum += in[n * columns + column];
  }
  sum = add_warps(sum);
  if (threadIdx.y == 0 && column < columns) partial[blockIdx.y * columns + column] = sum;
}

// out (columns) = sum of partial (chunks, columns) over the chunks. One thread for each column.
__global__ void add_chunks_kernel(float* out, const float* partial, int64_t chunks, int64_t columns) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * columns + column];
  out[column] = sum;
}

inline void add_chunks(float* out, const float* partial, int64_t chunks, int64_t columns,
                       cudaStream_t stream) {
  add_chunks_kernel<<<blocks_for(columns, 64), 64, 0, stream>>>(out, partial, chunks, columns);
  CHECK_LAUNCH();
}

// The gradient of a bias: out (columns) = sum of in (N, columns) over the rows.
inline void column_sum(float* out, const float* in, float* partial, int64_t N, int64_t columns,
                       cudaStream_t stream) {
  const RowChunks chunks(N);
  const dim3 grid(static_cast<unsigned>(blocks_for(columns, 32)), static_cast<unsigned>(chunks.count));
  column_sum_kernel<<<grid, dim3(32, 8), 0, stream>>>(partial, in, N, columns, chunks.rows);
  CHECK_LAUNCH();
  add_chunks(out, partial, chunks.count, columns, stream);
}

// ---- layernorm ----------------------------------------------------------------------------------

// out = (in - mean) / sqrt(variance + eps) * weight + bias over each row of C; keeps mean and 1/sqrt(...) for
// the backward pass. One warp for each row. The variance is taken around the mean: E[x^2] - E[x]^2 would
// cancel.
__global__ void layernorm_forward_kernel(float* out, float* mean_out, float* rstd_out, const float* in,
                                         const float* weight, const float* bias, int64_t N, int64_t C) {
  const int lane = threadIdx.x % 32;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32;
  if (n >= N) return;
  const float* x = in + n * C;
  float sum = 0.0f;
  for (int64_t c = lane; c < C; c += 32) sum += x[c];
  const float mean = warp_sum(sum) / C;
  float squares = 0.0f;
  for (int64_t c = lane; c < C; c += 32) squares += (x[c] - mean) * (x[c] - mean);
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / C + kLayernormEps);
  for (int64_t c = lane; c < C; c += 32) out[n * C + c] = (x[c] - mean) * rstd * weight[c] + bias[c];
  if (lane == 0) {
    mean_out[n] = mean;
    rstd_out[n] = rstd;
  }
}

inline void layernorm_forward(float* out, float* mean, float* rstd, const float* in, const float* weight,
                              const float* bias, int64_t N, int64_t C, cudaStream_t stream) {
  layernorm_forward_kernel<<<blocks_for(N, kRowsPerBlock), kThreads, 0, stream>>>(out, mean, rstd, in, weight,
                                                                                  bias, N, C);
  CHECK_LAUNCH();
}

// With norm = (in - mean) * rstd and g = weight * dout, din += rstd * (g - mean(g) - norm * mean(g * norm)).
// It ADDS: din is the gradient of the residual stream, which already holds what flowed around the layernorm.
// One warp for each row.
__global__ void layernorm_backward_input_kernel(float* din, const float* dout, const float* in,
                                                const float* weight, const float* mean, const float* rstd,
                                                int64_t N, int64_t C) {
  const int lane = threadIdx.x % 32;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32;
  if (n >= N) return;
  const float m = mean[n], s = rstd[n];
  float sum_g = 0.0f, sum_g_norm = 0.0f;
  for (int64_t c = lane; c < C; c += 32) {
    const float g = weight[c] * dout[n * C + c];
    sum_g += g;
    sum_g_norm += g * (in[n * C + c] - m) * s;
  }
  const float mean_g = warp_sum(sum_g) / C;
  const float mean_g_norm = warp_sum(sum_g_norm) / C;
  for (int64_t c = lane; c < C; c += 32) {
    const float g = weight[c] * dout[n * C + c];
    const float norm = (in[n * C + c] - m) * s;
    din[n * C + c] += s * (g - mean_g - norm * mean_g_norm);
  }
}

// Chunk sums of dout * norm (for the weight) and of dout (for the bias). One (32, 8) block for 32 channels x
// one chunk of rows.
__global__ void layernorm_backward_params_kernel(float* partial_weight, float* partial_bias,
                                                 const float* dout, const float* in, const float* mean,
                                                 const float* rstd, int64_t N, int64_t C,
                                                 int64_t chunk_rows) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = begin + chunk_rows < N ? begin + chunk_rows : N;
  float weight_sum = 0.0f, bias_sum = 0.0f;
  if (c < C) {
    for (int64_t n = begin + threadIdx.y; n < end; n += 8) {
      const float g = dout[n * C + c];
      weight_sum += g * (in[n * C + c] - mean[n]) * rstd[n];
      bias_sum += g;
    }
  }
  weight_sum = add_warps(weight_sum);
  bias_sum = add_warps(bias_sum);
  if (threadIdx.y == 0 && c < C) {
    partial_weight[blockIdx.y * C + c] = weight_sum;
    partial_bias[blockIdx.y * C + c] = bias_sum;
  }
}

inline void layernorm_backward(float* din, float* dweight, float* dbias, float* partial, const float* dout,
                               const float* in, const float* weight, const float* mean, const float* rstd,
                               int64_t N, int64_t C, cudaStream_t stream) {
  const RowChunks chunks(N);
  float* partial_bias = partial + chunks.count * C;
  const dim3 grid(static_cast<unsigned>(blocks_for(C, 32)), static_cast<unsigned>(chunks.count));
  layernorm_backward_params_kernel<<<grid, dim3(32, 8), 0, stream>>>(partial, partial_bias, dout, in, mean,
                                                                     rstd, N, C, chunks.rows);
  CHECK_LAUNCH();
  add_chunks(dweight, partial, chunks.count, C, stream);
  add_chunks(dbias, partial_bias, chunks.count, C, stream);
  layernorm_backward_input_kernel<<<blocks_for(N, kRowsPerBlock), kThreads, 0, stream>>>(
      din, dout, in, weight, mean, rstd, N, C);
  CHECK_LAUNCH();
}

// ---- elementwise --------------------------------------------------------------------------------

// x (N, columns) += bias (columns) in every row. One block for each row.
__global__ void add_bias_kernel(float* x, const float* bias, int64_t columns) {
  float* row = x + static_cast<int64_t>(blockIdx.x) * columns;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) row[c] += bias[c];
}

inline void add_bias(float* x, const float* bias, int64_t N, int64_t columns, cudaStream_t stream) {
  add_bias_kernel<<<N, kThreads, 0, stream>>>(x, bias, columns);
  CHECK_LAUNCH();
}

__global__ void residual_forward_kernel(float* out, const float* a, const float* b, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = a[i] + b[i];
}

inline void residual_forward(float* out, const float* a, const float* b, int64_t count, cudaStream_t stream) {
  residual_forward_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(out, a, b, count);
  CHECK_LAUNCH();
}

// GPT-2's GELU is the tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
inline constexpr float kGeluScale = 0.7978845608028654f;  // sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;

__global__ void gelu_forward_kernel(float* out, const float* in, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float x = in[i];
  out[i] = 0.5f * x * (1.0f + tanhf(kGeluScale * (x + kGeluCubic * x * x * x)));
}

inline void gelu_forward(float* out, const float* in, int64_t count, cudaStream_t stream) {
  gelu_forward_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(out, in, count);
  CHECK_LAUNCH();
}

// In place: d holds the gradient of the output and then that of the input.
__global__ void gelu_backward_kernel(float* d, const float* in, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float x = in[i];
  const float t = tanhf(kGeluScale * (x + kGeluCubic * x * x * x));
  const float slope =
      0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * kGeluScale * (1.0f + 3.0f * kGeluCubic * x * x);
  d[i] *= slope;
}

inline void gelu_backward(float* d, const float* in, int64_t count, cudaStream_t stream) {
  gelu_backward_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(d, in, count);
  CHECK_LAUNCH();
}

// ---- attention: moving heads, and the causal softmax --------------------------------------------

// Where channel c of row n = b*T + t lies in a (B, NH, T, HS) tensor.
__device__ inline int64_t head_index(int64_t n, int c, int64_t T, int NH, int HS) {
  const int64_t b = n / T, t = n % T;
  return ((b * NH + c / HS) * T + t) * HS + c % HS;
}

// q, k, v (B,NH,T,HS) from qkv (N,3C). One block for each row.
__global__ void split_qkv_kernel(float* q, float* k, float* v, const float* qkv, int64_t T, int NH, int HS) {
  const int64_t n = blockIdx.x;
  const int C = NH * HS;
  const float* row = qkv + n * 3 * C;
  for (int c = threadIdx.x; c < C; c += blockDim.x) {
    const int64_t to = head_index(n, c, T, NH, HS);
    q[to] = row[c];
    k[to] = row[C + c];
    v[to] = row[2 * C + c];
  }
}

// The way back, for gradients: qkv (N,3C) from q, k, v (B,NH,T,HS).
__global__ void merge_qkv_kernel(float* qkv, const float* q, const float* k, const float* v, int64_t T,
                                 int NH, int HS) {
  const int64_t n = blockIdx.x;
  const int C = NH * HS;
  float* row = qkv + n * 3 * C;
  for (int c = threadIdx.x; c < C; c += blockDim.x) {
    const int64_t from = head_index(n, c, T, NH, HS);
    row[c] = q[from];
    row[C + c] = k[from];
    row[2 * C + c] = v[from];
  }
}

// out (N,C) from heads (B,NH,T,HS), and back.
__global__ void merge_heads_kernel(float* out, const float* heads, int64_t T, int NH, int HS) {
  const int64_t n = blockIdx.x;
  const int C = NH * HS;
  for (int c = threadIdx.x; c < C; c += blockDim.x) out[n * C + c] = heads[head_index(n, c, T, NH, HS)];
}
__global__ void split_heads_kernel(float* heads, const float* in, int64_t T, int NH, int HS) {
  const int64_t n = blockIdx.x;
  const int C = NH * HS;
  for (int c = threadIdx.x; c < C; c += blockDim.x) heads[head_index(n, c, T, NH, HS)] = in[n * C + c];
}

// In place on scores (rows, T), rows = B*NH*T: row r is the query at t = r % T; it becomes softmax(scale *
// scores) over keys 0..t and exact zeros above, because the matrix products that follow read whole rows. One
// warp for each row.
__global__ void causal_softmax_forward_kernel(float* scores, float scale, int64_t rows, int64_t T) {
  const int lane = threadIdx.x % 32;
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32;
  if (r >= rows) return;
  const int64_t t = r % T;
  float* row = scores + r * T;
  float highest = -FLT_MAX;
  for (int64_t i = lane; i <= t; i += 32) highest = fmaxf(highest, row[i]);
  highest = warp_max(highest);
  float sum = 0.0f;
  for (int64_t i = lane; i <= t; i += 32) sum += expf(scale * (row[i] - highest));
  const float inverse = 1.0f / warp_sum(sum);
  for (int64_t i = lane; i < T; i += 32) row[i] = i <= t ? expf(scale * (row[i] - highest)) * inverse : 0.0f;
}

inline void causal_softmax_forward(float* scores, float scale, int64_t rows, int64_t T, cudaStream_t stream) {
  causal_softmax_forward_kernel<<<blocks_for(rows, kRowsPerBlock), kThreads, 0, stream>>>(scores, scale, rows,
                                                                                          T);
  CHECK_LAUNCH();
}

// In place: d (rows, T) holds the gradient of the probabilities p and becomes that of the unscaled scores,
// scale * p * (d - sum(p * d)), with exact zeros above the diagonal. One warp for each row.
__global__ void causal_softmax_backward_kernel(float* d, const float* p, float scale, int64_t rows,
                                               int64_t T) {
  const int lane = threadIdx.x % 32;
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32;
  if (r >= rows) return;
  const int64_t t = r % T;
  float* d_row = d + r * T;
  const float* p_row = p + r * T;
  float sum = 0.0f;
  for (int64_t i = lane; i <= t; i += 32) sum += p_row[i] * d_row[i];
  sum = warp_sum(sum);
  for (int64_t i = lane; i < T; i += 32) d_row[i] = i <= t ? scale * p_row[i] * (d_row[i] - sum) : 0.0f;
}

inline void causal_softmax_backward(float* d, const float* p, float scale, int64_t rows, int64_t T,
                                    cudaStream_t stream) {
  causal_softmax_backward_kernel<<<blocks_for(rows, kRowsPerBlock), kThreads, 0, stream>>>(d, p, scale, rows,
                                                                                           T);
  CHECK_LAUNCH();
}

// ---- loss ---------------------------------------------------------------------------------------

// losses (N) = cross entropy of each row; logits (N,Vp) become their own gradient, (probability - [is
// target]) / N. Columns V..Vp-1 are padding: outside the softmax, gradient 0. One block for each row.
__global__ void cross_entropy_kernel(float* logits, float* losses, const int* targets, int64_t N, int64_t V,
                                     int64_t Vp) {
  const int64_t n = blockIdx.x;
  float* row = logits + n * Vp;
  const int target = targets[n];
  const float target_logit =
      row[target];  // before anyone overwrites it: the barriers of block_max lie in between
  float highest = -FLT_MAX;
  for (int64_t v = threadIdx.x; v < V; v += blockDim.x) highest = fmaxf(highest, row[v]);
  highest = block_max(highest);
  float sum = 0.0f;
  for (int64_t v = threadIdx.x; v < V; v += blockDim.x) sum += expf(row[v] - highest);
  sum = block_sum(sum);
  if (threadIdx.x == 0) losses[n] = logf(sum) + highest - target_logit;
  const float inverse = 1.0f / sum, row_weight = 1.0f / N;
  for (int64_t v = threadIdx.x; v < Vp; v += blockDim.x) {
    row[v] = v < V ? (expf(row[v] - highest) * inverse - (v == target ? 1.0f : 0.0f)) * row_weight : 0.0f;
  }
}

// What the host reads back at the end of a step.
struct StepScalars {
  double loss;
  double grad_norm;
  float clip_scale;
};

// The mean of losses (N), in one block: double, because a float sum of 65,536 losses would lose three digits.
__global__ void mean_loss_kernel(StepScalars* scalars, const float* losses, int64_t N) {
  double sum = 0.0;
  for (int64_t n = threadIdx.x; n < N; n += blockDim.x) sum += losses[n];
  sum = block_sum(sum);
  if (threadIdx.x == 0) scalars->loss = sum / N;
}

inline void cross_entropy(float* logits, float* losses, StepScalars* scalars, const int* targets, int64_t N,
                          int64_t V, int64_t Vp, cudaStream_t stream) {
  cross_entropy_kernel<<<N, 1024, 0, stream>>>(logits, losses, targets, N, V, Vp);
  CHECK_LAUNCH();
  mean_loss_kernel<<<1, 1024, 0, stream>>>(scalars, losses, N);
  CHECK_LAUNCH();
}

// ---- optimizer ----------------------------------------------------------------------------------

inline constexpr int kNormBlocks = 1024;

// partial (kNormBlocks): sums of squares over a grid-stride share each.
__global__ void squares_kernel(double* partial, const float* gradients, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  double sum = 0.0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    sum += static_cast<double>(gradients[i]) * gradients[i];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// The norm of all gradients, and the factor that brings it down to `clip` (clip <= 0: never). One block of
// kNormBlocks threads.
__global__ void norm_kernel(StepScalars* scalars, const double* partial, float clip) {
  const double norm = sqrt(block_sum(partial[threadIdx.x]));
  if (threadIdx.x != 0) return;
  scalars->grad_norm = norm;
  scalars->clip_scale = clip > 0.0f && norm > clip ? static_cast<float>(clip / norm) : 1.0f;
}

inline void grad_norm(StepScalars* scalars, double* partial, const float* gradients, int64_t count,
                      float clip, cudaStream_t stream) {
  squares_kernel<<<kNormBlocks, kThreads, 0, stream>>>(partial, gradients, count);
  CHECK_LAUNCH();
  norm_kernel<<<1, kNormBlocks, 0, stream>>>(scalars, partial, clip);
  CHECK_LAUNCH();
}

struct AdamW {
  float learning_rate = 3e-4f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0.0f;
  float correction1 = 1.0f;  // 1 - beta1^t
  float correction2 = 1.0f;  // 1 - beta2^t
};

// Loshchilov & Hutter 2019. One thread for each parameter; the clipping factor is still on the device.
__global__ void adamw_kernel(float* parameters, const float* gradients, float* first, float* second,
                             const StepScalars* scalars, AdamW adam, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float g = gradients[i] * scalars->clip_scale;
  const float m = adam.beta1 * first[i] + (1.0f - adam.beta1) * g;
  const float v = adam.beta2 * second[i] + (1.0f - adam.beta2) * g * g;
  first[i] = m;
  second[i] = v;
  const float step = (m / adam.correction1) / (sqrtf(v / adam.correction2) + adam.eps);
  parameters[i] -= adam.learning_rate * (step + adam.weight_decay * parameters[i]);
}

inline void adamw(float* parameters, const float* gradients, float* first, float* second,
                  const StepScalars* scalars, const AdamW& adam, int64_t count, cudaStream_t stream) {
  adamw_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(parameters, gradients, first, second,
                                                                     scalars, adam, count);
  CHECK_LAUNCH();
}

}  // namespace baseline
