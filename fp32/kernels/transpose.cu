// One block takes a tile of 64 x 64 floats: 256 threads read it by rows into shared memory, write it by columns, and add up its columns,
// four threads a column.
#include "fp32/kernels/transpose.cuh"

#include "gpt2/ops/storage.cuh"

namespace fp32 {
namespace {

using gpt2::ops::ceil_div;
using gpt2::ops::load;
using gpt2::ops::Pack;
using gpt2::ops::store;

constexpr int kSide = 64;
constexpr int kThreads = 256;
constexpr int kSumLanes = kThreads / kSide;  // threads that add up one column

// kN: floats moved at a time, 4 where all addresses are multiples of 16 bytes. A row of the tile in shared memory is one float longer than
// it must be, so the floats of a column lie in banks of their own.
template <int kN>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(float* __restrict__ out, float* __restrict__ partial, const float* __restrict__ in, int64_t rows, int64_t columns,
                     int64_t tiles_across) {
  __shared__ float tile[kSide][kSide + 1];
  __shared__ float sums[kSumLanes][kSide];
  constexpr int kPacks = kSide / kN;  // of a row
  const int64_t row0 = blockIdx.x / tiles_across * kSide;
  const int64_t column0 = blockIdx.x % tiles_across * kSide;
#pragma unroll
  for (int i = threadIdx.x; i < kSide * kPacks; i += kThreads) {
    const int r = i / kPacks;
    const int c = i % kPacks * kN;
    Pack<kN> x{};
    if (row0 + r < rows && column0 + c < columns) x = load<kN>(in + (row0 + r) * columns + column0 + c);
#pragma unroll
    for (int e = 0; e < kN; ++e) tile[r][c + e] = x.v[e];
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < kSide * kPacks; i += kThreads) {
    const int c = i / kPacks;
    const int r = i % kPacks * kN;
    if (row0 + r >= rows || column0 + c >= columns) continue;
    Pack<kN> x;
#pragma unroll
    for (int e = 0; e < kN; ++e) x.v[e] = tile[r + e][c];
    store(out + (column0 + c) * rows + row0 + r, x);
  }
  if (partial == nullptr) return;
  const int column = threadIdx.x % kSide;
  const int lane = threadIdx.x / kSide;
  float sum = 0;
#pragma unroll
  for (int r = 0; r < kSide / kSumLanes; ++r) sum += tile[lane * (kSide / kSumLanes) + r][column];
  sums[lane][column] = sum;
  __syncthreads();
  if (lane != 0 || column0 + column >= columns) return;
  float total = 0;
#pragma unroll
  for (int l = 0; l < kSumLanes; ++l) total += sums[l][column];
  partial[row0 / kSide * columns + column0 + column] = total;
}

}  // namespace

int64_t transpose_partials(int64_t rows) { return ceil_div<int64_t>(rows, kSide); }

void transpose(float* out, float* partial, const float* in, int64_t rows, int64_t columns, cudaStream_t stream) {
  const int64_t across = ceil_div<int64_t>(columns, kSide);
  const unsigned blocks = gpt2::ops::grid_blocks(transpose_partials(rows) * across);
  if (rows % 4 == 0 && gpt2::ops::can_pack<float>(columns, out, in))
    transpose_kernel<4><<<blocks, kThreads, 0, stream>>>(out, partial, in, rows, columns, across);
  else
    transpose_kernel<1><<<blocks, kThreads, 0, stream>>>(out, partial, in, rows, columns, across);
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace fp32
