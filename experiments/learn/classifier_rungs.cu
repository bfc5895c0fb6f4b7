#include <cfloat>

#include "experiments/learn/rungs.h"

namespace learn {
namespace {

constexpr int kThreads = 512;

// The same value for all threads of the block.
template <class Op>
__device__ float block_reduce(float x, float neutral, const Op& op) {
  __shared__ float of_warp[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, offset));
  __syncthreads();  // of_warp may still be read from the reduction before
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < kThreads / 32 ? of_warp[threadIdx.x % 32] : neutral;
  for (int offset = 16; offset > 0; offset /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Kernel by kernel as a formula is read: softmax written out, then the loss, then the gradient.
__global__ void softmax_in_place(float* logits, int64_t V, int64_t Vp) {
  float* row = logits + static_cast<int64_t>(blockIdx.x) * Vp;
  float most = -FLT_MAX;
  for (int64_t v = threadIdx.x; v < V; v += kThreads) most = fmaxf(most, row[v]);
  most = block_reduce(most, -FLT_MAX, Larger{});
  float sum = 0;
  for (int64_t v = threadIdx.x; v < V; v += kThreads) sum += expf(row[v] - most);
  sum = block_reduce(sum, 0.0f, Sum{});
  for (int64_t v = threadIdx.x; v < V; v += kThreads) row[v] = expf(row[v] - most) / sum;
}
// The logarithm of a probability that was rounded to 0 is no loss: the largest finite one stands for it.
__global__ void losses_of(float* losses, const float* probabilities, const int* targets, int64_t rows, int64_t Vp) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row < rows) losses[row] = -logf(fmaxf(probabilities[row * Vp + targets[row]], FLT_MIN));
}
__global__ void gradient_in_place(float* probabilities, const int* targets, int64_t n, int64_t V, int64_t Vp, float scale) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int64_t v = i % Vp;
  probabilities[i] = v < V ? (probabilities[i] - (v == targets[i / Vp] ? 1.0f : 0.0f)) * scale : 0.0f;
}

// Largest logit and sum in one read (the online softmax), gradient in the second: two reads and a write instead of four reads and two writes.
__global__ void online(float* logits, float* losses, const int* targets, int64_t V, int64_t Vp, float scale) {
  float* row = logits + static_cast<int64_t>(blockIdx.x) * Vp;
  const int target = targets[blockIdx.x];
  float most = -FLT_MAX, sum = 0;
  for (int64_t v = threadIdx.x; v < V; v += kThreads) {
    const float x = row[v], larger = fmaxf(most, x);
    sum = sum * expf(most - larger) + expf(x - larger);
    most = larger;
  }
  const float all = block_reduce(most, -FLT_MAX, Larger{});
  sum = block_reduce(sum * expf(most - all), 0.0f, Sum{});
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(sum) - (row[target] - all);
  __syncthreads();  // the target's logit is read before it is overwritten
  for (int64_t v = threadIdx.x; v < Vp; v += kThreads)
    row[v] = v < V ? (expf(row[v] - all) / sum - (v == target ? 1.0f : 0.0f)) * scale : 0.0f;
}

}  // namespace

void classifier_written_out(float* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp, float scale,
                            cudaStream_t stream) {
  softmax_in_place<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(logits, V, Vp);
  losses_of<<<static_cast<unsigned>((rows + 255) / 256), 256, 0, stream>>>(losses, logits, targets, rows, Vp);
  gradient_in_place<<<static_cast<unsigned>((rows * Vp + 255) / 256), 256, 0, stream>>>(logits, targets, rows * Vp, V, Vp, scale);
}
void classifier_online(float* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp, float scale,
                       cudaStream_t stream) {
  online<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(logits, losses, targets, V, Vp, scale);
}

}  // namespace learn
