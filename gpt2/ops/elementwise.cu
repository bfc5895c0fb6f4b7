// GELU(x) = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). Written with s = 1 / (1 + exp(-2u)) = (1 + tanh(u)) / 2, which keeps
// its relative accuracy for negative x, where 1 + tanh(u) would cancel:
//   gelu = x s;   gelu' = s + x s (1 - s) 2 u'
#include "gpt2/ops/elementwise.cuh"

namespace gpt2::ops {
namespace {

constexpr float kSqrtTwoOverPi = 0.7978845608028654f;
constexpr float kCubic = 0.044715f;
constexpr int kThreads = 256;

template <class S>
__device__ __forceinline__ float gelu_gate(float x) {
  const float u = kSqrtTwoOverPi * (x + kCubic * x * x * x);
  return divide_for<S>(1.0f, 1.0f + exp_for<S>(-2.0f * u));
}

// One pack per thread.
template <int N, class S>
__global__ void gelu_forward_kernel(S* __restrict__ out, const S* __restrict__ inp, int64_t n) {
  const int64_t i = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
  if (i >= n) return;
  const Pack<N> x = load<N>(inp + i);
  Pack<N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y.v[k] = x.v[k] * gelu_gate<S>(x.v[k]);
  store(out + i, y);
}

// One pack per thread. dinp may be dout, hence no __restrict__ on them.
template <int N, class S>
__global__ void gelu_backward_kernel(S* dinp, const S* dout, const S* __restrict__ inp, int64_t n) {
  const int64_t i = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
  if (i >= n) return;
  const Pack<N> x = load<N>(inp + i);
  Pack<N> d = load<N>(dout + i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float s = gelu_gate<S>(x.v[k]);
    const float du = kSqrtTwoOverPi * (1.0f + 3.0f * kCubic * x.v[k] * x.v[k]);
    d.v[k] *= s + x.v[k] * s * (1.0f - s) * 2.0f * du;
  }
  store(dinp + i, d);
}

// One pack per thread. out may be a, and out_up a_up, hence no __restrict__ on them.
template <int N, class S, class R>
__global__ void residual_forward_kernel(R* out, const R* a, const S* __restrict__ b, int64_t n, S* out_up, const S* a_up) {
  const int64_t i = (blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) * N;
  if (i >= n) return;
  const Pack<N> x = load_value<N>(a, a_up, i);
  const Pack<N> y = load<N>(b + i);
  Pack<N> sum;
#pragma unroll
  for (int k = 0; k < N; ++k) sum.v[k] = x.v[k] + y.v[k];
  store_value(out, out_up, i, sum);
}

// One block per row, threads over columns.
template <int N, class S>
__global__ void add_bias_kernel(S* __restrict__ out, const S* __restrict__ bias, int64_t columns) {
  S* row = out + blockIdx.x * columns;
  for (int64_t c = threadIdx.x * N; c < columns; c += blockDim.x * N) {
    Pack<N> x = load<N>(row + c);
    const Pack<N> b = load<N>(bias + c);
#pragma unroll
    for (int k = 0; k < N; ++k) x.v[k] += b.v[k];
    store(row + c, x);
  }
}

// One value per thread.
__global__ void add_floats_kernel(float* __restrict__ out, const float* __restrict__ in, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] += in[i];
}

// ---------------------------------------------------------------------------------------------------------------------

unsigned elementwise_blocks(int64_t n, int pack) { return grid_blocks(ceil_div<int64_t>(n, kThreads * pack)); }

}  // namespace

template <class S>
void gelu_forward(S* out, const S* inp, int64_t n, cudaStream_t stream) {
  if (can_pack<S>(n, out, inp))
    gelu_forward_kernel<kPack<S>><<<elementwise_blocks(n, kPack<S>), kThreads, 0, stream>>>(out, inp, n);
  else
    gelu_forward_kernel<1><<<elementwise_blocks(n, 1), kThreads, 0, stream>>>(out, inp, n);
  STEPSCOPE_CHECK_LAUNCH();
}

template <class S>
void gelu_backward(S* dinp, const S* dout, const S* inp, int64_t n, cudaStream_t stream) {
  if (can_pack<S>(n, dinp, dout, inp))
    gelu_backward_kernel<kPack<S>><<<elementwise_blocks(n, kPack<S>), kThreads, 0, stream>>>(dinp, dout, inp, n);
  else
    gelu_backward_kernel<1><<<elementwise_blocks(n, 1), kThreads, 0, stream>>>(dinp, dout, inp, n);
  STEPSCOPE_CHECK_LAUNCH();
}

template <class S, class R>
void residual_forward(R* out, const R* a, const S* b, int64_t n, cudaStream_t stream, std::type_identity_t<S>* out_up,
                      const std::type_identity_t<S>* a_up) {
  if (can_pack<S>(n, out, a, b, out_up, a_up))
    residual_forward_kernel<kPack<S>><<<elementwise_blocks(n, kPack<S>), kThreads, 0, stream>>>(out, a, b, n, out_up, a_up);
  else
    residual_forward_kernel<1><<<elementwise_blocks(n, 1), kThreads, 0, stream>>>(out, a, b, n, out_up, a_up);
  STEPSCOPE_CHECK_LAUNCH();
}

template <class S>
void add_bias(S* out, const S* bias, int64_t rows, int64_t columns, cudaStream_t stream) {
  if (can_pack<S>(columns, out, bias))
    add_bias_kernel<kPack<S>><<<grid_blocks(rows), row_threads(columns / kPack<S>), 0, stream>>>(out, bias, columns);
  else
    add_bias_kernel<1><<<grid_blocks(rows), row_threads(columns), 0, stream>>>(out, bias, columns);
  STEPSCOPE_CHECK_LAUNCH();
}

void add_floats(float* out, const float* in, int64_t n, cudaStream_t stream) {
  add_floats_kernel<<<elementwise_blocks(n, 1), kThreads, 0, stream>>>(out, in, n);
  STEPSCOPE_CHECK_LAUNCH();
}

template void gelu_forward(float*, const float*, int64_t, cudaStream_t);
template void gelu_forward(bf16*, const bf16*, int64_t, cudaStream_t);
template void gelu_backward(float*, const float*, const float*, int64_t, cudaStream_t);
template void gelu_backward(bf16*, const bf16*, const bf16*, int64_t, cudaStream_t);
template void residual_forward(float*, const float*, const float*, int64_t, cudaStream_t, float*, const float*);
#define STEPSCOPE_INSTANTIATE(S, R) template void residual_forward(R*, const R*, const S*, int64_t, cudaStream_t, S*, const S*);
STEPSCOPE_FOR_EACH_MIXED_STREAM(STEPSCOPE_INSTANTIATE)
#undef STEPSCOPE_INSTANTIATE
template void add_bias(float*, const float*, int64_t, int64_t, cudaStream_t);
template void add_bias(bf16*, const bf16*, int64_t, int64_t, cudaStream_t);

}  // namespace gpt2::ops
