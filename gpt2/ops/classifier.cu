// Classifier kernels. The maximum is subtracted from every logit, so no exponential overflows. Padded columns never enter the maximum or
// the sum.
#include "gpt2/ops/classifier.cuh"

#include <string>

#include "base/errors.h"

namespace gpt2::ops {
namespace {

constexpr int kThreads = 1024;

// A thread's part of max and sum of exp(x - max), found together: the sum is rescaled whenever the maximum grows ("Online normalizer
// calculation for softmax", Milakov and Gimelshein 2018).
template <class S>
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
      sum *= exp_for<S>(max - pack_max);  // exp(-inf) = 0 at the first pack
      max = pack_max;
    }
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (c + k < V) sum += exp_for<S>(x.v[k] - max);
  }
};

// Gradient of one pack of logits.
template <class S, int N>
__device__ __forceinline__ Pack<N> gradient(const Pack<N>& x, int64_t c, int64_t V, int64_t target, float max, float inverse_sum,
                                            float scale) {
  Pack<N> d;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float probability = exp_for<S>(x.v[k] - max) * inverse_sum;
    d.v[k] = c + k < V ? (probability - (c + k == target ? 1.0f : 0.0f)) * scale : 0.0f;
  }
  return d;
}

// One block per row; the row is read from memory twice (the second read mostly hits L2) and written once.
template <class S, int N, bool kGradient>
__global__ void __launch_bounds__(kThreads) two_pass_kernel(S* logits, float* __restrict__ losses, const int* __restrict__ targets,
                                                            int64_t V, int64_t Vp, const StepScalars* __restrict__ scalars) {
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  S* x_row = logits + row * Vp;
  const int64_t target = targets[row];
  // Read now: after the barriers below the gradient overwrites it.
  const float target_logit = threadIdx.x == 0 ? load<1>(x_row + target).v[0] : 0.0f;

  OnlineSum<S> mine;
  for (int64_t c = threadIdx.x * N; c < V; c += kThreads * N) mine.template add<N>(load<N>(x_row + c), c, V);
  const float max = block_max(mine.max, shared);
  const float sum = block_sum(mine.sum * expf(mine.max - max), shared);
  if (threadIdx.x == 0) losses[row] = logf(sum) + max - target_logit;

  if constexpr (kGradient) {
    const float inverse_sum = 1.0f / sum;
    const float scale = scalars->gradient_scale;
    for (int64_t c = threadIdx.x * N; c < Vp; c += kThreads * N)
      store(x_row + c, gradient<S>(load<N>(x_row + c), c, V, target, max, inverse_sum, scale));
  }
}

// one_read of float: one block per row, which it keeps in shared memory between its one read and its one write. At GPT-2's vocabulary a
// row fills the shared memory of a multiprocessor, so one block is all that runs there, and it sums on the way in, as two_pass does.
template <int N, bool kGradient>
__global__ void __launch_bounds__(kThreads)
    one_read_online_kernel(float* logits, float* __restrict__ losses, const int* __restrict__ targets, int64_t V, int64_t Vp,
                           const StepScalars* __restrict__ scalars) {
  extern __shared__ __align__(16) unsigned char row_in_shared[];
  float* kept = reinterpret_cast<float*>(row_in_shared);
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  float* x_row = logits + row * Vp;
  const int64_t target = targets[row];

  OnlineSum<float> mine;
  for (int64_t c = threadIdx.x * N; c < V; c += kThreads * N) {
    const Pack<N> x = load<N>(x_row + c);
    store(kept + c, x);
    mine.template add<N>(x, c, V);
  }
  const float max = block_max(mine.max, shared);
  const float sum = block_sum(mine.sum * expf(mine.max - max), shared);
  if (threadIdx.x == 0) losses[row] = logf(sum) + max - kept[target];

  if constexpr (kGradient) {
    const float inverse_sum = 1.0f / sum;
    const float scale = scalars->gradient_scale;
    for (int64_t c = threadIdx.x * N; c < Vp; c += kThreads * N) {
      Pack<N> x{};
      if (c < V) x = load<N>(kept + c);  // a pack wholly beyond V was never kept
      store(x_row + c, gradient<float>(x, c, V, target, max, inverse_sum, scale));
    }
  }
}

// ---- one_read of bf16 -------------------------------------------------------------------------------------------------

constexpr int kOneReadThreads = 512;

