#include "experiments/learn/rungs.h"

namespace learn {
namespace {

constexpr float kEps = 1e-5f;

__device__ float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

unsigned blocks_for(int64_t n, int64_t per_block) { return static_cast<unsigned>((n + per_block - 1) / per_block); }

// 32 neighbouring threads read 32 addresses that lie C floats apart: 32 sectors of 32 bytes for 128 useful bytes.
__global__ void thread_per_row(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias, int64_t rows,
                               int64_t C) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* x = inp + row * C;
  float sum = 0;
  for (int64_t c = 0; c < C; ++c) sum += x[c];
  const float m = sum / static_cast<float>(C);
  float squares = 0;
  for (int64_t c = 0; c < C; ++c) squares += (x[c] - m) * (x[c] - m);
  const float r = 1.0f / sqrtf(squares / static_cast<float>(C) + kEps);
  for (int64_t c = 0; c < C; ++c) out[row * C + c] = (x[c] - m) * r * weight[c] + bias[c];
  mean[row] = m;
  rstd[row] = r;
}

// A block adds `f(x)` over its row; thread 0 has the sum.
template <class F>
__device__ float block_sum(const float* x, int64_t C, const F& f) {
  __shared__ float of_warp[32];
  float sum = 0;
  for (int64_t c = threadIdx.x; c < C; c += blockDim.x) sum += f(x[c]);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f;
  return warp_sum(sum);
}
__global__ void mean_of_rows(float* mean, const float* inp, int64_t C) {
  const float sum = block_sum(inp + blockIdx.x * C, C, [](float x) { return x; });
  if (threadIdx.x == 0) mean[blockIdx.x] = sum / static_cast<float>(C);
}
__global__ void rstd_of_rows(float* rstd, const float* inp, const float* mean, int64_t C) {
  const float m = mean[blockIdx.x];
  const float sum = block_sum(inp + blockIdx.x * C, C, [m](float x) { return (x - m) * (x - m); });
  if (threadIdx.x == 0) rstd[blockIdx.x] = 1.0f / sqrtf(sum / static_cast<float>(C) + kEps);
}
__global__ void normalize(float* out, const float* mean, const float* rstd, const float* inp, const float* weight, const float* bias,
                          int64_t n, int64_t C) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (inp[i] - mean[i / C]) * rstd[i / C] * weight[i % C] + bias[i % C];
}

constexpr int kWarps = 8;

// A warp per row: neighbouring threads read neighbouring floats. The second and third reads of the row meet L1 or L2.
__global__ void warp_two_passes(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias,
                                int64_t rows, int64_t C) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* x = inp + row * C;
  float sum = 0;
  for (int64_t c = lane; c < C; c += 32) sum += x[c];
  const float m = warp_sum(sum) / static_cast<float>(C);
  float squares = 0;
  for (int64_t c = lane; c < C; c += 32) squares += (x[c] - m) * (x[c] - m);
  const float r = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(C) + kEps);
  for (int64_t c = lane; c < C; c += 32) out[row * C + c] = (x[c] - m) * r * weight[c] + bias[c];
  if (lane == 0) mean[row] = m, rstd[row] = r;
}

// One read for both sums, by E[x^2] - E[x]^2. Where the mean is large beside the deviation both terms are large and nearly equal, and
// their difference is what rounding left of them: the gate refuses it.
__global__ void moments(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias, int64_t rows,
                        int64_t C) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* x = inp + row * C;
  float sum = 0, squares = 0;
  for (int64_t c = lane; c < C; c += 32) {
    sum += x[c];
    squares += x[c] * x[c];
  }
  const float m = warp_sum(sum) / static_cast<float>(C);
  const float r = 1.0f / sqrtf(fmaxf(warp_sum(squares) / static_cast<float>(C) - m * m, 0.0f) + kEps);
  for (int64_t c = lane; c < C; c += 32) out[row * C + c] = (x[c] - m) * r * weight[c] + bias[c];
  if (lane == 0) mean[row] = m, rstd[row] = r;
}

// The gradient of a row, by a warp: dnorm = dout * weight; dinp = rstd * (dnorm - mean(dnorm) - norm * mean(dnorm * norm)).
__device__ void row_backward(float* dinp, const float* dout, const float* x, float m, float r, const float* weight, int64_t C) {
  const int lane = threadIdx.x % 32;
  float sum = 0, with_norm = 0;
  for (int64_t c = lane; c < C; c += 32) {
    const float dnorm = dout[c] * weight[c];
    sum += dnorm;
    with_norm += dnorm * (x[c] - m) * r;
  }
  sum = warp_sum(sum) / static_cast<float>(C);
  with_norm = warp_sum(with_norm) / static_cast<float>(C);
  for (int64_t c = lane; c < C; c += 32) dinp[c] = r * (dout[c] * weight[c] - sum - (x[c] - m) * r * with_norm);
}

