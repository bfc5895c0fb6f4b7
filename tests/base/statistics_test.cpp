#include "base/statistics.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

namespace stepscope {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 1);
  return v;
}

TEST(Statistics, TheMedianOfAnEvenNumberIsBetweenItsTwoMiddleValues) {
  EXPECT_EQ(median(std::vector{3.0, 1.0, 2.0}), 2);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_EQ(median(std::vector{7.0}), 7);
}

TEST(Statistics, TheMedianOfWholeNumbersIsNotCutToOne) {
  EXPECT_EQ(median(std::vector<int64_t>{2, 1}), 1.5);
  const int64_t large = int64_t{1} << 62;  // the sum of two does not fit
  EXPECT_EQ(median(std::vector<int64_t>{large, large}), static_cast<double>(large));
}

// Answers by R: quantile(x, q, type = 7).
TEST(Statistics, QuantilesInterpolateBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(*quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(*quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(*quantile(one_to(21), 0.05), 2);
  EXPECT_DOUBLE_EQ(*quantile(one_to(21), 0.95), 20);
  EXPECT_DOUBLE_EQ(*quantile({10, 20}, 0.25), 12.5);
  EXPECT_DOUBLE_EQ(*quantile({7}, 0.95), 7);
  EXPECT_DOUBLE_EQ(*quantile(one_to(5), 1), 5);
  EXPECT_FALSE(quantile({}, 0.5));
}

TEST(Statistics, TheLastTenthIsAtLeastOneValue) {
  EXPECT_EQ(mean_of_last_tenth({7}), 7);
  EXPECT_EQ(mean_of_last_tenth(one_to(19)), 19);
  EXPECT_EQ(mean_of_last_tenth(one_to(20)), 19.5);
}

}  // namespace
}  // namespace stepscope