// 16 bytes from global to shared memory without a register in between.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "l"(global));
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// What a row costs is instructions, not bytes: at 4 TB/s a multiprocessor has some 13 issue slots per logit. So one_read_kernel looks at
// no index inside its loops: padded columns become minus infinity in shared memory, whose exponential is 0, and the one-hot term is
// put in after the row.
struct Row {
  const bf16* kept;  // Vp logits
  int packs;         // of 8

  __device__ __forceinline__ uint4 raw(int pack) const { return reinterpret_cast<const uint4*>(kept)[pack]; }
};

__device__ __forceinline__ uint32_t max_of_pairs(uint32_t a, uint32_t b) {
  const __nv_bfloat162 m = __hmax2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&m);
}

// 2^x, good to 2^-22; 0 for minus infinity.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

constexpr float kLog2E = 1.4426950408889634f;

// One block per row, kept in shared memory between its one read and its one write. Two blocks fit a multiprocessor at GPT-2's
// vocabulary, so that one computes while the other moves. A thread reads back only what it copied itself, except for the target.
// Vp is a multiple of 8.
template <bool kGradient>
__global__ void __launch_bounds__(kOneReadThreads, 2)
    one_read_kernel(bf16* logits, float* __restrict__ losses, const int* __restrict__ targets, int V, int Vp,
                    const StepScalars* __restrict__ scalars) {
  cuda::wait_for_kernels_before();
  extern __shared__ __align__(16) unsigned char row_in_shared[];
  bf16* kept = reinterpret_cast<bf16*>(row_in_shared);
  __shared__ float shared[kWarp];
  bf16* x_row = logits + blockIdx.x * static_cast<int64_t>(Vp);
  const int target = targets[blockIdx.x];
  const Row row{kept, Vp / 8};

  for (int pack = threadIdx.x; pack < row.packs; pack += kOneReadThreads) copy_async_16(kept + pack * 8, x_row + pack * 8);
  wait_for_copies();
  const int first_padded = V / 8;
  for (int pack = first_padded + (threadIdx.x + kOneReadThreads - first_padded % kOneReadThreads) % kOneReadThreads; pack < row.packs;
       pack += kOneReadThreads)
    for (int c = max(V, pack * 8); c < pack * 8 + 8; ++c) kept[c] = __float2bfloat16_rn(-INFINITY);

  uint32_t largest = 0xff80ff80u;  // minus infinity, twice
  for (int pack = threadIdx.x; pack < row.packs; pack += kOneReadThreads) {
    const uint4 x = row.raw(pack);
    largest = max_of_pairs(largest, max_of_pairs(max_of_pairs(x.x, x.y), max_of_pairs(x.z, x.w)));
  }
  const float max = block_max(fmaxf(__uint_as_float(largest << 16), __uint_as_float(largest & 0xffff0000u)), shared);
  const float shift = -max * kLog2E;

  float mine[2] = {0, 0};
  for (int pack = threadIdx.x; pack < row.packs; pack += kOneReadThreads) {
    const Pack<8> x = load<8>(kept + pack * 8);
#pragma unroll
    for (int k = 0; k < 8; ++k) mine[k % 2] += fast_exp2(fmaf(x.v[k], kLog2E, shift));
  }
  const float sum = block_sum(mine[0] + mine[1], shared);
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) + max - __bfloat162float(kept[target]);

  if constexpr (kGradient) {
    const float scale = scalars->gradient_scale;
    const float factor = scale / sum;
    for (int pack = threadIdx.x; pack < row.packs; pack += kOneReadThreads) {
      Pack<8> x = load<8>(kept + pack * 8);
#pragma unroll
      for (int k = 0; k < 8; ++k) x.v[k] = fast_exp2(fmaf(x.v[k], kLog2E, shift)) * factor;
      store(x_row + pack * 8, x);
    }
    // The thread that has just written the target's pack writes its one element again.
    if (threadIdx.x == target / 8 % kOneReadThreads)
      x_row[target] = __float2bfloat16_rn(fast_exp2(fmaf(__bfloat162float(kept[target]), kLog2E, shift)) * factor - scale);
  }
}

// One block: thread i sums losses i, i + 1024, … in double, then the block.
__global__ void __launch_bounds__(kThreads) mean_loss_kernel(StepStats* stats, const float* __restrict__ losses, int64_t rows,
                                                             const StepScalars* __restrict__ scalars, bool accumulate) {
  cuda::wait_for_kernels_before();
  __shared__ double shared[kWarp];
  double sum = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) sum += static_cast<double>(losses[row]);
  sum = block_sum(sum, shared) * scalars->loss_scale;
  if (threadIdx.x == 0) stats->loss = accumulate ? stats->loss + sum : sum;
}

