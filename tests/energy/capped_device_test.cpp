// The procedure on a made device at its power limit, whose true joules are known: three ops of unlike power, a clock that gives way until
// joules over seconds are the limit. docs/energy.md quotes what this shows.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "experiments/energy/estimate.h"

namespace {

using energy::kStepAlone;
using energy::Measured;
using energy::Window;

constexpr double kStatic_w = 150, kHighest_mhz = 1980;

// One op of a step: seconds at the highest clock, the share of them that goes with the clock, and watts above the static ones there.
struct FakeOp {
  double seconds, of_clock, watts;
  double time(double mhz) const { return seconds * (of_clock * kHighest_mhz / mhz + 1 - of_clock); }
  // Joules above the static ones: per unit of work they go with the voltage squared, which goes with the clock here from half on.
  double joules(double mhz) const {
    const double voltage = 0.5 + 0.5 * mhz / kHighest_mhz;
    return seconds * watts * voltage * voltage + kStatic_w * time(mhz);
  }
};

struct FakeDevice {
  std::vector<FakeOp> ops{{4e-3, 1.0, 900}, {3.5e-3, 0.1, 450}, {1e-3, 0.3, 60}};  // products, traffic, launches
  double limit_w;

  // A step with `extra` copies of one op, and a pause, where the clock has settled.
  Window window(double at_s, int op, double extra, double pause_s = 0) const {
    const auto sum = [&](double mhz, double& joules, double& seconds) {
      joules = kStatic_w * pause_s, seconds = pause_s;
      for (size_t i = 0; i < ops.size(); ++i) {
        const double times = 1 + (static_cast<int>(i) == op ? extra : 0);
        joules += times * ops[i].joules(mhz), seconds += times * ops[i].time(mhz);
      }
    };
    double low = 600, high = kHighest_mhz, joules = 0, seconds = 0;
    sum(high, joules, seconds);
    if (joules / seconds > limit_w) {
      for (int i = 0; i < 60; ++i) {
        const double mhz = 0.5 * (low + high);
        sum(mhz, joules, seconds);
        (joules / seconds > limit_w ? high : low) = mhz;
      }
    }
    const double steps = 2.0 / seconds;
    return {at_s, at_s + 2, joules * steps, steps, 20, high};
  }

  std::vector<energy::Slope> slopes(double added_share, double pause_s, std::optional<double> exponent) const {
    std::vector<Measured> m{{kStepAlone, 0, window(0, kStepAlone, 0, pause_s)}};
    const Window alone = m.front().window;
    for (size_t i = 0; i < ops.size(); ++i) {
      const double copies = added_share * (alone.seconds_per_step() - pause_s) / ops[i].seconds;
      m.push_back({static_cast<int>(i), copies, window(3.0 * static_cast<double>(i + 1), static_cast<int>(i), copies, pause_s)});
    }
    m.push_back({kStepAlone, 0, window(20, kStepAlone, 0, pause_s)});
    std::vector<energy::Slope> found;
    for (size_t i = 0; i < ops.size(); ++i) found.push_back(*energy::slope_of(m, static_cast<int>(i), 0.001, exponent));
    return found;
  }
};

// At the limit a copy of a product slows the clock down for the whole step: it adds fewer joules than it takes. Both kinds of joules add up.
TEST(CappedDevice, WhatACopyAddsAndWhatAnOpTakesAreTwoThings) {
  const FakeDevice device{.limit_w = 560};
  const Window step = device.window(0, kStepAlone, 0);
  ASSERT_LT(*step.sm_clock_mhz, 1900);
  ASSERT_NEAR(step.power_w(), 560, 0.1);
  const double pause_s = 0.005;
  const auto exponent = energy::clock_exponent_of({step.joules_per_step(), step.sm_clock_mhz},
                                                  energy::without_pauses(device.window(0, kStepAlone, 0, pause_s), kStatic_w, pause_s));
  ASSERT_TRUE(exponent);
  const auto slopes = device.slopes(0.25, 0, exponent);
  const double step_joules = step.joules_per_step();
  EXPECT_LT(std::abs(energy::close_over(slopes, step_joules, false).not_placed_share()), 0.03);
  EXPECT_LT(std::abs(energy::close_over(slopes, step_joules, true).not_placed_share()), 0.03);
  for (size_t i = 0; i < slopes.size(); ++i) {
    const double truth = device.ops[i].joules(*step.sm_clock_mhz);
    // One exponent for all ops is not each op's own: it leaves 4% of an op, or 1% of the step where an op draws little.
    EXPECT_LT(std::abs(slopes[i].joules_at_step_clock - truth), std::max(0.04 * truth, 0.01 * step_joules)) << i;
    EXPECT_LT(std::abs(slopes[i].joules_at_step_clock - truth), std::abs(slopes[i].joules - truth)) << i;
    // At the limit joules are seconds: what a copy adds is its sustained time.
    if (i < 2) {
      EXPECT_NEAR(slopes[i].joules / slopes[i].seconds, 560, 1);
    }
  }
  EXPECT_LT(slopes[0].joules, 0.97 * device.ops[0].joules(*step.sm_clock_mhz));
  EXPECT_GT(slopes[2].joules, 1.2 * device.ops[2].joules(*step.sm_clock_mhz));
}

// With pauses that keep the power below the limit the clock stays, and joules are those of the op at the highest clock, exactly.
TEST(CappedDevice, BelowTheLimitACopyAddsTheJoulesOfTheOp) {
  const FakeDevice device{.limit_w = 560};
  const double pause_s = 0.008;
  ASSERT_NEAR(*device.window(0, 0, 0.25 * 9 / 4, pause_s).sm_clock_mhz, kHighest_mhz, 1e-9);
  const auto slopes = device.slopes(0.25, pause_s, {});
  double sum = 0;
  for (size_t i = 0; i < slopes.size(); ++i) {
    EXPECT_NEAR(slopes[i].joules, device.ops[i].joules(kHighest_mhz), 1e-9) << i;
    sum += slopes[i].joules;
  }
  const auto step = energy::without_pauses(device.window(0, kStepAlone, 0, pause_s), kStatic_w, pause_s);
  EXPECT_NEAR(sum, step.joules, 1e-9);
}

}  // namespace
