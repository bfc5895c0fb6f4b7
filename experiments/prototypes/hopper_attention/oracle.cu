#include "experiments/prototypes/hopper_attention/oracle.h"

#include <cmath>
#include <vector>

#include "gpt2/cuda/check.h"
#include "gpt2/ops/storage.cuh"

namespace oracle {
namespace {

using gpt2::ops::block_sum;
using gpt2::ops::to_float;

constexpr int kThreads = 128;

struct Heads {
  const bf16 *qkv, *dout;
  int64_t T, C, NH, HS;
  __device__ int64_t row(int64_t head, int64_t t, int64_t of) const {  // of q, k or v
    return ((head / NH) * T + t) * 3 * C + of * C + head % NH * HS;
  }
  __device__ int64_t out_row(int64_t head, int64_t t) const { return ((head / NH) * T + t) * C + head % NH * HS; }
};

__device__ double sum_over_block(double v) {
  __shared__ double all[kThreads];
  __syncthreads();
  all[threadIdx.x] = v;
  for (int n = kThreads / 2; n > 0; n /= 2) {
    __syncthreads();
    if (threadIdx.x < n) all[threadIdx.x] += all[threadIdx.x + n];
  }
  __syncthreads();
  return all[0];
}
__device__ double max_over_block(double v) {
  __shared__ double all[kThreads];
  __syncthreads();
  all[threadIdx.x] = v;
  for (int n = kThreads / 2; n > 0; n /= 2) {
    __syncthreads();
    if (threadIdx.x < n) all[threadIdx.x] = fmax(all[threadIdx.x], all[threadIdx.x + n]);
  }
  __syncthreads();
  return all[0];
}

// One block for a query: its row of p and ds, its out, lse and dq.
__global__ void rows_kernel(Heads h, float* p, float* ds, float* out, bf16* out_rounded, float* lse, float* dqkv) {
  const int64_t head = blockIdx.x / h.T, t = blockIdx.x % h.T;
  float* const P = p + blockIdx.x * h.T;
  float* const DS = ds + blockIdx.x * h.T;
  const double scale = 1 / sqrt(static_cast<double>(h.HS));
  double top = -INFINITY;
  for (int64_t k = threadIdx.x; k <= t; k += kThreads) {
    double s = 0;
    for (int d = 0; d < h.HS; ++d)
      s += static_cast<double>(to_float(h.qkv[h.row(head, t, 0) + d])) * to_float(h.qkv[h.row(head, k, 1) + d]);
    P[k] = static_cast<float>(s * scale);
    top = fmax(top, s * scale);
  }
  top = max_over_block(top);
  double total = 0;
  for (int64_t k = threadIdx.x; k <= t; k += kThreads) total += exp(P[k] - top);
  total = sum_over_block(total);
  for (int64_t k = threadIdx.x; k < h.T; k += kThreads) P[k] = k <= t ? static_cast<float>(exp(P[k] - top) / total) : 0;
  if (threadIdx.x == 0) lse[blockIdx.x] = static_cast<float>(top + log(total));
  __syncthreads();
  double D = 0;
  for (int64_t d = threadIdx.x; d < h.HS; d += kThreads) {
    double o = 0;
    for (int64_t k = 0; k <= t; ++k) o += static_cast<double>(P[k]) * to_float(h.qkv[h.row(head, k, 2) + d]);
    out[h.out_row(head, t) + d] = static_cast<float>(o);
    out_rounded[h.out_row(head, t) + d] = __float2bfloat16_rn(static_cast<float>(o));
    D += o * to_float(h.dout[h.out_row(head, t) + d]);
  }
  D = sum_over_block(D);
  for (int64_t k = threadIdx.x; k < h.T; k += kThreads) {
    double dp = 0;
    for (int d = 0; d < h.HS; ++d)
      dp += static_cast<double>(to_float(h.dout[h.out_row(head, t) + d])) * to_float(h.qkv[h.row(head, k, 2) + d]);
    DS[k] = k <= t ? static_cast<float>(P[k] * (dp - D) * scale) : 0;
  }
  __syncthreads();
  for (int64_t d = threadIdx.x; d < h.HS; d += kThreads) {
    double dq = 0;
    for (int64_t k = 0; k <= t; ++k) dq += static_cast<double>(DS[k]) * to_float(h.qkv[h.row(head, k, 1) + d]);
    dqkv[h.row(head, t, 0) + d] = static_cast<float>(dq);
  }
}

// One block for a key: its dk and dv.
__global__ void columns_kernel(Heads h, const float* p, const float* ds, float* dqkv) {
  const int64_t head = blockIdx.x / h.T, k = blockIdx.x % h.T;
  for (int64_t d = threadIdx.x; d < h.HS; d += kThreads) {
    double dk = 0, dv = 0;
    for (int64_t t = k; t < h.T; ++t) {
      dk += static_cast<double>(ds[(head * h.T + t) * h.T + k]) * to_float(h.qkv[h.row(head, t, 0) + d]);
      dv += static_cast<double>(p[(head * h.T + t) * h.T + k]) * to_float(h.dout[h.out_row(head, t) + d]);
    }
    dqkv[h.row(head, k, 1) + d] = static_cast<float>(dk);
    dqkv[h.row(head, k, 2) + d] = static_cast<float>(dv);
  }
}

__device__ uint32_t mixed(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352du;
  x ^= x >> 15, x *= 0x846ca68bu;
  return x ^ x >> 16;
}
__global__ void fill_kernel(bf16* p, int64_t n, float scale, unsigned seed, int64_t row, int64_t C, float first) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const uint32_t a = mixed(static_cast<uint32_t>(i) * 2 + seed * 0x9e3779b9u), b = mixed(a + 0x85ebca6bu);
    const float u = (static_cast<float>(a >> 8) + 0.5f) * 0x1p-24f, v = static_cast<float>(b >> 8) * 0x1p-24f;
    p[i] = __float2bfloat16_rn(scale * (i % row < C ? first : 1) * sqrtf(-2 * logf(u)) * cospif(2 * v));
  }
}

}  // namespace

