#include "experiments/energy/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>

namespace {

using energy::kStepAlone;
using energy::Measured;
using energy::Slope;
using energy::Window;

Window window(double at_s, double joules, double seconds, std::optional<double> clock = {}) {
  const double steps = 2.0 / seconds;
  return {at_s - 1, at_s + 1, joules * steps, steps, 20, clock};
}
Measured alone(double at_s, double joules, double seconds = 0.009, std::optional<double> clock = {}) {
  return {kStepAlone, 0, window(at_s, joules, seconds, clock)};
}
Measured with(int group, double copies, double at_s, double joules, double seconds = 0.009, std::optional<double> clock = {}) {
  return {group, copies, window(at_s, joules, seconds, clock)};
}

TEST(StepAloneAt, LiesOnTheLineBetweenItsNeighbours) {
  const std::vector<Measured> m{alone(0, 6.0, 0.009, 1800), with(0, 4, 3, 9), alone(10, 6.2, 0.010, 1700)};
  const energy::StepAlone a = energy::step_alone_at(m, 2.5);
  EXPECT_NEAR(a.joules, 6.05, 1e-12);
  EXPECT_NEAR(a.seconds, 0.00925, 1e-12);
  EXPECT_NEAR(*a.sm_clock_mhz, 1775, 1e-9);
  EXPECT_NEAR(a.weight, 0.75 * 0.75 + 0.25 * 0.25, 1e-12);
  EXPECT_NEAR(energy::step_alone_at(m, 12).joules, 6.2, 1e-12);  // beyond the last: that one, no longer line
  EXPECT_NEAR(energy::step_alone_at(m, -3).joules, 6.0, 1e-12);
  EXPECT_THROW(energy::step_alone_at(std::span(m).subspan(1, 1), 0), std::logic_error);
}

// The step drifts from 6.0 to 6.3 J while three ops are measured; what the drift adds is no op's.
TEST(SlopeOf, ADriftOfTheStepIsNotTheOps) {
  const std::vector<Measured> m{alone(0, 6.0), with(0, 5, 10, 6.1 + 5 * 0.6), with(1, 20, 20, 6.2 + 20 * 0.1), alone(30, 6.3)};
  EXPECT_NEAR(energy::slope_of(m, 0, 0.001, {})->joules, 0.6, 1e-9);
  EXPECT_NEAR(energy::slope_of(m, 1, 0.001, {})->joules, 0.1, 1e-9);
  EXPECT_FALSE(energy::slope_of(m, 2, 0.001, {}));
}

TEST(SlopeOf, TimeOfTheOpIsWhatACopyAdds) {
  const std::vector<Measured> m{alone(0, 6, 0.009), with(0, 4, 1, 8, 0.012), alone(2, 6, 0.009)};
  EXPECT_NEAR(energy::slope_of(m, 0, 0.001, {})->seconds, 0.003 / 4, 1e-12);
}

// 4,000 noisy measurements of an op of 0.5 J in a step of 6 J: the mean is right, and the error that is stated is the one that is made.
TEST(SlopeOf, TheStatedErrorIsTheOneMade) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  const double noise = 0.002;
  double sum = 0, squares = 0, stated = 0;
  constexpr int kTrials = 4000;
  for (int i = 0; i < kTrials; ++i) {
    const auto drawn = [&](double joules) { return joules * (1 + noise * normal(random)); };
    // Two rounds with unlike copies: every window counts by what it tells.
    const std::vector<Measured> m{alone(0, drawn(6)), with(0, 2, 2, drawn(7)), alone(4, drawn(6)),
                                  alone(6, drawn(6)), with(0, 6, 8, drawn(9)), alone(10, drawn(6))};
    const Slope s = *energy::slope_of(m, 0, noise, {});
    sum += s.joules;
    squares += (s.joules - 0.5) * (s.joules - 0.5);
    stated += s.joules_error;
    EXPECT_EQ(s.windows, 2);
  }
  EXPECT_NEAR(sum / kTrials, 0.5, 0.0002);
  EXPECT_NEAR(stated / kTrials / std::sqrt(squares / kTrials), 1.0, 0.04);
}

