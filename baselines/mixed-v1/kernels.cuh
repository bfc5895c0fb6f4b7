// One plain kernel per op, and under each the function that launches it. Nothing is fused; what each kernel
// leaves on the table is for the reader to find.
//
// Three rules hold throughout. What lies in memory between two ops is bf16, what is added up is fp32, and the
// gradients of parameters stay fp32. Sums over the N rows of a batch run in two stages in a fixed order:
// first over chunks of rows, then over the chunks; there is no atomicAdd, so two runs give the same bits. And
// an index that counts elements is int64_t.
//
// A thread moves 8 bf16 (16 bytes) at a time where that is simple: C, HS and Vp are multiples of 8 (main.cu
// checks it), rows of attention scores are padded to Tp = T rounded up to a multiple of 8.
#pragma once
#include <cuda_bf16.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "check.cuh"

namespace baseline {

using bf16 = __nv_bfloat16;

inline constexpr int kThreads = 256;     // of a block, where nothing else is said
inline constexpr int kRowsPerBlock = 8;  // kernels with one warp for each row: kThreads / 32
inline constexpr float kLayernormEps = 1e-5f;

inline int64_t blocks_for(int64_t items, int64_t per_block) { return (items + per_block - 1) / per_block; }

__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// ---- 8 bf16 in one access -----------------------------------------------------------------------

struct Eight {
  float v[8];
};

// A bf16 is the upper half of a float.
__device__ inline Eight unpack(uint4 raw) {
  const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
  Eight e;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    e.v[2 * i] = __uint_as_float(words[i] << 16);
    e.v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
  return e;
}

__device__ inline unsigned pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

__device__ inline Eight load8(const bf16* from) { return unpack(*reinterpret_cast<const uint4*>(from)); }

__device__ inline void store8(bf16* to, const Eight& e) {
  *reinterpret_cast<uint4*>(to) =
      make_uint4(pack(e.v[0], e.v[1]), pack(e.v[2], e.v[3]), pack(e.v[4], e.v[5]), pack(e.v[6], e.v[7]));
}

__device__ inline float2 load2(const bf16* from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(from));
}

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

// The largest value a thread has seen and the sum of exp(scale * (value - highest)), brought up to date with
// each 8 more values.
struct RunningSoftmax {
  float highest = -FLT_MAX;
  float sum = 0.0f;
  __device__ void add(const Eight& e, float scale) {
    float next = highest;
#pragma unroll
    for (int k = 0; k < 8; ++k) next = fmaxf(next, e.v[k]);
    sum *= __expf(scale * (highest - next));
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += __expf(scale * (e.v[k] - next));
    highest = next;
  }
  // The sum as it is around another maximum, for adding the sums of several threads.
  __device__ float sum_around(float other, float scale) const {
    return sum * __expf(scale * (highest - other));
  }
};

// ---- master weights -----------------------------------------------------------------------------

// The bf16 copy of the fp32 master weights, once before training; later adamw keeps it up to date.
__global__ void round_kernel(bf16* out, const float* in, int64_t count) {
  const int64_t i = thread_index();
  if (i < count) out[i] = __float2bfloat16_rn(in[i]);
}

inline void round_to_bf16(bf16* out, const float* in, int64_t count, cudaStream_t stream) {
  round_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(out, in, count);
  CHECK_LAUNCH();
}

// ---- embedding ----------------------------------------------------------------------------------

// out (N,C) = wte[token] + wpe[position]. One thread for 8 channels of a row.
__global__ void embedding_forward_kernel(bf16* out, const int* tokens, const bf16* wte, const bf16* wpe,
                                         int64_t N, int64_t T, int64_t C) {
  const int64_t i = thread_index() * 8;
  if (i >= N * C) return;
  const int64_t n = i / C, c = i % C;
  const Eight token = load8(wte + tokens[n] * C + c);
  const Eight position = load8(wpe + n % T * C + c);
  Eight sum;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum.v[k] = token.v[k] + position.v[k];
  store8(out + i, sum);
}

inline void embedding_forward(bf16* out, const int* tokens, const bf16* wte, const bf16* wpe, int64_t N,
                              int64_t T, int64_t C, cudaStream_t stream) {
  embedding_forward_kernel<<<blocks_for(N * C / 8, kThreads), kThreads, 0, stream>>>(out, tokens, wte, wpe, N,
                                                                                     T, C);
  CHECK_LAUNCH();
}

