#include "experiments/statistics/error_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

namespace experiments {
namespace {

TEST(rate_bound, proves_five_percent_at_the_known_counts) {
  // 1 - .05^(1/59) = .04950; the others: the first n for which the 95% bound of k events is at most 5%.
  EXPECT_NEAR(rate_upper_bound(0, 59), 1 - std::pow(0.05, 1.0 / 59), 1e-12);
  EXPECT_GT(rate_upper_bound(0, 58), 0.05);
  EXPECT_LE(rate_upper_bound(1, 93), 0.05);
  EXPECT_GT(rate_upper_bound(1, 92), 0.05);
  EXPECT_LE(rate_upper_bound(2, 124), 0.05);
  EXPECT_GT(rate_upper_bound(2, 123), 0.05);
  EXPECT_LE(rate_upper_bound(5, 208), 0.05);
  EXPECT_GT(rate_upper_bound(5, 207), 0.05);
}

TEST(rate_bound, is_one_where_nothing_is_known) {
  EXPECT_EQ(rate_upper_bound(0, 0), 1);
  EXPECT_EQ(rate_upper_bound(3, 3), 1);
  EXPECT_THROW(rate_upper_bound(2, 1), std::invalid_argument);
}

std::vector<PairValue> normal_pairs(int n, double sd, uint64_t seed, double mean = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, sd);
  std::vector<PairValue> out;
  for (int i = 0; i < n; ++i) out.push_back({normal(random), sd / 2});
  return out;
}

TEST(resampling, of_quiet_pairs_finds_what_is_planted_and_nothing_else) {
  const auto recorded = normal_pairs(40, 0.003, 1);
  EXPECT_LE(resample_trials(recorded, {}, 400, 0, 2)->rate(), 0.03);
  EXPECT_GE(resample_trials(recorded, {}, 200, std::log(1.01), 3)->rate(), 0.95);
}

TEST(resampling, swaps_labels_so_that_a_bias_of_the_recording_is_not_power) {
  // All pairs at +1%: identical code that the procedure measures wrong. Relabelled it is symmetric and wide.
  const auto biased = normal_pairs(40, 0.0005, 4, 0.01);
  EXPECT_LE(resample_trials(biased, {}, 200, 0, 5)->rate(), 0.1);
  EXPECT_LT(slot_bias_p_value(biased).value(), 1e-6);
  EXPECT_GT(slot_bias_p_value(normal_pairs(40, 0.003, 1)).value(), 0.05);
}

TEST(resampling, needs_as_many_pairs_as_a_look) {
  EXPECT_FALSE(resample_trials(normal_pairs(11, 0.003, 1), {}, 10, 0, 1));
  EXPECT_EQ(resample_trials(normal_pairs(12, 0.003, 1), {}, 10, 0, 1)->trials, 10);
}

TEST(resampling, is_repeated_by_its_seed) {
  const auto recorded = normal_pairs(30, 0.01, 7);
  const auto a = resample_trials(recorded, {}, 50, 0.004, 9), b = resample_trials(recorded, {}, 50, 0.004, 9);
  EXPECT_EQ(a->called_different, b->called_different);
  EXPECT_EQ(a->same, b->same);
  int others = 0;
  for (uint64_t seed = 10; seed < 20; ++seed) {
    const auto c = resample_trials(recorded, {}, 50, 0.004, seed);
    others += c->called_different != a->called_different || c->same != a->same;
  }
  EXPECT_GT(others, 0) << "ten other seeds draw the same";
}

}  // namespace
}  // namespace experiments
