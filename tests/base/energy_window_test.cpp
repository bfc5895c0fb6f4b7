#include "base/energy_window.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/errors.h"

namespace {

using energy::CounterChange;
using energy::StepsDone;

TEST(KeepChange, AReadingThatDidNotMoveIsNoChange) {
  std::vector<CounterChange> changes;
  for (const auto& [t, joules] : std::vector<std::pair<double, double>>{{0, 5}, {0.01, 5}, {0.02, 7}, {0.03, 7}, {0.04, 7}, {0.05, 9}})
    energy::keep_change(changes, t, joules);
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_DOUBLE_EQ(changes[1].at_s, 0.02);  // when it was first seen, not when it was last read
  EXPECT_DOUBLE_EQ(changes[2].joules, 9);
  EXPECT_THROW(energy::keep_change(changes, 0.06, 8), stepscope::MachineError);
}

TEST(StepsAt, ProceedEvenlyBetweenTwoCompletions) {
  const std::vector<StepsDone> done{{1.0, 10}, {1.5, 11}, {2.5, 12}};
  EXPECT_DOUBLE_EQ(energy::steps_at(done, 1.25).value(), 10.5);
  EXPECT_DOUBLE_EQ(energy::steps_at(done, 2.0).value(), 11.5);
  EXPECT_DOUBLE_EQ(energy::steps_at(done, 1.0).value(), 10);
  EXPECT_DOUBLE_EQ(energy::steps_at(done, 2.5).value(), 12);
  EXPECT_FALSE(energy::steps_at(done, 0.9));
  EXPECT_FALSE(energy::steps_at(done, 2.6));
}

// 600 W, steps of 9 ms, a counter that moves every 100 ms.
struct Fake {
  std::vector<CounterChange> changes;
  std::vector<StepsDone> done;
  std::vector<energy::ClockSample> clocks;
  Fake() {
    for (int i = 0; i < 40; ++i) changes.push_back({0.037 + 0.1 * i, 1000 + 60.0 * i});
    for (int i = 0; i < 400; ++i) done.push_back({0.009 * i, static_cast<double>(i)});
    for (int i = 0; i < 80; ++i) clocks.push_back({0.05 * i, i < 20 ? 1900.0 : 1800.0});
  }
};

TEST(WindowFrom, BeginsAndEndsAtChangesOfTheCounter) {
  const Fake f;
  const auto w = energy::window_from(f.changes, f.done, f.clocks, 1.0, 1.03);
  ASSERT_TRUE(w);
  EXPECT_NEAR(w->begin_s, 1.037, 1e-9);
  EXPECT_NEAR(w->end_s, 2.137, 1e-9);
  EXPECT_EQ(w->updates, 11);
  EXPECT_NEAR(w->power_w(), 600, 1e-6);
  // Not a whole number of steps: 1.1 s are 122.2 of them.
  EXPECT_NEAR(w->joules_per_step(), 600 * 0.009, 1e-6);
  EXPECT_NEAR(w->seconds_per_step(), 0.009, 1e-9);
  EXPECT_NEAR(*w->sm_clock_mhz, 1800, 1e-9);  // the samples before the window do not count
}

TEST(WindowFrom, WaitsForTheCounterAndForTheSteps) {
  Fake f;
  EXPECT_FALSE(energy::window_from(f.changes, f.done, f.clocks, 3.2, 1.03));   // no change so late
  EXPECT_FALSE(energy::window_from(f.changes, f.done, f.clocks, 3.95, 1.03));  // not even a first one
  f.done.resize(200);                                                          // known up to 1.791 s
  EXPECT_FALSE(energy::window_from(f.changes, f.done, f.clocks, 1.0, 1.03));
  EXPECT_TRUE(energy::window_from(f.changes, f.done, f.clocks, 0.2, 1.03));
}

TEST(WindowFrom, ClocksCountFromItsBeginToItsEndAndNoneIsNoClock) {
  const std::vector<CounterChange> changes{{1, 0}, {2, 600}};
  const std::vector<StepsDone> done{{0, 0}, {4, 400}};
  const auto clock = [&](const std::vector<energy::ClockSample>& samples) {
    return energy::window_from(changes, done, samples, 1, 1).value().sm_clock_mhz;
  };
  EXPECT_EQ(clock({{0.5, 100}, {1, 1000}, {1.5, 1100}, {2, 1800}, {2.5, 100}}), 1300);
  EXPECT_EQ(clock({{0.5, 100}, {2.5, 100}}), std::nullopt);
}

TEST(WindowFrom, NeedsAStepThatWasDone) {
  const std::vector<CounterChange> changes{{1, 0}, {2, 600}};
  EXPECT_FALSE(energy::window_from(changes, std::vector<StepsDone>{{0, 7}, {4, 7}}, {}, 1, 1));
  EXPECT_FALSE(energy::window_from(changes, std::vector<StepsDone>{{1.5, 0}, {4, 7}}, {}, 1, 1)) << "unknown where it begins";
}

TEST(PollError, IsOfBothEnds) {
  energy::Window w;
  w.begin_s = 1, w.end_s = 2;
  EXPECT_NEAR(energy::poll_error(w, 0.006), 0.006 / std::sqrt(6.0), 1e-12);
  w.end_s = 3;
  EXPECT_NEAR(energy::poll_error(w, 0.006), 0.003 / std::sqrt(6.0), 1e-12);
}

}  // namespace