// Adds what the 8 warps of a (32, 8) block hold for the same lane; valid in threads with threadIdx.y == 0.
__device__ inline float add_warps(float value) {
  __shared__ float partial[8][32];
  __syncthreads();
  partial[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < 8; ++warp) sum += partial[warp][threadIdx.x];
  return sum;
}

// dwte[token] += the rows of dout (N,C) at which the token stands. One (32, 8) block for 64 channels x one
// distinct token: 8 warps share the token's positions, each adding its own in ascending order, then the 8
// sums are added in order. The positions come sorted by token.
__global__ void embedding_backward_wte_kernel(float* dwte, const bf16* dout, const int* group_tokens,
                                              const int* group_begins, const int* positions, int64_t C) {
  const int64_t group = blockIdx.x;
  const int64_t c = (static_cast<int64_t>(blockIdx.y) * 32 + threadIdx.x) * 2;
  float2 sum = {0.0f, 0.0f};
  if (c < C) {
    for (int i = group_begins[group] + threadIdx.y; i < group_begins[group + 1]; i += 8) {
      const float2 d = load2(dout + positions[i] * C + c);
      sum.x += d.x;
      sum.y += d.y;
    }
  }
  sum.x = add_warps(sum.x);
  sum.y = add_warps(sum.y);
  if (threadIdx.y != 0 || c >= C) return;
  float* to = dwte + group_tokens[group] * C + c;
  to[0] += sum.x;
  to[1] += sum.y;
}

// dwpe[t] = sum over the batch of dout at position t. One thread for 8 channels of one t; rows t >= T of dwpe
// are not touched.
__global__ void embedding_backward_wpe_kernel(float* dwpe, const bf16* dout, int64_t B, int64_t T,
                                              int64_t C) {
  const int64_t i = thread_index() * 8;
  if (i >= T * C) return;
  Eight sum{};
  for (int64_t b = 0; b < B; ++b) {
    const Eight d = load8(dout + b * T * C + i);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum.v[k] += d.v[k];
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) dwpe[i + k] = sum.v[k];
}

inline void embedding_backward(float* dwte, float* dwpe, const bf16* dout, const int* group_tokens,
                               const int* group_begins, const int* positions, int64_t groups, int64_t B,
                               int64_t T, int64_t C, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(groups), static_cast<unsigned>(blocks_for(C, 64)));
  embedding_backward_wte_kernel<<<grid, dim3(32, 8), 0, stream>>>(dwte, dout, group_tokens, group_begins,
                                                                  positions, C);
  CHECK_LAUNCH();
  embedding_backward_wpe_kernel<<<blocks_for(T * C / 8, kThreads), kThreads, 0, stream>>>(dwpe, dout, B, T,
                                                                                          C);
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

// partial (chunks, columns): sums of in (N, columns) over each chunk of rows. One (32, 8) block for 64
// columns x one chunk.
__global__ void column_sum_kernel(float* partial, const bf16* in, int64_t N, int64_t columns,
                                  int64_t chunk_rows) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x) * 2;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = begin + chunk_rows < N ? begin + chunk_rows : N;
  float2 sum = {0.0f, 0.0f};
  if (column < columns) {
#pragma unroll 8
    for (int64_t n = begin + threadIdx.y; n < end; n += 8) {
      const float2 x = load2(in + n * columns + column);
      sum.x += x.x;
      sum.y += x.y;
    }
  }
  sum.x = add_warps(sum.x);
  sum.y = add_warps(sum.y);
  if (threadIdx.y == 0 && column < columns) {
    partial[blockIdx.y * columns + column] = sum.x;
    partial[blockIdx.y * columns + column + 1] = sum.y;
  }
}

// out (columns) = sum of partial (chunks, columns) over the chunks, for one out or for two whose partial sums
// lie one behind the other. One (32, 8) block for 32 columns of one out.
__global__ void add_chunks_kernel(float* first, float* second, const float* partial, int64_t chunks,
                                  int64_t columns) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  float* out = blockIdx.y == 0 ? first : second;
  partial += blockIdx.y * chunks * columns;
  float sum = 0.0f;
  if (column < columns) {
    for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += 8) sum += partial[chunk * columns + column];
  }
  sum = add_warps(sum);
  if (threadIdx.y == 0 && column < columns) out[column] = sum;
}

