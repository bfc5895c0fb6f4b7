// Every algorithm that a search may take for a product computes that product.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <optional>
#include <vector>

#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"
#include "mixed/kernels/fill.cuh"
#include "mixed/matmul.h"
#include "mixed/product_tiles.h"

namespace mixed {
namespace {

class ProductCandidates : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
    if (const auto why = why_no_tiles(gpt2::cuda::device_info().compute_capability_major)) GTEST_SKIP() << *why;
    stream_.emplace();
    workspace_ = gpt2::cuda::DeviceBuffer<unsigned char>(kMatmulWorkspaceBytes);
  }
  // Rows of C that follow the last result show a kernel that writes behind its tile.
  void compute(MatmulEngine& engine, Gemm g, std::vector<bf16>& out) {
    constexpr int64_t kBehind = 4096;
    // Both operands are one function of the place, so b begins elsewhere in it: else b's first rows would be a's.
    constexpr int64_t kElsewhere = 37 * 128;
    const int64_t values = g.m * g.n + kBehind;
    if (static_cast<int64_t>(a_.size()) != g.m * g.k) {
      a_ = gpt2::cuda::DeviceBuffer<bf16>(g.m * g.k);
      b_ = gpt2::cuda::DeviceBuffer<bf16>(g.n * g.k + kElsewhere);
      c_ = gpt2::cuda::DeviceBuffer<bf16>(values);
      fill_uniform(a_.data(), a_.size(), 1.0f, stream_->get());
      fill_uniform(b_.data(), b_.size(), 1.0f, stream_->get());
    }
    STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(c_.data(), 0xff, static_cast<size_t>(values) * sizeof(bf16), stream_->get()));
    g.a = a_.data(), g.b = b_.data() + kElsewhere, g.c = c_.data();
    engine.run(g, stream_->get());
    out.resize(static_cast<size_t>(values));
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(out.data(), c_.data(), out.size() * sizeof(bf16), cudaMemcpyDeviceToHost, stream_->get()));
    stream_->synchronize();
  }

  std::optional<gpt2::cuda::Stream> stream_;
  gpt2::cuda::DeviceBuffer<bf16> a_, b_, c_;
  gpt2::cuda::DeviceBuffer<unsigned char> workspace_;
};

// A weight gradient, some of whose candidates split the sum, and a forward product. No tile's sides divide those of a result.
TEST_F(ProductCandidates, AllComputeTheSameProductAndNothingBehindIt) {
  const Gemm weight_gradient{.transpose_a = true, .m = 776, .n = 752, .k = 8192, .lda = 776, .ldb = 752, .ldc = 752};
  const Gemm forward{.transpose_b = true, .m = 1034, .n = 2296, .k = 768, .lda = 768, .ldb = 768, .ldc = 2296};
  const auto named = tiles_that_fit(weight_gradient.n, weight_gradient.m, weight_gradient.k, gpt2::cuda::device_info().sm_count);
  EXPECT_TRUE(std::ranges::any_of(named, [](const ProductTile& t) { return t.parts > 1; }));
  for (const Gemm& g : {weight_gradient, forward}) {
    std::vector<bf16> first, other;
    MatmulEngine offers(MatmulAlgorithm::search, workspace_.data(), {});
    offers.take_candidate(0);
    compute(offers, g, first);
    const size_t offered = offers.most_candidates().all;
    size_t all = 1, launched = 0;
    for (size_t number = 0; number < all; ++number) {
      MatmulEngine engine(MatmulAlgorithm::fitting_tiles, workspace_.data(), {});
      engine.take_candidate(number);
      try {
        compute(engine, g, other);
      } catch (const std::exception&) {  // a kernel that the library has not compiled, which a search leaves out
        if (cudaDeviceSynchronize() != cudaSuccess) throw;
        all = engine.most_candidates().all;
        continue;
      }
      all = engine.most_candidates().all;
      EXPECT_EQ(engine.most_candidates().offered, offered);
      ++launched;
      int64_t wrong = 0;
      for (size_t i = 0; i < first.size(); ++i) {
        const float x = first[i], y = other[i];
        if (i >= static_cast<size_t>(g.m * g.n) ? !std::isnan(y) : !(std::abs(x - y) <= 0.01f * std::abs(x) + 0.3f)) ++wrong;
      }
      EXPECT_EQ(wrong, 0) << "candidate " << number << " of " << all << ", " << g.m << " x " << g.n;
    }
    EXPECT_GT(all, offered + 16);
    EXPECT_GT(launched, offered + 16);
  }
}

TEST_F(ProductCandidates, OfSmallProductsAreTheOffers) {
  size_t of_rule[2] = {};
  for (const MatmulAlgorithm rule : {MatmulAlgorithm::search, MatmulAlgorithm::fitting_tiles}) {
    MatmulEngine engine(rule, workspace_.data(), {});
    engine.take_candidate(0);
    std::vector<bf16> out;
    compute(engine, {.transpose_b = true, .m = 256, .n = 768, .k = 768, .lda = 768, .ldb = 768, .ldc = 768}, out);
    of_rule[rule == MatmulAlgorithm::fitting_tiles ? 1 : 0] = engine.most_candidates().all;
  }
  EXPECT_GT(of_rule[0], 0u);
  EXPECT_EQ(of_rule[0], of_rule[1]);
}

}  // namespace
}  // namespace mixed
