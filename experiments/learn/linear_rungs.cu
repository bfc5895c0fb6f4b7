#include "experiments/learn/rungs.h"

namespace learn {
namespace {

unsigned tiles(int64_t n, int64_t per_tile) { return static_cast<unsigned>((n + per_tile - 1) / per_tile); }

// Neighbouring threads own neighbouring rows: their reads of inp and their writes lie a whole row apart.
__global__ void scattered(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in,
                          int64_t out_columns) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x, column = static_cast<int64_t>(blockIdx.y) * 8 + threadIdx.y;
  if (row >= rows || column >= out_columns) return;
  float sum = 0;
  for (int64_t k = 0; k < in; ++k) sum += inp[row * in + k] * weight[column * in + k];
  out[row * out_columns + column] = sum + (bias ? bias[column] : 0.0f);
}

// Neighbouring threads own neighbouring columns: writes are coalesced and inp is one address for a warp. Weight is (out, in), so its
// reads still lie a row apart.
__global__ void coalesced(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in,
                          int64_t out_columns) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x, row = static_cast<int64_t>(blockIdx.y) * 8 + threadIdx.y;
  if (row >= rows || column >= out_columns) return;
  float sum = 0;
  for (int64_t k = 0; k < in; ++k) sum += inp[row * in + k] * weight[column * in + k];
  out[row * out_columns + column] = sum + (bias ? bias[column] : 0.0f);
}

constexpr int kTile = 32;

// A block reads tiles of 32 x 32 of both operands once and uses each number 32 times. The column of padding keeps a warp that reads down
// a column of the tile out of one bank.
__global__ void shared_tiles(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in,
                             int64_t out_columns) {
  __shared__ float a[kTile][kTile + 1], b[kTile][kTile + 1];
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kTile + threadIdx.y,
                column = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.x;
  const int64_t b_row = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.y;
  float sum = 0;
  for (int64_t k = 0; k < in; k += kTile) {
    const bool inside = k + threadIdx.x < in;
    a[threadIdx.y][threadIdx.x] = inside && row < rows ? inp[row * in + k + threadIdx.x] : 0.0f;
    b[threadIdx.y][threadIdx.x] = inside && b_row < out_columns ? weight[b_row * in + k + threadIdx.x] : 0.0f;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += a[threadIdx.y][i] * b[threadIdx.x][i];
    __syncthreads();
  }
  if (row < rows && column < out_columns) out[row * out_columns + column] = sum + (bias ? bias[column] : 0.0f);
}

constexpr int kBlock = 128, kDepth = 8, kOwn = 8;

// A block makes 128 x 128 results, a thread 8 x 8 of them: 16 numbers from shared memory feed 64 multiplications.
__global__ void __launch_bounds__(256)
    register_tiles(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in, int64_t out_columns) {
  __shared__ float a[kDepth][kBlock + 4], b[kDepth][kBlock + 4];
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kBlock, column0 = static_cast<int64_t>(blockIdx.x) * kBlock;
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  float sums[kOwn][kOwn] = {};
  for (int64_t k = 0; k < in; k += kDepth) {
    for (int i = threadIdx.x; i < kBlock * kDepth; i += 256) {
      const int r = i / kDepth, d = i % kDepth;
      a[d][r] = k + d < in && row0 + r < rows ? inp[(row0 + r) * in + k + d] : 0.0f;
      b[d][r] = k + d < in && column0 + r < out_columns ? weight[(column0 + r) * in + k + d] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float x[kOwn], y[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) x[i] = a[d][ty * kOwn + i], y[i] = b[d][tx + i * 16];
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int j = 0; j < kOwn; ++j) sums[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int64_t row = row0 + ty * kOwn + i, column = column0 + tx + j * 16;
      if (row < rows && column < out_columns) out[row * out_columns + column] = sums[i][j] + (bias ? bias[column] : 0.0f);
    }
}

}  // namespace

void linear_scattered(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in, int64_t out_columns,
                      cudaStream_t stream) {
  scattered<<<dim3(tiles(rows, 32), tiles(out_columns, 8)), dim3(32, 8), 0, stream>>>(out, inp, weight, bias, rows, in, out_columns);
}
void linear_coalesced(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in, int64_t out_columns,
                      cudaStream_t stream) {
  coalesced<<<dim3(tiles(out_columns, 32), tiles(rows, 8)), dim3(32, 8), 0, stream>>>(out, inp, weight, bias, rows, in, out_columns);
}
void linear_shared_tiles(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in,
                         int64_t out_columns, cudaStream_t stream) {
  shared_tiles<<<dim3(tiles(out_columns, kTile), tiles(rows, kTile)), dim3(kTile, kTile), 0, stream>>>(out, inp, weight, bias, rows, in,
                                                                                                       out_columns);
}
void linear_register_tiles(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in,
                           int64_t out_columns, cudaStream_t stream) {
  register_tiles<<<dim3(tiles(out_columns, kBlock), tiles(rows, kBlock)), 256, 0, stream>>>(out, inp, weight, bias, rows, in, out_columns);
}

}  // namespace learn
