// How many cycles a multiprocessor takes for a product of 64 x 64 x 16 (wgmma), with its left operand in registers or in shared memory, with
// 1 to 4 warpgroups: the tensor cores alone would take 32.
#include "experiments/prototypes/hopper_attention/rate.h"

#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/launch.cuh"
#include "mixed/hopper/attention.cuh"

namespace rate {
namespace {

constexpr int kTurns = 256;

template <bool kRegisters, bool kAcross>
__global__ __launch_bounds__(512, 1) void rate_kernel(int64_t* cycles, float* sink) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t tile = hopper::shared_address(shared) + threadIdx.x / 128 % 4 * (2 * hopper::kBytesTile);
  float a[32] = {}, b[32] = {};
  hopper::Fragments left = {};
  __syncthreads();
  const int64_t begin = clock64();
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    hopper::wgmma_begin();
    if constexpr (!kRegisters) {
      hopper::row_products(a, tile, tile + hopper::kBytesTile);
      hopper::row_products(b, tile, tile);
    } else if constexpr (kAcross) {
      hopper::add_weighted_rows(a, left, tile);
      hopper::add_weighted_rows(b, left, tile + hopper::kBytesTile);
    } else {
      hopper::row_products(a, left, tile);
      hopper::row_products(b, left, tile + hopper::kBytesTile);
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<0>();
    hopper::settle(a);
    hopper::settle(b);
  }
  __syncthreads();
  if (threadIdx.x == 0) cycles[blockIdx.x] = clock64() - begin;
  float sum = 0;
  for (int i = 0; i < 32; ++i) sum += a[i] + b[i];
  if (sum == 1.25f) *sink = sum;
}

template <bool kRegisters, bool kAcross>
double cycles(int warpgroups) {
  gpt2::cuda::DeviceBuffer<int64_t> count(132);
  gpt2::cuda::DeviceBuffer<float> sink(1);
  constexpr int kBytes = 8 * hopper::kBytesTile;
  STEPSCOPE_CUDA_CHECK(cudaFuncSetAttribute(rate_kernel<kRegisters, kAcross>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  for (int i = 0; i < 2; ++i)
    rate_kernel<kRegisters, kAcross><<<132, static_cast<unsigned>(warpgroups * 128), kBytes>>>(count.data(), sink.data());
  STEPSCOPE_CHECK_LAUNCH();
  int64_t of_one = 0;
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(&of_one, count.data(), sizeof(of_one), cudaMemcpyDeviceToHost));
  return static_cast<double>(of_one) / (kTurns * 8.0 * warpgroups);
}

}  // namespace

double cycles_of_product(Left left, int warpgroups) {
  switch (left) {
    case Left::shared:
      return cycles<false, false>(warpgroups);
    case Left::registers:
      return cycles<true, false>(warpgroups);
    case Left::registers_across:
      return cycles<true, true>(warpgroups);
  }
  return 0;
}

}  // namespace rate
