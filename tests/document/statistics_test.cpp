// The interval of a median, against values from tables.
#include <gtest/gtest.h>

#include <numeric>

#include "profiler/document/statistics.h"

namespace {

using namespace profiler;

std::vector<double> one_to(int n) {
  std::vector<double> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 1.0);
  return v;
}

// Ranks of the 95% interval of the median by the sign test: Conover, Practical Nonparametric Statistics,
// binomial tables; n = 6 is the smallest sample that has one (2 x 1/64 = 3.1%).
TEST(Statistics, IntervalOfTheMedianHasTheRanksOfTheSignTest) {
  EXPECT_FALSE(median_interval(one_to(5)));
  const auto ranks = [](int n) { return *median_interval(one_to(n)); };
  EXPECT_EQ(ranks(6), std::pair(1.0, 6.0));
  EXPECT_EQ(ranks(8), std::pair(1.0, 8.0));
  EXPECT_EQ(ranks(9), std::pair(2.0, 8.0));
  EXPECT_EQ(ranks(10), std::pair(2.0, 9.0));
  EXPECT_EQ(ranks(20), std::pair(6.0, 15.0));
  EXPECT_EQ(ranks(50), std::pair(18.0, 33.0));
  EXPECT_EQ(ranks(100), std::pair(40.0, 61.0));
  EXPECT_EQ(ranks(5000), std::pair(2431.0, 2570.0)) << "by whole numbers; 2^-5000 is no double";
}

}  // namespace
