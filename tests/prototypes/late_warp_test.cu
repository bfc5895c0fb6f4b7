// Only their pace sets a multiplier's four warps apart, so a race between them shows in about one of a hundred runs, and only where several
// processes share the GPU. Here one warp is late on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpt2/cuda/device_buffer.h"
#include "mixed/hopper/launch.cuh"
#include "tests/prototypes/hopper_here.h"

namespace hopper {
namespace {

constexpr int kWidth = 192;

// out = what waits in shared memory of its column: the number of the column's tile. Warp 3 takes 2 us for each eight results.
struct LateWarp : TailBase {
  static constexpr bool kPerColumn = true;
  using Column = float2;
  __device__ __forceinline__ float of_column(int c, const Shape&) const { return static_cast<float>(c / kWidth); }
  __device__ __forceinline__ Column column(int, const float* kept) const { return *reinterpret_cast<const float2*>(kept); }
  __device__ __forceinline__ void eight(const Row (&)[2], const Column (&of)[2], const float (&x)[8], const uint32_t (&)[4], float (&y)[8],
                                        float (&)[8]) const {
    if (threadIdx.x % 128 / 32 == 3) __nanosleep(2000);
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = 0 * x[i] + (i % 2 == 0 ? of[i / 4].x : of[i / 4].y);
  }
};

// 512 tiles: every CTA of a GPU with 132 SMs takes three or four, and those that one multiplier takes are of different columns.
TEST(HopperProduct, WhatAWarpReadsOfItsTilesColumnsStaysThereUntilItHasReadIt) {
  if (const auto why = why_no_hopper()) GTEST_SKIP() << *why;
  constexpr int kRows = 1024, kColumns = kWidth * 64, kDepth = 64;
  const gpt2::cuda::DeviceBuffer<bf16> a(kRows * kDepth), b(kColumns * kDepth), out(int64_t{kRows} * kColumns);
  STEPSCOPE_CUDA_CHECK(cudaMemset(a.data(), 0, static_cast<size_t>(a.bytes())));
  STEPSCOPE_CUDA_CHECK(cudaMemset(b.data(), 0, static_cast<size_t>(b.bytes())));
  Problem p{.m = kRows, .n = kColumns, .k = kDepth, .a = a.data(), .b = b.data()};
  p.out = out.data();
  prepare<kWidth, false, false>(p, Plan{}, LateWarp{})(nullptr);
  std::vector<bf16> got(static_cast<size_t>(out.size()));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(got.data(), out.data(), static_cast<size_t>(out.bytes()), cudaMemcpyDeviceToHost));
  int64_t wrong = 0;
  for (int64_t i = 0; i < out.size(); ++i)
    wrong += __bfloat162float(got[static_cast<size_t>(i)]) != static_cast<float>(i % kColumns / kWidth);
  EXPECT_EQ(wrong, 0) << "of " << out.size();
}

}  // namespace
}  // namespace hopper
