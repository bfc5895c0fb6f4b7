#include "experiments/gate/op_judge.h"

#include <gtest/gtest.h>

#include <limits>

#include "experiments/gate/random.h"

namespace gate {
namespace {

std::vector<double> random_values(int64_t n) {
  Random random(4);
  std::vector<double> out(static_cast<size_t>(n));
  for (double& x : out) x = static_cast<double>(random.normal());
  return out;
}

TEST(OpJudge, AVariantMayLoseTwiceWhatTheBaselineLoses) {
  ErrorMetrics baseline;
  baseline.norm = 1e-5;
  baseline.worst_row = 1e-4;
  const Tolerance limit = op_limit(2e-6, &baseline);
  EXPECT_DOUBLE_EQ(limit.norm, 2e-5);
  EXPECT_DOUBLE_EQ(limit.row, 2e-4);
  EXPECT_DOUBLE_EQ(limit.column, 1.6e-5) << "the floor where the baseline is exact";
  EXPECT_DOUBLE_EQ(op_limit(2e-6, nullptr).norm, 2e-6);
}

TEST(OpJudge, ABrokenBaselineWidensNothing) {
  ErrorMetrics baseline;
  baseline.norm = baseline.worst_row = baseline.worst_column = std::numeric_limits<double>::quiet_NaN();
  EXPECT_DOUBLE_EQ(op_limit(2e-6, &baseline).norm, 2e-6);
}

TEST(OpJudge, OnlyMatrixProductsMayBeTf32) {
  EXPECT_EQ(op_floor("fp32", true), 2e-6);
  EXPECT_EQ(op_floor("tf32", false), 2e-6);
  EXPECT_EQ(op_floor("tf32", true), 1e-3);
}

TEST(OpJudge, TheLimitsInUseRejectEveryFake) {
  const auto want = random_values(64 * 32);
  EXPECT_TRUE(accepted_fakes(want, 64, 32, tolerance(2e-6)).empty());
  EXPECT_TRUE(accepted_fakes(want, 64, 32, tolerance(1e-3)).empty());
  EXPECT_TRUE(accepted_fakes({3.5}, 1, 1, tolerance(2e-6)).empty());
}

TEST(OpJudge, AVacuousLimitIsFoundOut) {
  const auto want = random_values(64 * 32);
  const Tolerance one_percent{0.02, 1, 1}, anything{10, 10, 10};
  EXPECT_EQ(accepted_fakes(want, 64, 32, one_percent), std::vector<std::string>{"1% noise"});
  EXPECT_EQ(accepted_fakes(want, 64, 32, anything),
            (std::vector<std::string>{"zeros", "shuffled", "1% noise"}));
}

}  // namespace
}  // namespace gate
