// Chapter 3: tiles of 32 x 32 in shared memory, a thread per result. Let each thread make four results of a column.
#include <cstdint>

namespace {

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

}  // namespace

// inp: (rows, in); weight: (out_columns, in); out: (rows, out_columns); bias: (out_columns) or null.
extern "C" void linear_forward(float* out, const float* inp, const float* weight, const float* bias, int64_t rows, int64_t in,
                               int64_t out_columns, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((out_columns + kTile - 1) / kTile), static_cast<unsigned>((rows + kTile - 1) / kTile));
  shared_tiles<<<grid, dim3(kTile, kTile), 0, stream>>>(out, inp, weight, bias, rows, in, out_columns);
}
