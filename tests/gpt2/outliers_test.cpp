#include "gpt2/outliers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gpt2 {
namespace {

// As llm.c computes it: the newest of n values among all n.
double z_score(const std::vector<double>& values) {
  double mean = 0, squares = 0;
  for (const double x : values) mean += x / static_cast<double>(values.size());
  for (const double x : values) squares += (x - mean) * (x - mean) / static_cast<double>(values.size());
  return (values.back() - mean) / std::sqrt(squares);
}

// Different from each other, no pattern that a window would hide.
double value(int i) { return 5 + std::sin(i * 1.7) + 0.01 * i; }

TEST(OutlierLimit, NothingIsAnOutlierBeforeTheWindowIsFull) {
  OutlierLimit limit(3);
  for (size_t i = 0; i < OutlierLimit::kWindow; ++i) {
    EXPECT_EQ(limit.limit(), std::numeric_limits<double>::infinity()) << i;
    limit.add(value(static_cast<int>(i)));
  }
  EXPECT_LT(limit.limit(), 20);
}

TEST(OutlierLimit, TheLimitHasTheZScoreThatWasAskedForWhereverTheWindowBegins) {
  for (const double most : {0.5, 3.0, 11.0}) {
    OutlierLimit limit(most);
    std::vector<double> window;
    for (int i = 0; i < 300; ++i) {
      if (window.size() == OutlierLimit::kWindow) {
        window.erase(window.begin());
        window.push_back(limit.limit());
        EXPECT_NEAR(z_score(window), most, 1e-9) << i;
        window.pop_back();
      }
      limit.add(value(i));
      window.push_back(value(i));
    }
  }
}

TEST(OutlierLimit, ZeroMeansThatThereAreNone) {
  OutlierLimit limit(0);
  for (int i = 0; i < 200; ++i) limit.add(value(i));
  EXPECT_EQ(limit.limit(), std::numeric_limits<double>::infinity());
}

TEST(OutlierLimit, WhereAllWereTheSameEverythingAboveIsOne) {
  OutlierLimit limit(3);
  for (int i = 0; i < 200; ++i) limit.add(2);
  EXPECT_EQ(limit.limit(), 2);
}

}  // namespace
}  // namespace gpt2
