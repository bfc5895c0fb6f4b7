#include "base/sustained.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/statistics.h"

namespace stepscope {
namespace {

TEST(ClockLimited, NeedsPowerAndClock) {
  EXPECT_EQ(clock_limited(690, 1800, 700, 1980), true);
  EXPECT_EQ(clock_limited(690, 1970, 700, 1980), false);
  EXPECT_EQ(clock_limited(600, 1800, 700, 1980), false);
  EXPECT_FALSE(clock_limited(690, {}, 700, 1980));
  EXPECT_FALSE(clock_limited({}, 1800, 700, 1980));
  EXPECT_FALSE(clock_limited(690, 1800, {}, 1980));
  EXPECT_FALSE(clock_limited(690, 1800, 700, {}));
}

TEST(FirstSteadyStep, IsTheFirstOfSoManyInARow) {
  std::vector<double> t{90, 10, 90, 10, 10, 10, 10, 10};
  EXPECT_EQ(first_steady_step(t, 2), 3u);
  EXPECT_EQ(first_steady_step(t, 1), 1u);
  EXPECT_EQ(first_steady_step(t, 6), 0u);  // there are five
  EXPECT_EQ(first_steady_step({}, 8), 0u);
}

TEST(FirstSteadyStep, IsNotOneOfManySlowOnesAtTheBegin) {
  // Most steps are slow, so the median of all is theirs.
  EXPECT_EQ(first_steady_step(std::vector<double>{90, 90, 90, 90, 90, 10, 10, 10}, 2), 5u);
}

TEST(Between, LiesOnThePointsAndInBetween) {
  const std::vector<double> x{1, 2, 4};
  const auto at = [&](double v) { return between(x.begin(), x.end(), v, [](double p) { return p; }); };
  EXPECT_EQ(*at(3)->before, 2);
  EXPECT_EQ(*at(3)->after, 4);
  EXPECT_DOUBLE_EQ(at(3)->share, 0.5);
  for (const double on : x) {
    EXPECT_EQ(*at(on)->before, on);
    EXPECT_EQ(*at(on)->after, on);
    EXPECT_EQ(at(on)->share, 0);
  }
  EXPECT_FALSE(at(0.9));
  EXPECT_FALSE(at(4.1));
}

}  // namespace
}  // namespace stepscope