TEST(WindowNoise, IsTheSpreadAboutTheNeighboursAndNotTheDrift) {
  std::vector<Measured> drifting;
  for (int i = 0; i < 20; ++i) drifting.push_back(alone(3 * i, 6 + 0.02 * i));
  EXPECT_NEAR(*energy::window_noise(drifting, 0.0004), 0.0004, 1e-9);  // a straight line: only what is known of the poll
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<Measured> noisy;
  for (int i = 0; i < 4000; ++i) noisy.push_back(alone(3 * i, (6 + 0.0001 * i) * (1 + 0.0015 * normal(random))));
  EXPECT_NEAR(*energy::window_noise(noisy, 0.0004), 0.0015, 0.0001);
  EXPECT_FALSE(energy::window_noise(std::span(noisy).first(2), 0.0004));
  // One window a tenth above the line between two, which has half the variance of a window.
  EXPECT_NEAR(*energy::window_noise(std::vector{alone(0, 6), alone(3, 6.6), alone(6, 6)}, 0), 0.1 / std::sqrt(1.5), 1e-9);
}

// Windows at uneven times: every one with two neighbours is off the line between them by one window's variance and that of the line, and those
// are all that is known of it. Few windows, so that a window more or less under the root is seen.
TEST(WindowNoise, OfAFewUnevenWindowsIsThatOfThoseWithTwoNeighbours) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 200; ++trial) {
    const int n = std::uniform_int_distribution(3, 8)(random);
    std::vector<Measured> m;
    std::vector<double> at, joules;
    double now = 0;
    for (int i = 0; i < n; ++i) {
      now += std::uniform_real_distribution(1.0, 9.0)(random);
      at.push_back(now);
      joules.push_back(6 * std::exp(std::normal_distribution(0.0, 0.01)(random)));
      m.push_back(alone(at.back(), joules.back()));
      if (random() % 2) m.push_back(with(0, 3, now + 0.5, 9));
    }
    double sum = 0;
    for (size_t i = 1; i + 1 < at.size(); ++i) {
      const double behind = (at[i] - at[i - 1]) / (at[i + 1] - at[i - 1]), before = 1 - behind;
      const double line = before * joules[i - 1] + behind * joules[i + 1];
      sum += std::pow((joules[i] - line) / line, 2) / (1 + before * before + behind * behind);
    }
    EXPECT_NEAR(*energy::window_noise(m, 0), std::sqrt(sum / (n - 2)), 1e-12) << trial;
  }
}

TEST(Resolved, AtOnePercentOfItselfOrWhereTheStepWouldNotMissIt) {
  Slope s;
  s.joules = 0.5, s.joules_error = 0.004;
  EXPECT_TRUE(energy::resolved(s, 6));
  s.joules_error = 0.006;
  EXPECT_FALSE(energy::resolved(s, 6));
  s.joules = 0.001, s.joules_error = 0.002;  // 200% of itself, 0.03% of the step
  EXPECT_TRUE(energy::resolved(s, 6));
  s.joules_error = 0.0035;
  EXPECT_FALSE(energy::resolved(s, 6));
}

// Joules go with the clock to the power of 0.5, and the op's copies pull the clock from 1800 to 1700 MHz.
TEST(SlopeOf, JoulesAreBroughtToTheClockOfTheStep) {
  const double lower = std::sqrt(1700.0 / 1800.0);
  const std::vector<Measured> m{alone(0, 6, 0.009, 1800), with(0, 3, 1, (6 + 3 * 0.7) * lower, 0.012, 1700), alone(2, 6, 0.009, 1800)};
  const Slope s = *energy::slope_of(m, 0, 0.001, 0.5);
  EXPECT_NEAR(s.joules_at_step_clock, 0.7, 1e-9);
  EXPECT_LT(s.joules, 0.63);  // as measured, at the lower clock
  EXPECT_NEAR(*s.sm_clock_mhz, 1700, 1e-9);
  const Slope unscaled = *energy::slope_of(m, 0, 0.001, {});
  EXPECT_DOUBLE_EQ(unscaled.joules_at_step_clock, unscaled.joules);
}

TEST(ClockExponent, ComesFromStepsWithPausesWithoutTheJoulesOfThePauses) {
  const energy::AtClock steps{6, 1800};
  const double faster = 6 * std::pow(1980.0 / 1800.0, 0.6);
  const energy::AtClock paced = energy::without_pauses(window(5, faster + 150 * 0.005, 0.0135, 1980), 150, 0.005);
  EXPECT_NEAR(paced.joules, faster, 1e-9);
  EXPECT_NEAR(*energy::clock_exponent_of(steps, paced), 0.6, 1e-9);
  EXPECT_FALSE(energy::clock_exponent_of(steps, {6.75, 1830}));  // too near to tell
  EXPECT_FALSE(energy::clock_exponent_of(steps, {6.75, 1700}));
  EXPECT_FALSE(energy::clock_exponent_of(steps, {6.75, {}}));
  EXPECT_FALSE(energy::clock_exponent_of(steps, {-0.1, 1980}));
}

