// AdamW kernels. Bias corrections are computed in double on the host: in float, 1 - 0.999^t loses four digits at t = 1.
#include "fp32/kernels/adamw.cuh"

#include <cmath>

#include "fp32/kernels/common.cuh"

namespace fp32 {
namespace {

constexpr int kThreads = 256;

struct Coefficients {
  float learning_rate, beta1, beta2, one_minus_beta1, one_minus_beta2, correction1, correction2, eps, decay;
};

// Where each tensor ends in the flat vector, and whether it decays (bit of its row).
struct DecayTable {
  int64_t end[gpt2::kTensorCount];
  unsigned decayed;
};

__device__ __forceinline__ void update(float& p, float g, float& m, float& v, const Coefficients& k, float decay) {
  m = k.beta1 * m + k.one_minus_beta1 * g;
  v = k.beta2 * v + k.one_minus_beta2 * g * g;
  p -= k.learning_rate * ((m / k.correction1) / (sqrtf(v / k.correction2) + k.eps) + decay * p);
}

template <int N>
__device__ __forceinline__ void update_pack(float* p, const float* g, float* m, float* v, const Coefficients& k, const float (&decay)[N],
                                            float clip_scale) {
  Pack<N> pp = load<N>(p);
  Pack<N> mm = load<N>(m);
  Pack<N> vv = load<N>(v);
  const Pack<N> gg = load<N>(g);
#pragma unroll
  for (int i = 0; i < N; ++i) update(pp.v[i], gg.v[i] * clip_scale, mm.v[i], vv.v[i], k, decay[i]);
  store(p, pp);
  store(m, mm);
  store(v, vv);
}

// One pack per thread over all parameters; a pack may straddle two tensors, so every element looks up its own row.
template <int N>
__global__ void __launch_bounds__(kThreads)
    all_tensors_kernel(float* __restrict__ p, const float* __restrict__ g, float* __restrict__ m, float* __restrict__ v, int64_t n,
                       const __grid_constant__ Coefficients k, const __grid_constant__ DecayTable table,
                       const float* __restrict__ clip_scale) {
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N;
  if (first >= n) return;
  float decay[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    int row = 0;
#pragma unroll
    for (int t = 0; t < gpt2::kTensorCount - 1; ++t) row += first + i >= table.end[t] ? 1 : 0;
    decay[i] = (table.decayed >> row & 1u) != 0 ? k.decay : 0.0f;
  }
  update_pack<N>(p + first, g + first, m + first, v + first, k, decay, *clip_scale);
}

// One pack per thread over one tensor.
template <int N>
__global__ void __launch_bounds__(kThreads)
    one_tensor_kernel(float* __restrict__ p, const float* __restrict__ g, float* __restrict__ m, float* __restrict__ v, int64_t n,
                      const __grid_constant__ Coefficients k, const float* __restrict__ clip_scale) {
  const int64_t first = (blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x) * N;
  if (first >= n) return;
  float decay[N];
#pragma unroll
  for (int i = 0; i < N; ++i) decay[i] = k.decay;
  update_pack<N>(p + first, g + first, m + first, v + first, k, decay, *clip_scale);
}

// ---------------------------------------------------------------------------------------------------------------------

unsigned blocks(int64_t n, int pack) { return grid_blocks(ceil_div<int64_t>(n, kThreads * pack)); }

void launch_all_tensors(float* p, const float* g, float* m, float* v, const gpt2::TensorLayout& layout, const Coefficients& k,
                        const float* clip_scale, cudaStream_t stream) {
  DecayTable table{};
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const auto i = static_cast<size_t>(row.id);
    table.end[i] = layout.span[i].offset + layout.span[i].size;
    if (row.decayed) table.decayed |= 1u << i;
  }
  const int64_t n = layout.total;
  if (can_pack(n, p, g, m, v))
    all_tensors_kernel<4><<<blocks(n, 4), kThreads, 0, stream>>>(p, g, m, v, n, k, table, clip_scale);
  else
    all_tensors_kernel<1><<<blocks(n, 1), kThreads, 0, stream>>>(p, g, m, v, n, k, table, clip_scale);
  FP32_CHECK_LAUNCH();
}

void launch_one_tensor(float* p, const float* g, float* m, float* v, int64_t n, const Coefficients& k, const float* clip_scale,
                       cudaStream_t stream) {
  if (can_pack(n, p, g, m, v))
    one_tensor_kernel<4><<<blocks(n, 4), kThreads, 0, stream>>>(p, g, m, v, n, k, clip_scale);
  else
    one_tensor_kernel<1><<<blocks(n, 1), kThreads, 0, stream>>>(p, g, m, v, n, k, clip_scale);
  FP32_CHECK_LAUNCH();
}

}  // namespace

void adamw(AdamWKernel variant, float* parameters, const float* gradients, float* m, float* v, const gpt2::TensorLayout& layout,
           const gpt2::AdamW& settings, int64_t step, const float* clip_scale, cudaStream_t stream) {
  const double t = static_cast<double>(step);
  Coefficients k{};
  k.learning_rate = settings.learning_rate;
  k.beta1 = settings.beta1;
  k.beta2 = settings.beta2;
  k.one_minus_beta1 = 1.0f - settings.beta1;
  k.one_minus_beta2 = 1.0f - settings.beta2;
  k.correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(settings.beta1), t));
  k.correction2 = static_cast<float>(1.0 - std::pow(static_cast<double>(settings.beta2), t));
  k.eps = settings.eps;
  k.decay = settings.weight_decay;
  switch (variant) {
    case AdamWKernel::all_tensors:
      launch_all_tensors(parameters, gradients, m, v, layout, k, clip_scale, stream);
      break;
    case AdamWKernel::per_tensor:
      for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
        const gpt2::TensorSpan& span = layout[row.id];
        Coefficients here = k;
        if (!row.decayed) here.decay = 0;
        launch_one_tensor(parameters + span.offset, gradients + span.offset, m + span.offset, v + span.offset, span.size, here, clip_scale,
                          stream);
      }
      break;
  }
}

}  // namespace fp32
