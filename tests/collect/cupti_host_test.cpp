// The catalogue against CUPTI's real host API, which knows every chip without having one.
#include "profiler/collect/cupti_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace profiler::collect {
namespace {

using ::testing::Contains;
using ::testing::Not;

class CuptiHost : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      chips_ = host_chips();
    } catch (const std::exception& e) {
      GTEST_SKIP() << "libnvperf_host is not there: " << e.what();
    }
  }
  static MetricChoice choice(const std::string& chip, std::string_view set) { return choose_metrics(metric_set(set), host_queries(chip)); }
  std::vector<std::string> chips_;
};

TEST_F(CuptiHost, Gh100TakesTheWholeBf16SetInOnePass) {
  const auto c = choice("GH100", "bf16");
  EXPECT_EQ(c.metrics.size(), 24u);
  EXPECT_TRUE(c.left_out.empty()) << c.left_out[0].first;
  EXPECT_NO_THROW(MetricConfig("GH100", c.metrics));
}

TEST_F(CuptiHost, Gh100TakesTheWholeTf32SetInOnePass) {
  const auto c = choice("GH100", "tf32");
  EXPECT_EQ(c.metrics.size(), 24u);
  EXPECT_TRUE(c.left_out.empty());
  EXPECT_THAT(c.metrics, Contains("sm__ops_path_tensor_op_hgmma_src_tf32_dst_fp32.sum"));
}

TEST_F(CuptiHost, BothTensorOperationCountersDoNotFitTogether) {
  auto both = metric_set("bf16");
  both.push_back({"tf32_ops", {"sm__ops_path_tensor_op_hgmma_src_tf32_dst_fp32.sum"}});
  const auto c = choose_metrics(both, host_queries("GH100"));
  EXPECT_EQ(c.metrics.size(), 24u);
  ASSERT_EQ(c.left_out.size(), 1u);
  EXPECT_EQ(c.left_out[0].first, "sm__ops_path_tensor_op_hgmma_src_tf32_dst_fp32.sum");
}

TEST_F(CuptiHost, PortableSetFitsOnePassOnEveryDataCentreChipSinceAmpere) {
  for (const std::string chip : {"GA100", "GA102", "AD102", "GH100", "GB100"}) {
    if (std::find(chips_.begin(), chips_.end(), chip) == chips_.end()) continue;
    const auto c = choice(chip, "portable");
    EXPECT_EQ(c.metrics.size(), 15u) << chip;
    EXPECT_TRUE(c.left_out.empty()) << chip;
  }
}

TEST_F(CuptiHost, RenamedDramCountersAreFound) {
  ASSERT_THAT(chips_, Contains("GB202"));
  const auto c = choice("GB202", "portable");
  EXPECT_THAT(c.metrics, Contains("dram__bytes_op_read.sum"));
  EXPECT_THAT(c.metrics, Not(Contains("dram__bytes_read.sum")));
}

TEST_F(CuptiHost, AnOlderChipGetsASubsetOfOnePassAndTheRestIsNamed) {
  const auto c = choice("GA100", "bf16");
  EXPECT_THAT(c.metrics, Contains("dram__bytes_read.sum"));
  EXPECT_GE(c.metrics.size(), 15u);
  EXPECT_FALSE(c.left_out.empty());
  EXPECT_EQ(c.metrics.size() + c.left_out.size(), 24u);
  EXPECT_NO_THROW(MetricConfig("GA100", c.metrics));
}

TEST_F(CuptiHost, EveryChoiceOnEveryChipIsOnePass) {
  size_t chosen = 0;
  for (const auto& chip : chips_) {
    const auto queries = host_queries(chip);
    try {
      queries.exists("gpu__time_duration.sum");
    } catch (const std::exception&) {
      continue;  // listed, but CUPTI has no profiler for it (GV11B)
    }
    const auto c = choose_metrics(metric_set("bf16"), queries);
    ASSERT_FALSE(c.metrics.empty()) << chip;
    EXPECT_EQ(queries.passes(c.metrics), 1u) << chip;
    ++chosen;
  }
  EXPECT_GE(chosen, 20u);
}

TEST_F(CuptiHost, MoreThanOnePassIsRefused) {
  EXPECT_THROW(MetricConfig("GH100", {"lts__t_sector_hit_rate.pct", "gpu__time_duration.sum"}), std::runtime_error);
}

TEST_F(CuptiHost, UnknownMetricAndChipAreNoAnswer) {
  const auto q = host_queries("GH100");
  EXPECT_FALSE(q.exists("sm__cycles_of_nothing.sum"));
  EXPECT_TRUE(q.exists("sm__cycles_active.avg"));
  EXPECT_FALSE(q.passes({"sm__cycles_of_nothing.sum"}));
  EXPECT_EQ(q.passes({"sm__cycles_active.avg"}), 1u);  // the failure before has not spoiled anything
  EXPECT_THROW(host_queries("H200").exists("sm__cycles_active.avg"), std::runtime_error);
}

}  // namespace
}  // namespace profiler::collect
