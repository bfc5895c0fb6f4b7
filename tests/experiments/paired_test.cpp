// Every expected number here was worked out elsewhere: Student 1908 and Fisher 1935 as printed in textbooks
// and in R's own documentation (t.test(extra ~ group, data = sleep, paired = TRUE)), or by hand.
#include "experiments/statistics/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace experiments {
namespace {

const std::vector<double> kSleep{1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};
// Darwin's Zea mays: crossed minus self-fertilized, eighths of an inch.
const std::vector<double> kDarwin{49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48};

TEST(t_interval, of_students_sleep_data_is_the_one_r_prints) {
  const Estimate e = estimate(kSleep).value();
  EXPECT_NEAR(e.mean, 1.58, 1e-12);
  EXPECT_NEAR(t_interval(e, 0.05).low, 0.7001142, 1e-6);
  EXPECT_NEAR(t_interval(e, 0.05).high, 2.4598858, 1e-6);
  EXPECT_NEAR(t_p_value(e), 0.002833, 1e-6);
}

TEST(t_interval, of_darwins_plants_just_excludes_zero_as_fisher_found) {
  const Estimate e = estimate(kDarwin).value();
  EXPECT_NEAR(e.mean / (e.sd / std::sqrt(15.0)), 2.148, 5e-4);
  EXPECT_NEAR(t_p_value(e), 0.0497, 5e-5);
}

TEST(p_text, says_of_no_sample_that_its_p_is_0) {
  EXPECT_EQ(p_text(0.0342), "p = 0.034");
  EXPECT_EQ(p_text(1e-4), "p = 0.0001");
  EXPECT_EQ(p_text(9.9e-5), "p < 0.0001");
  EXPECT_EQ(p_text(t_p_value({1, 0, 8})), "p < 0.0001") << "no spread at all";
}

TEST(sign_flip, of_darwins_plants_is_fishers_863_of_32768_on_each_side) {
  EXPECT_DOUBLE_EQ(sign_flip_p_value(kDarwin).value(), 2 * 863.0 / 32768);
}

TEST(sign_flip, counts_ties_and_zeros_as_extreme) {
  // 1 + 2 + 3: only +++ and --- reach 6. 1, 1: both patterns of equal sign. A zero changes nothing but the
  // denominator.
  EXPECT_DOUBLE_EQ(sign_flip_p_value(std::vector<double>{1, 2, 3}).value(), 2.0 / 8);
  EXPECT_DOUBLE_EQ(sign_flip_p_value(std::vector<double>{1, 1}).value(), 0.5);
  EXPECT_DOUBLE_EQ(sign_flip_p_value(std::vector<double>{1, 2, 3, 0}).value(), 2.0 / 8);
  // 0.1 + 0.2 - 0.3 is not 0 in binary: |sum| >= observed must still hold for all patterns that tie with it.
  EXPECT_DOUBLE_EQ(sign_flip_p_value(std::vector<double>{0.1, 0.2, -0.3}).value(), 1.0);
  EXPECT_DOUBLE_EQ(sign_flip_p_value(std::vector<double>(12, -0.01)).value(), 2.0 / 4096);
}

TEST(sign_flip, counts_as_enumeration_does_for_odd_and_even_numbers_of_values) {
  for (const std::vector<double>& v :
       {std::vector<double>{0.4}, {0.3, -0.1}, {1.5, -0.5, 0.25, 0.75, -1}, {0.1, 0.2, 0.3, -0.4, 0.5, 0.6, -0.7, 0.8}}) {
    double observed = 0;
    for (const double x : v) observed += x;
    int extreme = 0;
    for (unsigned signs = 0; signs < 1u << v.size(); ++signs) {
      double sum = 0;
      for (size_t i = 0; i < v.size(); ++i) sum += signs >> i & 1 ? -v[i] : v[i];
      extreme += std::fabs(sum) >= std::fabs(observed) - 1e-9;
    }
    EXPECT_DOUBLE_EQ(sign_flip_p_value(v).value(), extreme / std::ldexp(1.0, static_cast<int>(v.size())));
  }
}

TEST(sign_flip, gives_no_answer_for_what_it_cannot_enumerate) {
  EXPECT_FALSE(sign_flip_p_value(std::vector<double>{}));
  EXPECT_FALSE(sign_flip_p_value(std::vector<double>(27, 1.0)));
  EXPECT_DOUBLE_EQ(sign_flip_p_value(std::vector<double>(26, 1.0)).value(), std::ldexp(1.0, -25)) << "26 pairs are the most";
  EXPECT_FALSE(sign_flip_p_value(std::vector<double>{1, std::numeric_limits<double>::quiet_NaN()}));
}

TEST(equivalence, is_the_ninety_percent_interval_inside_the_bound) {
  // t(.95, 9) = 1.833113, se = sd / sqrt(10): the 90% interval ends at mean + 1.833113 se.
  const Estimate e{0.001, 0.002, 10};
  const double end = 0.001 + 1.833113 * 0.002 / std::sqrt(10.0);
  EXPECT_GT(equivalence_p_value(e, end * 0.9999), 0.05);
  EXPECT_LT(equivalence_p_value(e, end * 1.0001), 0.05);
}

TEST(equivalence, of_values_without_spread_is_certain) {
  EXPECT_EQ(equivalence_p_value({0.001, 0, 5}, 0.005), 0);
  EXPECT_EQ(equivalence_p_value({0.006, 0, 5}, 0.005), 1);
  EXPECT_EQ(t_p_value({0, 0, 5}), 1);
  EXPECT_EQ(t_p_value({-0.1, 0, 5}), 0);
}

TEST(minimum_detectable_effect, of_twelve_pairs_is_3_6_standard_errors) {
  // t(.99, 11) = 2.718079, t(.80, 11) = 0.875530 (tables).
  EXPECT_NEAR(minimum_detectable_effect(0.01, 12, 0.02, 0.8), (2.718079 + 0.875530) * 0.01 / std::sqrt(12.0), 1e-8);
}

TEST(holm, rejects_until_the_first_that_is_too_large) {
  // Levels .05/4, .05/3, .05/2, .05: .03 > .025 stops it, so .04 is not rejected although it is below .05.
  EXPECT_EQ(holm_rejects(std::vector<double>{0.01, 0.04, 0.03, 0.005}, 0.05), (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(holm_rejects(std::vector<double>{std::numeric_limits<double>::quiet_NaN()}, 0.05), std::vector<bool>{false});
  // Each above .05/3, which is all that Bonferroni asks, but for the first.
  EXPECT_EQ(holm_rejects(std::vector<double>{0.045, 0.01, 0.02}, 0.05), (std::vector<bool>{true, true, true}));
}

TEST(quad, cancels_a_linear_drift_whichever_arm_begins) {
  // Blocks at times 0 1 2 3; the machine gets 1% slower per block, B is 2% faster.
  const auto at = [](int t, double base) { return base * std::exp(0.01 * t); };
  const double b = std::exp(-0.02);
  EXPECT_NEAR(quad_log_ratio({{at(0, 1), at(3, 1)}, {at(1, b), at(2, b)}}).value(), -0.02, 1e-12);
  EXPECT_NEAR(quad_log_ratio({{at(1, 1), at(2, 1)}, {at(0, b), at(3, b)}}).value(), -0.02, 1e-12);
}

TEST(quad, has_no_ratio_when_a_time_is_none) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(quad_log_ratio({{1, nan}, {1, 1}}));
  EXPECT_FALSE(quad_log_ratio({{1, 0}, {1, 1}}));
  EXPECT_FALSE(quad_log_ratio({{1, 1}, {-1, 1}}));
}

TEST(pair, is_the_median_quad_so_that_one_disturbed_quad_does_not_move_it) {
  const Quad faster{{1, 1}, {0.9, 0.9}}, disturbed{{1, 1}, {3, 3}};
  const std::vector<Quad> quads{faster, faster, disturbed};
  EXPECT_NEAR(pair_value(quads)->log_ratio, std::log(0.9), 1e-12);
  EXPECT_FALSE(pair_value(std::vector<Quad>{}));
  EXPECT_FALSE(pair_value(std::vector<Quad>{faster})->error);
  const double apart = std::log(0.9) - *quad_log_ratio(disturbed);
  EXPECT_NEAR(*pair_value(std::vector<Quad>{faster, disturbed})->error, std::fabs(apart) / 2, 1e-12) << "of the mean, not of one quad";
}

TEST(estimate_of, too_few_or_broken_values_is_none) {
  EXPECT_FALSE(estimate(std::vector<double>{1}));
  EXPECT_FALSE(estimate(std::vector<double>{1, std::numeric_limits<double>::infinity()}));
}

}  // namespace
}  // namespace experiments