inline void add_chunks(float* first, float* second, const float* partial, int64_t chunks, int64_t columns,
                       cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(blocks_for(columns, 32)), second ? 2 : 1);
  add_chunks_kernel<<<grid, dim3(32, 8), 0, stream>>>(first, second, partial, chunks, columns);
  CHECK_LAUNCH();
}

// The gradient of a bias: out (columns) = sum of in (N, columns) over the rows.
inline void column_sum(float* out, const bf16* in, float* partial, int64_t N, int64_t columns,
                       cudaStream_t stream) {
  const RowChunks chunks(N);
  const dim3 grid(static_cast<unsigned>(blocks_for(columns, 64)), static_cast<unsigned>(chunks.count));
  column_sum_kernel<<<grid, dim3(32, 8), 0, stream>>>(partial, in, N, columns, chunks.rows);
  CHECK_LAUNCH();
  add_chunks(out, nullptr, partial, chunks.count, columns, stream);
}

// ---- layernorm ----------------------------------------------------------------------------------

// out = (in - mean) / sqrt(variance + eps) * weight + bias over each row of C; keeps mean and 1/sqrt(...) for
// the backward pass. One warp for each row. The variance is taken around the mean: E[x^2] - E[x]^2 would
// cancel.
__global__ void layernorm_forward_kernel(bf16* out, float* mean_out, float* rstd_out, const bf16* in,
                                         const bf16* weight, const bf16* bias, int64_t N, int64_t C) {
  const int lane = threadIdx.x % 32;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32;
  if (n >= N) return;
  const bf16* row = in + n * C;
  float sum = 0.0f;
  for (int64_t c = lane * 8; c < C; c += 256) {
    const Eight x = load8(row + c);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += x.v[k];
  }
  const float mean = warp_sum(sum) / C;
  float squares = 0.0f;
  for (int64_t c = lane * 8; c < C; c += 256) {
    const Eight x = load8(row + c);
#pragma unroll
    for (int k = 0; k < 8; ++k) squares += (x.v[k] - mean) * (x.v[k] - mean);
  }
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / C + kLayernormEps);
  for (int64_t c = lane * 8; c < C; c += 256) {
    const Eight x = load8(row + c), w = load8(weight + c), b = load8(bias + c);
    Eight y;
#pragma unroll
    for (int k = 0; k < 8; ++k) y.v[k] = (x.v[k] - mean) * rstd * w.v[k] + b.v[k];
    store8(out + n * C + c, y);
  }
  if (lane == 0) {
    mean_out[n] = mean;
    rstd_out[n] = rstd;
  }
}

inline void layernorm_forward(bf16* out, float* mean, float* rstd, const bf16* in, const bf16* weight,
                              const bf16* bias, int64_t N, int64_t C, cudaStream_t stream) {
  layernorm_forward_kernel<<<blocks_for(N, kRowsPerBlock), kThreads, 0, stream>>>(out, mean, rstd, in, weight,
                                                                                  bias, N, C);
  CHECK_LAUNCH();
}

// With norm = (in - mean) * rstd and g = weight * dout, din += rstd * (g - mean(g) - norm * mean(g * norm)).
// It ADDS: din is the gradient of the residual stream, which already holds what flowed around the layernorm.
// One warp for each row.
__global__ void layernorm_backward_input_kernel(bf16* din, const bf16* dout, const bf16* in,
                                                const bf16* weight, const float* mean, const float* rstd,
                                                int64_t N, int64_t C) {
  const int lane = threadIdx.x % 32;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32;
  if (n >= N) return;
  const float m = mean[n], s = rstd[n];
  float sum_g = 0.0f, sum_g_norm = 0.0f;
  for (int64_t c = lane * 8; c < C; c += 256) {
    const Eight x = load8(in + n * C + c), d = load8(dout + n * C + c), w = load8(weight + c);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float g = w.v[k] * d.v[k];
      sum_g += g;
      sum_g_norm += g * (x.v[k] - m) * s;
    }
  }
  const float mean_g = warp_sum(sum_g) / C;
  const float mean_g_norm = warp_sum(sum_g_norm) / C;
  for (int64_t c = lane * 8; c < C; c += 256) {
    const Eight x = load8(in + n * C + c), d = load8(dout + n * C + c), w = load8(weight + c);
    Eight sum = load8(din + n * C + c);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float g = w.v[k] * d.v[k];
      const float norm = (x.v[k] - m) * s;
      sum.v[k] += s * (g - mean_g - norm * mean_g_norm);
    }
    store8(din + n * C + c, sum);
  }
}

