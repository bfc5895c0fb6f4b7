// Chapter 5: two reads and a write of each row, one float at a time. Read four at a time.
#include <cfloat>
#include <cstdint>

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

// logits: (rows, Vp), the first V of a row count; they become (softmax - one-hot) * scale, and 0 from V on. losses, targets: (rows).
extern "C" void classifier(float* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp, float scale,
                           cudaStream_t stream) {
  online<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(logits, losses, targets, V, Vp, scale);
}