Results attention(const bf16* qkv, const bf16* dout, const AttentionShape& s) {
  const int64_t rows = s.B * s.NH * s.T;
  Results r;
  r.out = gpt2::cuda::DeviceBuffer<float>(s.B * s.T * s.C);
  r.out_rounded = gpt2::cuda::DeviceBuffer<bf16>(s.B * s.T * s.C);
  r.lse = gpt2::cuda::DeviceBuffer<float>(rows);
  r.dqkv = gpt2::cuda::DeviceBuffer<float>(3 * s.B * s.T * s.C);
  gpt2::cuda::DeviceBuffer<float> p(rows * s.T), ds(rows * s.T);
  const Heads h{qkv, dout, s.T, s.C, s.NH, s.HS()};
  rows_kernel<<<static_cast<unsigned>(rows), kThreads>>>(h, p.data(), ds.data(), r.out.data(), r.out_rounded.data(), r.lse.data(),
                                                         r.dqkv.data());
  STEPSCOPE_CHECK_LAUNCH();
  columns_kernel<<<static_cast<unsigned>(rows), kThreads>>>(h, p.data(), ds.data(), r.dqkv.data());
  STEPSCOPE_CHECK_LAUNCH();
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  return r;
}

void fill(bf16* p, int64_t n, float scale, unsigned seed, int64_t row, int64_t C, float first) {
  fill_kernel<<<1024, 256>>>(p, n, scale, seed, row, C, first);
  STEPSCOPE_CHECK_LAUNCH();
}

template <class T>
Difference difference(const T* x, const float* reference, int64_t n, int64_t row, int64_t from, int64_t to) {
  std::vector<T> mine(static_cast<size_t>(n));
  std::vector<float> right(static_cast<size_t>(n));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(mine.data(), x, mine.size() * sizeof(T), cudaMemcpyDeviceToHost));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(right.data(), reference, right.size() * sizeof(float), cudaMemcpyDeviceToHost));
  double squares = 0, errors = 0, largest = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i)
    if (i % row >= from && i % row < to) squares += static_cast<double>(right[i]) * right[i], ++count;
  const double rms = std::sqrt(squares / static_cast<double>(count)) + 1e-30;
  Difference d;
  for (int64_t i = 0; i < n; ++i) {
    if (i % row < from || i % row >= to) continue;
    const double error = std::abs(static_cast<double>(mine[i]) - right[i]);
    errors += error * error;
    if (!(error <= largest)) largest = error;
    if (d.where < 0 && !(error <= 0.25 * rms + 0.05 * std::abs(right[i]))) d.where = i;
  }
  d.rms = std::sqrt(errors / static_cast<double>(count)) / rms;
  d.largest = largest / rms;
  return d;
}
template Difference difference<bf16>(const bf16*, const float*, int64_t, int64_t, int64_t, int64_t);
template Difference difference<float>(const float*, const float*, int64_t, int64_t, int64_t, int64_t);

}  // namespace oracle