// Chunk sums of dout * norm (for the weight) and of dout (for the bias). One (32, 8) block for 64 channels x
// one chunk of rows.
__global__ void layernorm_backward_params_kernel(float* partial_weight, float* partial_bias, const bf16* dout,
                                                 const bf16* in, const float* mean, const float* rstd,
                                                 int64_t N, int64_t C, int64_t chunk_rows) {
  const int64_t c = (static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x) * 2;
  const int64_t begin = blockIdx.y * chunk_rows;
  const int64_t end = begin + chunk_rows < N ? begin + chunk_rows : N;
  float2 weight_sum = {0.0f, 0.0f}, bias_sum = {0.0f, 0.0f};
  if (c < C) {
#pragma unroll 8
    for (int64_t n = begin + threadIdx.y; n < end; n += 8) {
      const float2 g = load2(dout + n * C + c), x = load2(in + n * C + c);
      const float m = mean[n], s = rstd[n];
      weight_sum.x += g.x * (x.x - m) * s;
      weight_sum.y += g.y * (x.y - m) * s;
      bias_sum.x += g.x;
      bias_sum.y += g.y;
    }
  }
  weight_sum.x = add_warps(weight_sum.x);
  weight_sum.y = add_warps(weight_sum.y);
  bias_sum.x = add_warps(bias_sum.x);
  bias_sum.y = add_warps(bias_sum.y);
  if (threadIdx.y == 0 && c < C) {
    partial_weight[blockIdx.y * C + c] = weight_sum.x;
    partial_weight[blockIdx.y * C + c + 1] = weight_sum.y;
    partial_bias[blockIdx.y * C + c] = bias_sum.x;
    partial_bias[blockIdx.y * C + c + 1] = bias_sum.y;
  }
}

inline void layernorm_backward(bf16* din, float* dweight, float* dbias, float* partial, const bf16* dout,
                               const bf16* in, const bf16* weight, const float* mean, const float* rstd,
                               int64_t N, int64_t C, cudaStream_t stream) {
  const RowChunks chunks(N);
  float* partial_bias = partial + chunks.count * C;
  const dim3 grid(static_cast<unsigned>(blocks_for(C, 64)), static_cast<unsigned>(chunks.count));
  layernorm_backward_params_kernel<<<grid, dim3(32, 8), 0, stream>>>(partial, partial_bias, dout, in, mean,
                                                                     rstd, N, C, chunks.rows);
  CHECK_LAUNCH();
  add_chunks(dweight, dbias, partial, chunks.count, C, stream);
  layernorm_backward_input_kernel<<<blocks_for(N, kRowsPerBlock), kThreads, 0, stream>>>(
      din, dout, in, weight, mean, rstd, N, C);
  CHECK_LAUNCH();
}

// ---- elementwise: one thread for 8 elements, so `count` is a multiple of 8 -----------------------

__global__ void residual_forward_kernel(bf16* out, const bf16* a, const bf16* b, int64_t count) {
  const int64_t i = thread_index() * 8;
  if (i >= count) return;
  Eight sum = load8(a + i);
  const Eight other = load8(b + i);
#pragma unroll
  for (int k = 0; k < 8; ++k) sum.v[k] += other.v[k];
  store8(out + i, sum);
}

inline void residual_forward(bf16* out, const bf16* a, const bf16* b, int64_t count, cudaStream_t stream) {
  residual_forward_kernel<<<blocks_for(count / 8, kThreads), kThreads, 0, stream>>>(out, a, b, count);
  CHECK_LAUNCH();
}

// GPT-2's GELU is the tanh form, 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), which is
// x * sigmoid(2u). The sigmoid needs one exponential where tanhf is a long function.
inline constexpr float kGeluScale = 0.7978845608028654f;  // sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;

__device__ inline float gelu_sigmoid(float x) {
  const float u = kGeluScale * (x + kGeluCubic * x * x * x);
  return __frcp_rn(1.0f + __expf(-2.0f * u));
}

