#include "mixed/kernels/fill.cuh"

namespace mixed {
namespace {

constexpr int kThreads = 256;

// A multiplicative hash of the index (Knuth's constant, then a xor-shift mix): good enough to look like noise to a matrix product.
__global__ void fill_uniform_kernel(bf16* __restrict__ out, int64_t n, float amplitude) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i >= n) return;
  uint32_t x = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(i >> 32);
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  out[i] = __float2bfloat16_rn((static_cast<float>(x) * 0x1p-31f - 1.0f) * amplitude);
}

}  // namespace

void fill_uniform(bf16* out, int64_t n, float amplitude, cudaStream_t stream) {
  fill_uniform_kernel<<<grid_blocks(ceil_div<int64_t>(n, kThreads)), kThreads, 0, stream>>>(out, n, amplitude);
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace mixed
