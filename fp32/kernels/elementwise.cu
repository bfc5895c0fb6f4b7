// GELU(x) = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). Written with s = 1 / (1 + exp(-2u)) = (1 + tanh(u)) / 2, which keeps
// its relative accuracy for negative x, where 1 + tanh(u) would cancel:
//   gelu = x s;   gelu' = s + x s (1 - s) 2 u'
#include "fp32/kernels/elementwise.cuh"

#include "fp32/kernels/common.cuh"

namespace fp32 {
namespace {

constexpr float kSqrtTwoOverPi = 0.7978845608028654f;
constexpr float kCubic = 0.044715f;
constexpr int kThreads = 256;

__device__ __forceinline__ float gelu_gate(float x) {
  const float u = kSqrtTwoOverPi * (x + kCubic * x * x * x);
  return 1.0f / (1.0f + expf(-2.0f * u));
}

// One pack per thread.
template <int N>
__global__ void gelu_forward_kernel(float* __restrict__ out, const float* __restrict__ inp, int64_t n) {
  const int64_t i = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
  if (i >= n) return;
  const Pack<N> x = load<N>(inp + i);
  Pack<N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y.v[k] = x.v[k] * gelu_gate(x.v[k]);
  store(out + i, y);
}

// One pack per thread. dinp may be dout, hence no __restrict__ on them.
template <int N>
__global__ void gelu_backward_kernel(float* dinp, const float* dout, const float* __restrict__ inp, int64_t n) {
  const int64_t i = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
  if (i >= n) return;
  const Pack<N> x = load<N>(inp + i);
  Pack<N> d = load<N>(dout + i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float s = gelu_gate(x.v[k]);
    const float du = kSqrtTwoOverPi * (1.0f + 3.0f * kCubic * x.v[k] * x.v[k]);
    d.v[k] *= s + x.v[k] * s * (1.0f - s) * 2.0f * du;
  }
  store(dinp + i, d);
}

// One pack per thread.
template <int N>
__global__ void residual_forward_kernel(float* __restrict__ out, const float* __restrict__ a, const float* __restrict__ b, int64_t n) {
  const int64_t i = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
  if (i >= n) return;
  const Pack<N> x = load<N>(a + i);
  const Pack<N> y = load<N>(b + i);
  Pack<N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum.v[k] = x.v[k] + y.v[k];
  store(out + i, sum);
}

// One block per row, threads over columns.
template <int N>
__global__ void add_bias_kernel(float* __restrict__ out, const float* __restrict__ bias, int64_t columns) {
  float* row = out + blockIdx.x * columns;
  for (int64_t c = threadIdx.x * N; c < columns; c += blockDim.x * N) {
    Pack<N> x = load<N>(row + c);
    const Pack<N> b = load<N>(bias + c);
#pragma unroll
    for (int k = 0; k < N; ++k) x.v[k] += b.v[k];
    store(row + c, x);
  }
}

// ---------------------------------------------------------------------------------------------------------------------

unsigned elementwise_blocks(int64_t n, int pack) { return grid_blocks(ceil_div<int64_t>(n, kThreads * pack)); }

}  // namespace

void gelu_forward(float* out, const float* inp, int64_t n, cudaStream_t stream) {
  if (can_pack(n, out, inp))
    gelu_forward_kernel<4><<<elementwise_blocks(n, 4), kThreads, 0, stream>>>(out, inp, n);
  else
    gelu_forward_kernel<1><<<elementwise_blocks(n, 1), kThreads, 0, stream>>>(out, inp, n);
  FP32_CHECK_LAUNCH();
}

void gelu_backward(float* dinp, const float* dout, const float* inp, int64_t n, cudaStream_t stream) {
  if (can_pack(n, dinp, dout, inp))
    gelu_backward_kernel<4><<<elementwise_blocks(n, 4), kThreads, 0, stream>>>(dinp, dout, inp, n);
  else
    gelu_backward_kernel<1><<<elementwise_blocks(n, 1), kThreads, 0, stream>>>(dinp, dout, inp, n);
  FP32_CHECK_LAUNCH();
}

void residual_forward(float* out, const float* a, const float* b, int64_t n, cudaStream_t stream) {
  if (can_pack(n, out, a, b))
    residual_forward_kernel<4><<<elementwise_blocks(n, 4), kThreads, 0, stream>>>(out, a, b, n);
  else
    residual_forward_kernel<1><<<elementwise_blocks(n, 1), kThreads, 0, stream>>>(out, a, b, n);
  FP32_CHECK_LAUNCH();
}

void add_bias(float* out, const float* bias, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (can_pack(columns, out, bias))
    add_bias_kernel<4><<<grid_blocks(rows), row_threads(columns / 4), 0, stream>>>(out, bias, columns);
  else
    add_bias_kernel<1><<<grid_blocks(rows), row_threads(columns), 0, stream>>>(out, bias, columns);
  FP32_CHECK_LAUNCH();
}

}  // namespace fp32