__global__ void gelu_forward_kernel(bf16* out, const bf16* in, int64_t count) {
  const int64_t i = thread_index() * 8;
  if (i >= count) return;
  Eight x = load8(in + i);
#pragma unroll
  for (int k = 0; k < 8; ++k) x.v[k] *= gelu_sigmoid(x.v[k]);
  store8(out + i, x);
}

inline void gelu_forward(bf16* out, const bf16* in, int64_t count, cudaStream_t stream) {
  gelu_forward_kernel<<<blocks_for(count / 8, kThreads), kThreads, 0, stream>>>(out, in, count);
  CHECK_LAUNCH();
}

// In place: d holds the gradient of the output and then that of the input. With s = sigmoid(2u) the slope is
// s + x * s (1 - s) * 2 du/dx.
__global__ void gelu_backward_kernel(bf16* d, const bf16* in, int64_t count) {
  const int64_t i = thread_index() * 8;
  if (i >= count) return;
  const Eight x = load8(in + i);
  Eight g = load8(d + i);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float s = gelu_sigmoid(x.v[k]);
    const float du = kGeluScale * (1.0f + 3.0f * kGeluCubic * x.v[k] * x.v[k]);
    g.v[k] *= s + x.v[k] * s * (1.0f - s) * 2.0f * du;
  }
  store8(d + i, g);
}

inline void gelu_backward(bf16* d, const bf16* in, int64_t count, cudaStream_t stream) {
  gelu_backward_kernel<<<blocks_for(count / 8, kThreads), kThreads, 0, stream>>>(d, in, count);
  CHECK_LAUNCH();
}

// ---- attention: moving heads, and the causal softmax --------------------------------------------

// The movers below copy 8 channels with one thread, which stay together because HS is a multiple of 8.
__device__ inline void copy8(bf16* to, const bf16* from) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
}

// Where channel c of row n = b*T + t lies in a (B, NH, T, HS) tensor.
__device__ inline int64_t head_index(int64_t n, int c, int64_t T, int NH, int HS) {
  const int64_t b = n / T, t = n % T;
  return ((b * NH + c / HS) * T + t) * HS + c % HS;
}

// q, k, v (B,NH,T,HS) from qkv (N,3C). One block for each row.
__global__ void split_qkv_kernel(bf16* q, bf16* k, bf16* v, const bf16* qkv, int64_t T, int NH, int HS) {
  const int64_t n = blockIdx.x;
  const int C = NH * HS;
  const bf16* row = qkv + n * 3 * C;
  for (int c = threadIdx.x * 8; c < C; c += blockDim.x * 8) {
    const int64_t to = head_index(n, c, T, NH, HS);
    copy8(q + to, row + c);
    copy8(k + to, row + C + c);
    copy8(v + to, row + 2 * C + c);
  }
}

// The way back, for gradients: qkv (N,3C) from q, k, v (B,NH,T,HS).
__global__ void merge_qkv_kernel(bf16* qkv, const bf16* q, const bf16* k, const bf16* v, int64_t T, int NH,
                                 int HS) {
  const int64_t n = blockIdx.x;
  const int C = NH * HS;
  bf16* row = qkv + n * 3 * C;
  for (int c = threadIdx.x * 8; c < C; c += blockDim.x * 8) {
    const int64_t from = head_index(n, c, T, NH, HS);
    copy8(row + c, q + from);
    copy8(row + C + c, k + from);
    copy8(row + 2 * C + c, v + from);
  }
}

// out (N,C) from heads (B,NH,T,HS), and back.
__global__ void merge_heads_kernel(bf16* out, const bf16* heads, int64_t T, int NH, int HS) {
  const int64_t n = blockIdx.x;
  const int C = NH * HS;
  for (int c = threadIdx.x * 8; c < C; c += blockDim.x * 8)
    copy8(out + n * C + c, heads + head_index(n, c, T, NH, HS));
}
__global__ void split_heads_kernel(bf16* heads, const bf16* in, int64_t T, int NH, int HS) {
  const int64_t n = blockIdx.x;
  const int C = NH * HS;
  for (int c = threadIdx.x * 8; c < C; c += blockDim.x * 8)
    copy8(heads + head_index(n, c, T, NH, HS), in + n * C + c);
}
inline constexpr int kMoverThreads = 96;  // 768 channels at once

