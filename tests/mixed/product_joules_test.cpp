// Joules of products on a device: twice the work takes twice the joules, long launches and short ones; and a choice by joules is measured once.
#include "mixed/product_joules.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "base/read_file.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"
#include "mixed/kernels/fill.cuh"
#include "mixed/matmul.h"
#include "tests/temporary_folder.h"

namespace mixed {
namespace {

class ProductJoules : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
    if (const auto why = why_no_energy_counter()) GTEST_SKIP() << *why;
    stream_.emplace();
    a_ = gpt2::cuda::DeviceBuffer<bf16>(kSide * kSide);
    b_ = gpt2::cuda::DeviceBuffer<bf16>(kSide * kSide);
    c_ = gpt2::cuda::DeviceBuffer<bf16>(kSide * kSide);
    workspace_ = gpt2::cuda::DeviceBuffer<unsigned char>(kMatmulWorkspaceBytes);
    fill_uniform(a_.data(), a_.size(), 1.0f, stream_->get());
    fill_uniform(b_.data(), b_.size(), 1.0f, stream_->get());
    folder_ = fresh_test_folder();
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  Gemm product(int64_t m, int64_t n, int64_t k) const {
    return {.transpose_b = true, .m = m, .n = n, .k = k, .a = a_.data(), .lda = k, .b = b_.data(), .ldb = k, .c = c_.data(), .ldc = n};
  }
  // Joules a launch of m x n x k and of m x n x 2k.
  void expect_twice_the_joules(int64_t m, int64_t n, int64_t k, double tolerance) {
    MatmulEngine engine(MatmulAlgorithm::heuristic, workspace_.data(), {});
    const Gemm products[] = {product(m, n, k), product(m, n, 2 * k)};
    std::vector<double> times_us;
    for (const Gemm& g : products) {
      engine.run(g, stream_->get());  // planned and loaded outside of any capture
      times_us.push_back(2.0 * static_cast<double>(g.m * g.n) * static_cast<double>(g.k) / 600e6);
    }
    const size_t order[] = {0, 1};
    const auto joules = weigh_algorithms(order, times_us, stream_->get(), [&](size_t i) { engine.run(products[i], stream_->get()); });
    ASSERT_EQ(joules.size(), 2u);
    ASSERT_EQ(joules[0].size(), 2u);
    ASSERT_EQ(joules[1].size(), 1u);
    EXPECT_NEAR(joules[1][0] / joules[0][0], 2, tolerance);
    EXPECT_NEAR(joules[0][1] / joules[0][0], 1, 0.05);
    // A FLOP takes some 0.8 pJ on an H200 (docs/energy.md); a slip in the number of launches would be a factor.
    const double pj = joules[1][0] / (2.0 * static_cast<double>(m * n) * static_cast<double>(2 * k)) * 1e12;
    EXPECT_GT(pj, 0.1);
    EXPECT_LT(pj, 20);
  }

  static constexpr int64_t kSide = 8192;
  std::optional<gpt2::cuda::Stream> stream_;  // which cannot be made without a device
  gpt2::cuda::DeviceBuffer<bf16> a_, b_, c_;
  gpt2::cuda::DeviceBuffer<unsigned char> workspace_;
  std::filesystem::path folder_;
};

TEST_F(ProductJoules, OfTwiceTheWorkAreTwice) { expect_twice_the_joules(8192, 8192, 4096, 0.3); }

// Launched as a graph, because the host would not keep up.
TEST_F(ProductJoules, OfTwiceTheWorkAreTwiceWhereLaunchesAreShort) { expect_twice_the_joules(4096, 768, 1536, 0.5); }

TEST_F(ProductJoules, AreMeasuredOnceAndRemembered) {
  const auto file = folder_ / "matmul.json";
  const auto seconds_of_rehearsal = [&] {
    MatmulEngine engine(MatmulAlgorithm::fewest_joules, workspace_.data(), file);
    const auto begin = std::chrono::steady_clock::now();
    engine.begin_rehearsal();
    engine.run(product(4096, 3072, 768), stream_->get());
    engine.end_rehearsal();
    stream_->synchronize();
    EXPECT_FALSE(engine.why_by_time());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  (void)seconds_of_rehearsal();
  const std::string once = stepscope::read_file(file.string());
  EXPECT_NE(once.find(" rule fewest_joules"), std::string::npos) << once;
  EXPECT_LT(seconds_of_rehearsal(), 1);
  EXPECT_EQ(stepscope::read_file(file.string()), once);
}

}  // namespace
}  // namespace mixed