// ---------------------------------------------------------------------------------------------------------------------

// The most shared memory that a block can have.
int64_t most_shared_bytes() {
  int device = 0;
  int most = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return most;
}

template <int N, bool kGradient>
void launch_one_read(float* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp, const StepScalars* scalars,
                     cudaStream_t stream) {
  const size_t bytes = static_cast<size_t>(Vp) * sizeof(float);
  const auto kernel = one_read_online_kernel<N, kGradient>;
  STEPSCOPE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  kernel<<<grid_blocks(rows), kThreads, bytes, stream>>>(logits, losses, targets, V, Vp, scalars);
}
template <int N, bool kGradient>  // N = 8: why_not() lets nothing else come here
void launch_one_read(bf16* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp, const StepScalars* scalars,
                     cudaStream_t stream) {
  const size_t bytes = static_cast<size_t>(Vp) * sizeof(bf16);
  const auto kernel = one_read_kernel<kGradient>;
  STEPSCOPE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  kernel<<<grid_blocks(rows), kOneReadThreads, bytes, stream>>>(logits, losses, targets, static_cast<int>(V), static_cast<int>(Vp),
                                                                scalars);
}

template <int N, bool kGradient, class S>
void launch(Classifier variant, S* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
            const StepScalars* scalars, cudaStream_t stream) {
  switch (variant) {
    case Classifier::two_pass:
      two_pass_kernel<S, N, kGradient><<<grid_blocks(rows), kThreads, 0, stream>>>(logits, losses, targets, V, Vp, scalars);
      break;
    case Classifier::one_read:
      if (const auto why = why_not<S>(variant, Vp, N > 1, most_shared_bytes())) throw stepscope::InputError("classifier=one_read: " + *why);
      launch_one_read<N, kGradient>(logits, losses, targets, rows, V, Vp, scalars, stream);
      break;
  }
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace

template <class S>
std::optional<std::string> why_not(Classifier variant, int64_t Vp, bool packs, int64_t shared_bytes_per_block) {
  switch (variant) {
    case Classifier::two_pass:
      return std::nullopt;
    case Classifier::one_read:
      break;
  }
  if (sizeof(S) == 2 && !packs)
    return "it moves 8 logits at a time, a row of this model has " + std::to_string(Vp) + "; use classifier=two_pass";
  // The row, and what the kernel itself declares.
  const int64_t bytes = Vp * static_cast<int64_t>(sizeof(S)) + kWarp * static_cast<int64_t>(sizeof(float));
  if (bytes <= shared_bytes_per_block) return std::nullopt;
  return "a row of " + std::to_string(Vp) + " logits takes " + std::to_string(bytes) +
         " bytes of shared memory, a block of this device has " + std::to_string(shared_bytes_per_block) + "; use classifier=two_pass";
}

template <class S>
void classifier(Classifier variant, S* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
                const StepScalars* scalars, bool write_gradient, cudaStream_t stream) {
  const bool packs = can_pack<S>(Vp, logits);
  constexpr int N = kPack<S>;
  if (packs && write_gradient) launch<N, true>(variant, logits, losses, targets, rows, V, Vp, scalars, stream);
  if (packs && !write_gradient) launch<N, false>(variant, logits, losses, targets, rows, V, Vp, scalars, stream);
  if (!packs && write_gradient) launch<1, true>(variant, logits, losses, targets, rows, V, Vp, scalars, stream);
  if (!packs && !write_gradient) launch<1, false>(variant, logits, losses, targets, rows, V, Vp, scalars, stream);
}

void mean_loss(StepStats* stats, const float* losses, int64_t rows, const StepScalars* scalars, bool accumulate, cudaStream_t stream) {
  mean_loss_kernel<<<1, kThreads, 0, stream>>>(stats, losses, rows, scalars, accumulate);
  STEPSCOPE_CHECK_LAUNCH();
}

template std::optional<std::string> why_not<float>(Classifier, int64_t, bool, int64_t);
template std::optional<std::string> why_not<bf16>(Classifier, int64_t, bool, int64_t);
#define STEPSCOPE_INSTANTIATE(S) \
  template void classifier<S>(Classifier, S*, float*, const int*, int64_t, int64_t, int64_t, const StepScalars*, bool, cudaStream_t);
STEPSCOPE_INSTANTIATE(float)
STEPSCOPE_INSTANTIATE(bf16)
#undef STEPSCOPE_INSTANTIATE

}  // namespace gpt2::ops