// In place on scores (rows, Tp), rows = B*NH*T: row r is the query at t = r % T; it becomes softmax(scale *
// scores) over keys 0..t and exact zeros above, because the matrix products that follow read whole rows. One
// warp for each row.
__global__ void causal_softmax_forward_kernel(bf16* scores, float scale, int64_t rows, int64_t T,
                                              int64_t Tp) {
  const int lane = threadIdx.x % 32;
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32;
  if (r >= rows) return;
  const int64_t t = r % T;
  bf16* row = scores + r * Tp;
  RunningSoftmax softmax;
  for (int64_t i = lane * 8; i <= t; i += 256) {
    Eight x = load8(row + i);
#pragma unroll
    for (int k = 0; k < 8; ++k) x.v[k] = i + k <= t ? x.v[k] : -INFINITY;
    softmax.add(x, scale);
  }
  const float highest = warp_max(softmax.highest);
  const float inverse = 1.0f / warp_sum(softmax.sum_around(highest, scale));
  for (int64_t i = lane * 8; i < Tp; i += 256) {
    Eight p{};
    if (i <= t) {
      const Eight x = load8(row + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) p.v[k] = i + k <= t ? __expf(scale * (x.v[k] - highest)) * inverse : 0.0f;
    }
    store8(row + i, p);
  }
}

inline void causal_softmax_forward(bf16* scores, float scale, int64_t rows, int64_t T, int64_t Tp,
                                   cudaStream_t stream) {
  causal_softmax_forward_kernel<<<blocks_for(rows, kRowsPerBlock), kThreads, 0, stream>>>(scores, scale, rows,
                                                                                          T, Tp);
  CHECK_LAUNCH();
}

// In place: d (rows, Tp) holds the gradient of the probabilities p and becomes that of the unscaled scores,
// scale * p * (d - sum(p * d)), with exact zeros above the diagonal. One warp for each row.
__global__ void causal_softmax_backward_kernel(bf16* d, const bf16* p, float scale, int64_t rows, int64_t T,
                                               int64_t Tp) {
  const int lane = threadIdx.x % 32;
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / 32;
  if (r >= rows) return;
  const int64_t t = r % T;
  bf16* d_row = d + r * Tp;
  const bf16* p_row = p + r * Tp;
  float sum = 0.0f;
  for (int64_t i = lane * 8; i <= t; i += 256) {
    const Eight pi = load8(p_row + i), di = load8(d_row + i);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += i + k <= t ? pi.v[k] * di.v[k] : 0.0f;
  }
  sum = warp_sum(sum);
  for (int64_t i = lane * 8; i < Tp; i += 256) {
    Eight ds{};
    if (i <= t) {
      const Eight pi = load8(p_row + i), di = load8(d_row + i);
#pragma unroll
      for (int k = 0; k < 8; ++k) ds.v[k] = i + k <= t ? scale * pi.v[k] * (di.v[k] - sum) : 0.0f;
    }
    store8(d_row + i, ds);
  }
}

inline void causal_softmax_backward(bf16* d, const bf16* p, float scale, int64_t rows, int64_t T, int64_t Tp,
                                    cudaStream_t stream) {
  causal_softmax_backward_kernel<<<blocks_for(rows, kRowsPerBlock), kThreads, 0, stream>>>(d, p, scale, rows,
                                                                                           T, Tp);
  CHECK_LAUNCH();
}

// ---- loss ---------------------------------------------------------------------------------------

