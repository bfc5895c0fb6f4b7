#include <algorithm>

#include "experiments/prototypes/hopper_product/measure_kernels.h"
#include "gpt2/cuda/check.h"
#include "gpt2/ops/storage.cuh"

namespace hopper {
namespace {

using gpt2::ops::bf16;

__device__ uint32_t mixed_bits(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// The sum of four uniform values: near enough to a normal one.
template <class T>
__global__ void fill_kernel(T* to, int64_t n, float scale, uint32_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) {
    float sum = -2;
    for (uint32_t j = 0; j < 4; ++j)
      sum += static_cast<float>(mixed_bits(static_cast<uint32_t>(i) * 4 + j + mixed_bits(seed)) >> 8) / 16777216.0f;
    to[i] = gpt2::ops::from_float<T>(1.7320508f * scale * sum);
  }
}

__global__ void sampled_sums_kernel(Problem p, const int* rows, float* sums) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= p.n) return;
  const int64_t row = rows[blockIdx.y];
  double sum = 0;
  for (int64_t k = 0; k < p.k; ++k) {
    const bf16 a = p.a[p.a_across ? k * p.m + row : row * p.k + k], b = p.b[p.b_across ? k * p.n + column : int64_t{column} * p.k + k];
    sum += static_cast<double>(__bfloat162float(a) * __bfloat162float(b));  // the product of two bf16 is exact
  }
  sums[int64_t{blockIdx.y} * p.n + column] = static_cast<float>(sum);
}

template <class T>
void fill(T* to, int64_t n, float scale, uint32_t seed) {
  fill_kernel<<<1056, 256>>>(to, n, scale, seed);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void fill_normal(__nv_bfloat16* to, int64_t n, float scale, uint32_t seed) { fill(to, n, scale, seed); }
void fill_normal(float* to, int64_t n, float scale, uint32_t seed) { fill(to, n, scale, seed); }

void sampled_sums(const Problem& p, const int* rows, int row_count, float* sums) {
  sampled_sums_kernel<<<dim3(static_cast<unsigned>((p.n + 127) / 128), static_cast<unsigned>(row_count)), 128>>>(p, rows, sums);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace hopper
