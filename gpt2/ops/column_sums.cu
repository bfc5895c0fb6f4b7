// Bias gradients and the second stage of every two-stage column sum.
#include "gpt2/ops/column_sums.cuh"

namespace gpt2::ops {
namespace {

constexpr int kRowLanes = 8;       // rows summed side by side in one block of slab_sums_kernel
constexpr int kPartialLanes = 32;  // partials summed side by side in one block of reduce_partials_kernel

// Block (32, 8): 32 packs of columns, one slab of rows (blockIdx.y). Thread (x, y) sums rows y, y + 8, … of the slab in a register;
// then the eight sums are added in the order of y.
template <int N, class S>
__global__ void slab_sums_kernel(float* __restrict__ partial, const S* __restrict__ dout, int64_t rows, int64_t columns,
                                 int64_t rows_per_slab) {
  cuda::wait_for_kernels_before();
  __shared__ float sums[kRowLanes][kWarp * N];
  const int64_t c = (blockIdx.x * static_cast<int64_t>(kWarp) + threadIdx.x) * N;
  const int64_t begin = blockIdx.y * rows_per_slab;
  const int64_t end = min(begin + rows_per_slab, rows);
  Pack<N> sum{};
  if (c < columns) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowLanes) {
      const Pack<N> x = load<N>(dout + row * columns + c);
#pragma unroll
      for (int k = 0; k < N; ++k) sum.v[k] += x.v[k];
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) sums[threadIdx.y][threadIdx.x * N + k] = sum.v[k];
  __syncthreads();
  if (threadIdx.y != 0 || c >= columns) return;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    float total = 0;
    for (int y = 0; y < kRowLanes; ++y) total += sums[y][threadIdx.x * N + k];
    partial[blockIdx.y * columns + c + k] = total;
  }
}

// Block (32, 32): 32 columns; thread (x, y) sums partials y, y + 32, … in double, then the 32 sums are added in the order of y.
__global__ void reduce_partials_kernel(float* __restrict__ out, const float* __restrict__ partial, int64_t partials, int64_t columns,
                                       int64_t stride, bool accumulate) {
  cuda::wait_for_kernels_before();
  __shared__ double sums[kPartialLanes][kWarp + 1];
  const int64_t c = blockIdx.x * static_cast<int64_t>(kWarp) + threadIdx.x;
  double sum = 0;
  if (c < columns) {
#pragma unroll 4
    for (int64_t i = threadIdx.y; i < partials; i += kPartialLanes) sum += static_cast<double>(partial[i * stride + c]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= columns) return;
  double total = 0;
  for (int y = 0; y < kPartialLanes; ++y) total += sums[y][threadIdx.x];
  if (accumulate) total += static_cast<double>(out[c]);
  out[c] = static_cast<float>(total);
}

// ---------------------------------------------------------------------------------------------------------------------

template <int N, class S>
void launch_slab_sums(float* partial, const S* dout, int64_t rows, int64_t columns, int64_t slabs, cudaStream_t stream) {
  const dim3 grid(grid_blocks(ceil_div<int64_t>(columns, kWarp * N)), static_cast<unsigned>(slabs));
  slab_sums_kernel<N><<<grid, dim3(kWarp, kRowLanes), 0, stream>>>(partial, dout, rows, columns, ceil_div<int64_t>(rows, slabs));
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace

template <class S>
int64_t slab_count(int64_t rows, int64_t columns) {
  const int64_t column_blocks = ceil_div<int64_t>(columns, kWarp * kPack<S>);
  const int64_t wanted = ceil_div<int64_t>(1024, column_blocks);
  const int64_t most = ceil_div<int64_t>(rows, 32);
  return wanted < most ? wanted : most;
}

void reduce_partials(float* out, const float* partial, int64_t partials, int64_t columns, int64_t stride, bool accumulate,
                     cudaStream_t stream) {
  reduce_partials_kernel<<<grid_blocks(ceil_div<int64_t>(columns, kWarp)), dim3(kWarp, kPartialLanes), 0, stream>>>(
      out, partial, partials, columns, stride, accumulate);
  STEPSCOPE_CHECK_LAUNCH();
}

template <class S>
void bias_gradient(float* dbias, const S* dout, int64_t rows, int64_t columns, bool accumulate, float* scratch, cudaStream_t stream) {
  const int64_t slabs = slab_count<S>(rows, columns);
  if (can_pack<S>(columns, dout))
    launch_slab_sums<kPack<S>>(scratch, dout, rows, columns, slabs, stream);
  else
    launch_slab_sums<1>(scratch, dout, rows, columns, slabs, stream);
  reduce_partials(dbias, scratch, slabs, columns, columns, accumulate, stream);
}

template <class S>
int64_t bias_gradient_scratch_floats(int64_t rows, int64_t columns) {
  return slab_count<S>(rows, columns) * columns;
}

template int64_t slab_count<float>(int64_t, int64_t);
template int64_t slab_count<bf16>(int64_t, int64_t);
template void bias_gradient<float>(float*, const float*, int64_t, int64_t, bool, float*, cudaStream_t);
template void bias_gradient<bf16>(float*, const bf16*, int64_t, int64_t, bool, float*, cudaStream_t);
template int64_t bias_gradient_scratch_floats<float>(int64_t, int64_t);
template int64_t bias_gradient_scratch_floats<bf16>(int64_t, int64_t);

}  // namespace gpt2::ops