// losses (N) = cross entropy of each row; logits (N,Vp) become their own gradient, (probability - [is
// target]) / N. Columns V..Vp-1 are padding: outside the softmax, gradient 0. One block for each row.
__global__ void cross_entropy_kernel(bf16* logits, float* losses, const int* targets, int64_t N, int64_t V,
                                     int64_t Vp) {
  const int64_t n = blockIdx.x;
  bf16* row = logits + n * Vp;
  const int target = targets[n];
  // Before anyone overwrites it: the barriers of block_max lie in between.
  const float target_logit = __bfloat162float(row[target]);
  RunningSoftmax softmax;
  for (int64_t v = threadIdx.x * 8; v < V; v += blockDim.x * 8) {
    Eight x = load8(row + v);
#pragma unroll
    for (int k = 0; k < 8; ++k) x.v[k] = v + k < V ? x.v[k] : -INFINITY;
    softmax.add(x, 1.0f);
  }
  const float highest = block_max(softmax.highest);
  const float sum = block_sum(softmax.sum_around(highest, 1.0f));
  if (threadIdx.x == 0) losses[n] = logf(sum) + highest - target_logit;
  const float inverse = 1.0f / sum, row_weight = 1.0f / N;
  for (int64_t v = threadIdx.x * 8; v < Vp; v += blockDim.x * 8) {
    const Eight x = load8(row + v);
    Eight d;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float probability = __expf(x.v[k] - highest) * inverse;
      d.v[k] = v + k < V ? (probability - (v + k == target ? 1.0f : 0.0f)) * row_weight : 0.0f;
    }
    store8(row + v, d);
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

inline void cross_entropy(bf16* logits, float* losses, StepScalars* scalars, const int* targets, int64_t N,
                          int64_t V, int64_t Vp, cudaStream_t stream) {
  cross_entropy_kernel<<<N, 1024, 0, stream>>>(logits, losses, targets, N, V, Vp);
  CHECK_LAUNCH();
  mean_loss_kernel<<<1, 1024, 0, stream>>>(scalars, losses, N);
  CHECK_LAUNCH();
}

// ---- optimizer ----------------------------------------------------------------------------------

inline constexpr int kNormBlocks = 1024;

// partial (kNormBlocks): sums of squares over a grid-stride share each; `count` is a multiple of 4.
__global__ void squares_kernel(double* partial, const float* gradients, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  double sum = 0.0;
  for (int64_t i = thread_index(); i < count / 4; i += stride) {
    const float4 g = reinterpret_cast<const float4*>(gradients)[i];
    sum += static_cast<double>(g.x) * g.x + static_cast<double>(g.y) * g.y + static_cast<double>(g.z) * g.z +
           static_cast<double>(g.w) * g.w;
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

__device__ inline void adamw_one(float& parameter, float gradient, float& first, float& second,
                                 float clip_scale, const AdamW& adam) {
  const float g = gradient * clip_scale;
  first = adam.beta1 * first + (1.0f - adam.beta1) * g;
  second = adam.beta2 * second + (1.0f - adam.beta2) * g * g;
  const float step = (first / adam.correction1) / (sqrtf(second / adam.correction2) + adam.eps);
  parameter -= adam.learning_rate * (step + adam.weight_decay * parameter);
}

// Loshchilov & Hutter 2019, on the fp32 master weights; `weights` is their bf16 copy for the next step. One
// thread for 4 parameters; the clipping factor is still on the device.
__global__ void adamw_kernel(float* masters, bf16* weights, const float* gradients, float* first,
                             float* second, const StepScalars* scalars, AdamW adam, int64_t count) {
  const int64_t i = thread_index();
  if (i >= count / 4) return;
  const float clip_scale = scalars->clip_scale;
  float4 p = reinterpret_cast<float4*>(masters)[i];
  const float4 g = reinterpret_cast<const float4*>(gradients)[i];
  float4 m = reinterpret_cast<float4*>(first)[i];
  float4 v = reinterpret_cast<float4*>(second)[i];
  adamw_one(p.x, g.x, m.x, v.x, clip_scale, adam);
  adamw_one(p.y, g.y, m.y, v.y, clip_scale, adam);
  adamw_one(p.z, g.z, m.z, v.z, clip_scale, adam);
  adamw_one(p.w, g.w, m.w, v.w, clip_scale, adam);
  reinterpret_cast<float4*>(masters)[i] = p;
  reinterpret_cast<float4*>(first)[i] = m;
  reinterpret_cast<float4*>(second)[i] = v;
  reinterpret_cast<uint2*>(weights)[i] = make_uint2(pack(p.x, p.y), pack(p.z, p.w));
}

inline void adamw(float* masters, bf16* weights, const float* gradients, float* first, float* second,
                  const StepScalars* scalars, const AdamW& adam, int64_t count, cudaStream_t stream) {
  adamw_kernel<<<blocks_for(count / 4, kThreads), kThreads, 0, stream>>>(masters, weights, gradients, first,
                                                                         second, scalars, adam, count);
  CHECK_LAUNCH();
}

}  // namespace baseline