TEST(Closure, WhatIsNotPlacedStandsBesideTheSum) {
  std::vector<Slope> slopes(2);
  slopes[0] = {3.0, 0.03, 0, 3.1, {}, 1};
  slopes[1] = {2.8, 0.04, 0, 2.9, {}, 1};
  const energy::Closure c = energy::close_over(slopes, 6.0, false);
  EXPECT_NEAR(c.placed_joules, 5.8, 1e-12);
  EXPECT_NEAR(c.placed_error, 0.05, 1e-12);
  EXPECT_NEAR(c.not_placed_joules(), 0.2, 1e-12);
  EXPECT_NEAR(c.not_placed_share(), 0.2 / 6, 1e-12);
  EXPECT_NEAR(energy::close_over(slopes, 6.0, true).not_placed_joules(), 0.0, 1e-12);
  // More placed than there is shows as less than nothing, never as zero.
  EXPECT_LT(energy::close_over(slopes, 5.0, false).not_placed_share(), 0);
}

energy::Coefficients coefficients() {
  // 4 TB/s at 420 W, 800 TFLOP/s at 700 W with 0.3 TB/s of traffic, 120 W idle.
  const energy::Probe idle{120, 0, 0, 1980}, copy{420, 4e12, 0, 1980}, product{700, 0.3e12, 8e14, 1500};
  return *energy::coefficients_of(idle, copy, product);
}

TEST(Coefficients, AreAboveTheIdlePowerAndTheProductsTrafficIsNotCountedTwice) {
  const energy::Coefficients c = coefficients();
  EXPECT_NEAR(c.joules_per_byte, 300 / 4e12, 1e-24);
  EXPECT_NEAR(c.joules_per_flop, (700 - 120 - 22.5) / 8e14, 1e-24);
  EXPECT_FALSE(energy::coefficients_of({420, 0, 0, {}}, {410, 4e12, 0, {}}, {700, 0, 8e14, {}}));
  EXPECT_FALSE(energy::coefficients_of({120, 0, 0, {}}, {410, 0, 0, {}}, {700, 0, 8e14, {}}));
}

TEST(Floor, TheProbeItselfIsAtItsFloor) {
  const energy::Coefficients c = coefficients();
  // A second of the copy and a second of the product: their floors are the joules that they took.
  EXPECT_NEAR(energy::floor_of(0, 4e12, c).joules, 420, 1e-6);
  EXPECT_NEAR(energy::floor_of(8e14, 0.3e12, c).joules, 700, 1e-6);
  // The static power is paid once for the longer of the two times, not for their sum.
  const energy::Floor both = energy::floor_of(8e14, 4e12, c);
  EXPECT_NEAR(both.joules, 300 + 557.5 + 120, 1e-6);
  EXPECT_NEAR(both.memory_s, 1, 1e-12);
  EXPECT_NEAR(both.math_s, 1, 1e-12);
}

TEST(BoundOf, TheHighestFloorBounds) {
  const energy::Coefficients c = coefficients();
  const energy::Floor copy = energy::floor_of(0, 4e9, c);  // 1 ms of traffic
  EXPECT_EQ(energy::bound_of(copy, 1.2e-3, 12, 700), energy::Bound::memory);
  EXPECT_EQ(energy::bound_of(copy, 2e-3, 12, 700), energy::Bound::neither);
  EXPECT_EQ(energy::bound_of(copy, 2e-3, 1000, 700), energy::Bound::latency);
  const energy::Floor product = energy::floor_of(8e11, 0.3e9, c);
  EXPECT_EQ(energy::bound_of(product, 1.2e-3, 12, {}), energy::Bound::tensor);
  EXPECT_EQ(energy::bound_of(product, 1.2e-3, 12, 700), energy::Bound::power);  // its rate is what 700 W allow
  // Both busy at once need more than the cap gives: power bounds, though either alone would fit.
  const energy::Floor both = energy::floor_of(8e11, 4e9, c);
  EXPECT_EQ(energy::bound_of(both, 1.5e-3, 12, 700), energy::Bound::power);
  EXPECT_NEAR(both.joules / 700, 1.4e-3, 0.01e-3);
}

}  // namespace
