// The whole procedure over the whole noise, many times: what a reviewer asks first is how often it is wrong.
// Bounds are those of the issue, with room for the scatter of this many trials.
#include <gtest/gtest.h>

#include "experiments/statistics/error_rate.h"
#include "tests/experiments/noise_model.h"

namespace experiments {
namespace {

using simulation::Machine;
using simulation::Noise;

int called_different(const Noise& noise, double b_log_effect, int trials, uint64_t seed, const Thresholds& t = {}) {
  int n = 0;
  for (int i = 0; i < trials; ++i) {
    const Verdict v = Machine(noise, seed + static_cast<uint64_t>(i)).experiment(b_log_effect, t).verdict;
    n += v == Verdict::faster || v == Verdict::slower;
  }
  return n;
}

TEST(identical_code, is_called_different_in_at_most_3_of_100_trials) { EXPECT_LE(called_different({}, 0, 300, 1000), 9); }

TEST(identical_code, is_rarely_called_different_although_processes_have_modes) {
  Noise modes;
  modes.modes = true;
  EXPECT_LE(called_different(modes, 0, 300, 2000), 9);
}

TEST(identical_code, recorded_once_resamples_to_at_most_3_percent) {
  Machine machine({}, 77);
  std::vector<PairValue> recorded;
  for (int i = 0; i < 40; ++i) recorded.push_back(machine.pair(0, 200));
  const ResampledRates r = resample_trials(recorded, {}, 1000, 0, 78).value();
  EXPECT_EQ(r.trials, 1000);
  EXPECT_LE(r.rate(), 0.03);
}

TEST(one_percent, is_found_in_at_least_9_of_10_trials_and_in_the_right_direction) {
  int found = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const Verdict v = Machine({}, 3000 + i).experiment(std::log(1.01)).verdict;
    EXPECT_NE(v, Verdict::faster);
    found += v == Verdict::slower;
  }
  EXPECT_GE(found, 90);
}

TEST(sequential_looks, are_as_rarely_wrong_and_need_fewer_pairs_for_one_percent) {
  Thresholds t;
  t.looks = sequential_looks();
  EXPECT_LE(called_different({}, 0, 300, 8000, t), 9);
  Noise modes;
  modes.modes = true;
  EXPECT_LE(called_different(modes, 0, 300, 8500, t), 9);
  int found = 0, pairs = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const Decision d = Machine({}, 9000 + i).experiment(std::log(1.01), t);
    EXPECT_NE(d.verdict, Verdict::faster);
    found += d.verdict == Verdict::slower;
    pairs += d.log_ratio->n;
  }
  EXPECT_GE(found, 90);
  EXPECT_LT(pairs, 1000);
}

TEST(five_percent, is_found_always) { EXPECT_EQ(called_different({}, std::log(1.05), 50, 4000), 50); }

TEST(a_tiny_effect, is_never_called_in_the_wrong_direction) {
  for (uint64_t i = 0; i < 100; ++i) EXPECT_NE(Machine({}, 5000 + i).experiment(std::log(1.003)).verdict, Verdict::faster) << i;
}

TEST(a_drift_of_3_percent_over_the_run, changes_no_verdict) {
  Noise drift;
  drift.drift = 0.03;
  int differ = 0;
  for (const double effect : {0.0, std::log(1.01), std::log(0.99)})
    for (uint64_t i = 0; i < 30; ++i) {
      const Verdict steady = Machine({}, 6000 + i).experiment(effect).verdict;
      const Verdict drifting = Machine(drift, 6000 + i).experiment(effect).verdict;
      EXPECT_FALSE(steady == Verdict::faster && drifting == Verdict::slower);
      EXPECT_FALSE(steady == Verdict::slower && drifting == Verdict::faster);
      // The drift also shifts which second a clock jump falls on; a trial on the edge may move to
      // "undecided".
      differ += steady != drifting;
    }
  EXPECT_LE(differ, 2);
}

}  // namespace
}  // namespace experiments
