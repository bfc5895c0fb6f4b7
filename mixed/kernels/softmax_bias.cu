#include "mixed/kernels/softmax_bias.cuh"

#include "base/errors.h"
#include "gpt2/cuda/check.h"

namespace mixed {
namespace {

constexpr int kSums = 32;                                 // of a column in one block, one of each warp
constexpr int kPack = gpt2::ops::kPack<bf16>;             // values of the weight in one load
constexpr int kPacks = kWarp / kPack;                     // of a row, in a block's 32 columns
constexpr int kRowsOfWarp = kWarp / kPacks;               // of the weight, at once
constexpr unsigned kQueries = 0, kParts = 2;              // blockIdx.y: q, or k and v
constexpr int kQueryRowsAhead = 8, kWeightRowsAhead = 4;  // that a thread has under way: one round with d12, of q at B = 64 four

// Both functions below ask for all their rows of a round before they use one. Rows beyond the last are the last and count as zero: a branch
// around a load would make the next load wait for it.

// The sum of rows y, y + 32, … of a column.
__device__ double sum_of_rows(const float* column, int64_t rows, int64_t stride) {
  double sum = 0;
  for (int64_t row = threadIdx.y; row < rows; row += kQueryRowsAhead * kSums) {
    float x[kQueryRowsAhead];
#pragma unroll
    for (int i = 0; i < kQueryRowsAhead; ++i) x[i] = column[min(row + i * kSums, rows - 1) * stride];
#pragma unroll
    for (int i = 0; i < kQueryRowsAhead; ++i) sum += static_cast<double>(row + i * kSums < rows ? x[i] : 0);
  }
  return sum;
}

// Of a pack of the weight's columns: rows 8 y + x / 4 and every 256th behind it, each times its output's bias gradient, and then the sum of the
// 8 of a warp, in every lane.
__device__ Pack<kPack> sum_of_outputs(const bf16* columns, const float* behind_dbias, int64_t C) {
  constexpr int kApart = kSums * kRowsOfWarp;
  Pack<kPack> sum{};
  for (int64_t row = threadIdx.y * kRowsOfWarp + threadIdx.x / kPacks; row < C; row += kWeightRowsAhead * kApart) {
    Pack<kPack> w[kWeightRowsAhead];
    float factor[kWeightRowsAhead];
#pragma unroll
    for (int i = 0; i < kWeightRowsAhead; ++i) {
      const int64_t at = min(row + i * kApart, C - 1);
      w[i] = load<kPack>(columns + at * C);
      factor[i] = behind_dbias[at];
    }
#pragma unroll
    for (int i = 0; i < kWeightRowsAhead; ++i)
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum.v[k] = fmaf(row + i * kApart < C ? factor[i] : 0, w[i].v[k], sum.v[k]);
  }
#pragma unroll
  for (int k = 0; k < kPack; ++k)
#pragma unroll
    for (int lanes = kPacks; lanes < kWarp; lanes *= 2) sum.v[k] += __shfl_xor_sync(~0u, sum.v[k], lanes);
  return sum;
}

// Block (32, 32): 32 columns of a part, of which each warp leaves a sum, in double of q and in float of v; the 32 sums of a column are then
// added in double, in the order of the warps. The blocks of v write k too.
__global__ void softmax_bias_kernel(float* __restrict__ dbias, const float* __restrict__ query_sums, int64_t sum_rows, int64_t stride,
                                    const float* __restrict__ behind_dbias, const bf16* __restrict__ weight, int64_t C, bool accumulate) {
  gpt2::cuda::wait_for_kernels_before();
  __shared__ double sums[kSums][kWarp + 1];
  const int64_t first = blockIdx.x * static_cast<int64_t>(kWarp), c = first + threadIdx.x;
  const bool of_queries = blockIdx.y == kQueries;
  if (of_queries) {
    sums[threadIdx.y][threadIdx.x] = c < C ? sum_of_rows(query_sums + c, sum_rows, stride) : 0;
  } else {
    const int64_t column = first + threadIdx.x % kPacks * kPack;
    const Pack<kPack> sum = sum_of_outputs(weight + min(column, C - kPack), behind_dbias, C);
    if (threadIdx.x < kPacks)
#pragma unroll
      for (int k = 0; k < kPack; ++k) sums[threadIdx.y][threadIdx.x * kPack + k] = static_cast<double>(sum.v[k]);
  }
  __syncthreads();
  if (threadIdx.y != 0 || c >= C) return;
  double total = 0;
  for (int y = 0; y < kSums; ++y) total += sums[y][threadIdx.x];
  if (of_queries) {
    if (accumulate) total += static_cast<double>(dbias[c]);
    dbias[c] = static_cast<float>(total);
  } else {
    dbias[C + c] = 0;
    dbias[2 * C + c] = static_cast<float>(total);
  }
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------------

void softmax_bias_gradient(float* dbias, const float* query_sums, int64_t sum_rows, int64_t stride, const LinearBehind& behind, int64_t C,
                           bool accumulate, cudaStream_t stream) {
  if (!can_pack(C, behind.weight))
    throw stepscope::InputError("bias_gradient=softmax_identities: the weight behind attention must have rows of whole 16 bytes");
  const dim3 grid(grid_blocks(ceil_div<int64_t>(C, kWarp)), kParts);
  softmax_bias_kernel<<<grid, dim3(kWarp, kSums), 0, stream>>>(dbias, query_sums, sum_rows, stride, behind.dbias, behind.weight, C,
                                                               accumulate);
  STEPSCOPE_CHECK_LAUNCH();
}

bool softmax_bias_waits() {
  cudaFuncAttributes of{};
  STEPSCOPE_CUDA_CHECK(cudaFuncGetAttributes(&of, softmax_bias_kernel));
  return of.ptxVersion >= 90;
}

}  // namespace mixed
