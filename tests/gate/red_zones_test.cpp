#include "experiments/gate/red_zones.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"

namespace gate {
namespace {

using Bytes = gpt2::cuda::DeviceBuffer<unsigned char>;

class RedZones : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
    watch_memory(true);
    (void)bytes_beyond_memory();
  }
  void TearDown() override { watch_memory(false); }
  static void write(const Bytes& to, int64_t from, int64_t count) {
    STEPSCOPE_CUDA_CHECK(cudaMemset(to.data() + from, 1, static_cast<size_t>(count)));
  }
};

TEST_F(RedZones, WhatIsWrittenInsideIsNobodysConcern) {
  const Bytes a(1001), b(4096);
  write(a, 0, a.size());
  write(b, 0, b.size());
  EXPECT_EQ(bytes_beyond_memory(), 0);
}

TEST_F(RedZones, BytesBehindABufferAreCountedOnce) {
  const Bytes a(1001);
  write(a, 1000, 4);
  EXPECT_EQ(bytes_beyond_memory(), 3);
  EXPECT_EQ(bytes_beyond_memory(), 0);
}

TEST_F(RedZones, ABufferThatIsGoneIsRemembered) {
  {
    const Bytes a(64);
    write(a, 64, 7);
  }
  EXPECT_EQ(bytes_beyond_memory(), 7);
}

TEST_F(RedZones, FreshMemoryIsNoNumber) {
  const gpt2::cuda::DeviceBuffer<float> a(3);
  std::array<float, 3> there{};
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(there.data(), a.data(), sizeof there, cudaMemcpyDeviceToHost));
  for (const float x : there) EXPECT_TRUE(std::isnan(x));
}

TEST_F(RedZones, MemoryThatWasThereBeforeHasNone) {
  watch_memory(false);
  const Bytes a(64);
  watch_memory(true);
  write(a, 0, 64);
  EXPECT_EQ(bytes_beyond_memory(), 0);
}

}  // namespace
}  // namespace gate
