// Classifier kernels. The maximum and the sum of exponentials are found together: a thread's sum is rescaled whenever its maximum
// grows ("Online normalizer calculation for softmax", Milakov and Gimelshein 2018). Padded columns never enter either.
#include "fp32/kernels/classifier.cuh"

#include <string>

#include "base/errors.h"
#include "fp32/kernels/common.cuh"

namespace fp32 {
namespace {

constexpr int kThreads = 1024;

// A thread's part of max and sum of exp(x - max).
struct OnlineSum {
  float max = -INFINITY;
  float sum = 0;

  template <int N>
  __device__ __forceinline__ void add(const Pack<N>& x, int64_t c, int64_t V) {
    float pack_max = -INFINITY;
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (c + k < V) pack_max = fmaxf(pack_max, x.v[k]);
    if (pack_max > max) {
      sum *= expf(max - pack_max);  // exp(-inf) = 0 at the first pack
      max = pack_max;
    }
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (c + k < V) sum += expf(x.v[k] - max);
  }
};

// Gradient of one pack of logits.
template <int N>
__device__ __forceinline__ Pack<N> gradient(const Pack<N>& x, int64_t c, int64_t V, int64_t target, float max, float inverse_sum,
                                            float scale) {
  Pack<N> d;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float probability = expf(x.v[k] - max) * inverse_sum;
    d.v[k] = c + k < V ? (probability - (c + k == target ? 1.0f : 0.0f)) * scale : 0.0f;
  }
  return d;
}

// One block per row; the row is read from memory twice (the second read mostly hits L2) and written once.
template <int N, bool kGradient>
__global__ void __launch_bounds__(kThreads)
    two_pass_kernel(float* logits, float* __restrict__ losses, const int* __restrict__ targets, int64_t V, int64_t Vp, float scale) {
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  float* x_row = logits + row * Vp;
  const int64_t target = targets[row];
  // Read now: after the barriers below the gradient overwrites it.
  const float target_logit = threadIdx.x == 0 ? x_row[target] : 0.0f;

  OnlineSum mine;
  for (int64_t c = threadIdx.x * N; c < V; c += kThreads * N) mine.add<N>(load<N>(x_row + c), c, V);
  const float max = block_max(mine.max, shared);
  const float sum = block_sum(mine.sum * expf(mine.max - max), shared);
  if (threadIdx.x == 0) losses[row] = logf(sum) + max - target_logit;

  if constexpr (kGradient) {
    const float inverse_sum = 1.0f / sum;
    for (int64_t c = threadIdx.x * N; c < Vp; c += kThreads * N)
      store(x_row + c, gradient<N>(load<N>(x_row + c), c, V, target, max, inverse_sum, scale));
  }
}

// One block per row; the row is kept in shared memory between the two passes, so memory sees one read and one write.
template <int N, bool kGradient>
__global__ void __launch_bounds__(kThreads)
    row_in_shared_kernel(float* logits, float* __restrict__ losses, const int* __restrict__ targets, int64_t V, int64_t Vp, float scale) {
  extern __shared__ __align__(16) float kept[];
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  float* x_row = logits + row * Vp;
  const int64_t target = targets[row];

  OnlineSum mine;
  for (int64_t c = threadIdx.x * N; c < V; c += kThreads * N) {
    const Pack<N> x = load<N>(x_row + c);
    store(kept + c, x);
    mine.add<N>(x, c, V);
  }
  const float max = block_max(mine.max, shared);
  const float sum = block_sum(mine.sum * expf(mine.max - max), shared);
  if (threadIdx.x == 0) losses[row] = logf(sum) + max - kept[target];

  if constexpr (kGradient) {
    const float inverse_sum = 1.0f / sum;
    for (int64_t c = threadIdx.x * N; c < Vp; c += kThreads * N) {
      Pack<N> x{};
      if (c < V) x = load<N>(kept + c);  // a pack wholly beyond V was never kept
      store(x_row + c, gradient<N>(x, c, V, target, max, inverse_sum, scale));
    }
  }
}

// One block: thread i sums losses i, i + 1024, … in double, then the block.
__global__ void __launch_bounds__(kThreads)
    mean_loss_kernel(double* loss, const float* __restrict__ losses, int64_t rows, double scale, bool accumulate) {
  __shared__ double shared[kWarp];
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) sum += static_cast<double>(losses[row]);
  sum = block_sum(sum, shared) * scale;
  if (threadIdx.x == 0) *loss = accumulate ? *loss + sum : sum;
}

// ---------------------------------------------------------------------------------------------------------------------

template <int N, bool kGradient>
void launch(Classifier variant, float* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp, float scale,
            cudaStream_t stream) {
  switch (variant) {
    case Classifier::two_pass:
      two_pass_kernel<N, kGradient><<<grid_blocks(rows), kThreads, 0, stream>>>(logits, losses, targets, V, Vp, scale);
      break;
    case Classifier::one_read: {
      const int64_t bytes = Vp * static_cast<int64_t>(sizeof(float));
      int device = 0;
      int most = 0;
      STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
      STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
      if (const auto why = why_not(variant, Vp, most)) throw stepscope::InputError("classifier=one_read: " + *why);
      STEPSCOPE_CUDA_CHECK(
          cudaFuncSetAttribute(row_in_shared_kernel<N, kGradient>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
      row_in_shared_kernel<N, kGradient>
          <<<grid_blocks(rows), kThreads, static_cast<size_t>(bytes), stream>>>(logits, losses, targets, V, Vp, scale);
      break;
    }
  }
  FP32_CHECK_LAUNCH();
}

}  // namespace

std::optional<std::string> why_not(Classifier variant, int64_t Vp, int64_t shared_bytes_per_block) {
  switch (variant) {
    case Classifier::two_pass:
      return std::nullopt;
    case Classifier::one_read:
      break;
  }
  const int64_t bytes = (Vp + kWarp) * static_cast<int64_t>(sizeof(float));  // the row, and what the kernel itself declares
  if (bytes <= shared_bytes_per_block) return std::nullopt;
  return "a row of " + std::to_string(Vp) + " logits takes " + std::to_string(bytes) +
         " bytes of shared memory, a block of this device has " + std::to_string(shared_bytes_per_block) + "; use classifier=two_pass";
}

void classifier(Classifier variant, float* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
                float gradient_scale, bool write_gradient, cudaStream_t stream) {
  const bool packs = can_pack(Vp, logits);
  if (packs && write_gradient) launch<4, true>(variant, logits, losses, targets, rows, V, Vp, gradient_scale, stream);
  if (packs && !write_gradient) launch<4, false>(variant, logits, losses, targets, rows, V, Vp, gradient_scale, stream);
  if (!packs && write_gradient) launch<1, true>(variant, logits, losses, targets, rows, V, Vp, gradient_scale, stream);
  if (!packs && !write_gradient) launch<1, false>(variant, logits, losses, targets, rows, V, Vp, gradient_scale, stream);
}

void mean_loss(double* loss, const float* losses, int64_t rows, double scale, bool accumulate, cudaStream_t stream) {
  mean_loss_kernel<<<1, kThreads, 0, stream>>>(loss, losses, rows, scale, accumulate);
  FP32_CHECK_LAUNCH();
}

}  // namespace fp32