// rows * C additions to 2C addresses, one after the other in L2, in an order that nobody knows.
__global__ void backward_atomics(float* dinp, float* dweight, float* dbias, const float* dout, const float* inp, const float* mean,
                                 const float* rstd, const float* weight, int64_t rows, int64_t C) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= rows) return;
  const float *d = dout + row * C, *x = inp + row * C;
  const float m = mean[row], r = rstd[row];
  row_backward(dinp + row * C, d, x, m, r, weight, C);
  for (int64_t c = threadIdx.x % 32; c < C; c += 32) {
    atomicAdd(dweight + c, d[c] * (x[c] - m) * r);
    atomicAdd(dbias + c, d[c]);
  }
}

// Every block first adds the rows that it meets in shared memory (2C floats), so only blocks meet at the addresses of the sums.
__global__ void backward_block_atomics(float* dinp, float* dweight, float* dbias, const float* dout, const float* inp, const float* mean,
                                       const float* rstd, const float* weight, int64_t rows, int64_t C) {
  extern __shared__ float sums[];
  for (int64_t c = threadIdx.x; c < 2 * C; c += blockDim.x) sums[c] = 0;
  __syncthreads();
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; row < rows;
       row += static_cast<int64_t>(gridDim.x) * kWarps) {
    const float *d = dout + row * C, *x = inp + row * C;
    const float m = mean[row], r = rstd[row];
    row_backward(dinp + row * C, d, x, m, r, weight, C);
    for (int64_t c = threadIdx.x % 32; c < C; c += 32) {
      atomicAdd(sums + c, d[c] * (x[c] - m) * r);
      atomicAdd(sums + C + c, d[c]);
    }
  }
  __syncthreads();
  for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
    atomicAdd(dweight + c, sums[c]);
    atomicAdd(dbias + c, sums[C + c]);
  }
}

}  // namespace

void layernorm_thread_per_row(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias, int64_t rows,
                              int64_t C, cudaStream_t stream) {
  thread_per_row<<<blocks_for(rows, 128), 128, 0, stream>>>(out, mean, rstd, inp, weight, bias, rows, C);
}
void layernorm_three_kernels(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias, int64_t rows,
                             int64_t C, cudaStream_t stream) {
  mean_of_rows<<<static_cast<unsigned>(rows), 128, 0, stream>>>(mean, inp, C);
  rstd_of_rows<<<static_cast<unsigned>(rows), 128, 0, stream>>>(rstd, inp, mean, C);
  normalize<<<blocks_for(rows * C, 256), 256, 0, stream>>>(out, mean, rstd, inp, weight, bias, rows * C, C);
}
void layernorm_warp_two_passes(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias, int64_t rows,
                               int64_t C, cudaStream_t stream) {
  warp_two_passes<<<blocks_for(rows, kWarps), 32 * kWarps, 0, stream>>>(out, mean, rstd, inp, weight, bias, rows, C);
}
void layernorm_moments(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias, int64_t rows,
                       int64_t C, cudaStream_t stream) {
  moments<<<blocks_for(rows, kWarps), 32 * kWarps, 0, stream>>>(out, mean, rstd, inp, weight, bias, rows, C);
}

void layernorm_backward_atomics(float* dinp, float* dweight, float* dbias, const float* dout, const float* inp, const float* mean,
                                const float* rstd, const float* weight, int64_t rows, int64_t C, cudaStream_t stream) {
  cudaMemsetAsync(dweight, 0, static_cast<size_t>(C) * sizeof(float), stream);
  cudaMemsetAsync(dbias, 0, static_cast<size_t>(C) * sizeof(float), stream);
  backward_atomics<<<blocks_for(rows, kWarps), 32 * kWarps, 0, stream>>>(dinp, dweight, dbias, dout, inp, mean, rstd, weight, rows, C);
}
void layernorm_backward_block_atomics(float* dinp, float* dweight, float* dbias, const float* dout, const float* inp, const float* mean,
                                      const float* rstd, const float* weight, int64_t rows, int64_t C, cudaStream_t stream) {
  constexpr unsigned kBlocks = 264;  // two for each SM of an H200
  cudaMemsetAsync(dweight, 0, static_cast<size_t>(C) * sizeof(float), stream);
  cudaMemsetAsync(dbias, 0, static_cast<size_t>(C) * sizeof(float), stream);
  backward_block_atomics<<<kBlocks, 32 * kWarps, static_cast<size_t>(2 * C) * sizeof(float), stream>>>(dinp, dweight, dbias, dout, inp,
                                                                                                       mean, rstd, weight, rows, C);
}

}  // namespace learn
