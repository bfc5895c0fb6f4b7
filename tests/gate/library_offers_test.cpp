#include "experiments/gate/library_offers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "gpt2/cuda/cublaslt.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"

namespace gate {
namespace {

// A product of bf16 numbers with a long sum.
class LibraryOffers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
    handle_.emplace();
    STEPSCOPE_CUDA_CHECK(cublasLtMatmulDescCreate(&product_.handle, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    gpt2::cuda::lt::create(a_, CUDA_R_16BF, 256, 4096, 256, 1, 0);
    gpt2::cuda::lt::create(b_, CUDA_R_16BF, 4096, 256, 4096, 1, 0);
    gpt2::cuda::lt::create(c_, CUDA_R_16BF, 256, 256, 256, 1, 0);
    STEPSCOPE_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&preference_.handle));
    gpt2::cuda::lt::set(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{1} << 25);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> offers() {
    std::vector<cublasLtMatmulHeuristicResult_t> results(16);
    int found = 0;
    STEPSCOPE_CUDA_CHECK(cublasLtMatmulAlgoGetHeuristic(handle_->get(), product_.handle, a_.handle, b_.handle, c_.handle, c_.handle,
                                                        preference_.handle, static_cast<int>(results.size()), results.data(), &found));
    results.resize(static_cast<size_t>(found));
    return results;
  }
  static bool same(const cublasLtMatmulHeuristicResult_t& a, const cublasLtMatmulHeuristicResult_t& b) {
    return std::memcmp(&a.algo, &b.algo, sizeof a.algo) == 0;
  }

 private:
  std::optional<gpt2::cuda::CublasLtHandle> handle_;
  gpt2::cuda::lt::Description product_;
  gpt2::cuda::lt::Layout a_, b_, c_;
  gpt2::cuda::lt::Preference preference_;
};

TEST_F(LibraryOffers, OneOfThemComesAloneAndTheCountBeginsAgain) {
  const auto all = offers();
  const int count = static_cast<int>(all.size());
  ASSERT_GE(count, 2);
  for (const int number : {0, 1, count - 1, count, count + 1}) {
    const OneOffer one(number);
    EXPECT_EQ(one.most(), 0) << "nobody has asked";
    const auto alone = offers();
    ASSERT_EQ(alone.size(), 1u);
    EXPECT_TRUE(same(alone[0], all[static_cast<size_t>(number % count)])) << number;
    EXPECT_EQ(one.most(), count);
  }
}

TEST_F(LibraryOffers, AllComeWhereNobodyAskedForOne) {
  const auto all = offers();
  { const OneOffer one(1); }
  EXPECT_EQ(offers().size(), all.size());
}

}  // namespace
}  // namespace gate
