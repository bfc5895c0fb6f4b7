#include "experiments/energy/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using energy::kStepAlone;
using ::testing::ElementsAre;

TEST(WindowLength, HoldsTwelveStepsInWholeCyclesOfTheClock) {
  EXPECT_DOUBLE_EQ(energy::window_length(0.009), 2 * energy::kClockCycle_s);
  EXPECT_DOUBLE_EQ(energy::window_length(0.113), 2 * energy::kClockCycle_s);  // 1.36 s
  EXPECT_DOUBLE_EQ(energy::window_length(0.170), 2 * energy::kClockCycle_s);  // 2.04 s
  EXPECT_DOUBLE_EQ(energy::window_length(0.180), 3 * energy::kClockCycle_s);  // 2.16 s
}

TEST(CopiesFor, LengthenAStepByTheShareThatWasAskedFor) {
  EXPECT_EQ(energy::copies_for(0.0005, 12, 0.009, 0.5), 9);
  EXPECT_EQ(energy::copies_for(0.0200, 12, 0.009, 0.5), 1);   // a fifth of a copy cannot be
  EXPECT_EQ(energy::copies_for(1e-7, 2, 0.009, 0.5), 10000);  // no more nodes than a graph should hold
  EXPECT_EQ(energy::copies_for(0, 24, 0.009, 0.5), 833);      // too short to be timed
  EXPECT_EQ(energy::copies_for(1e-3, 40000, 0.009, 0.5), 1);
}

TEST(RoundOrder, PutsTheStepAloneAroundEveryFourOps) {
  EXPECT_THAT(energy::round_order({0, 1, 2, 3, 4, 5}, false), ElementsAre(kStepAlone, 0, 1, 2, 3, kStepAlone, 4, 5, kStepAlone));
  EXPECT_THAT(energy::round_order({0, 1, 2, 3, 4, 5}, true), ElementsAre(kStepAlone, 5, 4, 3, 2, kStepAlone, 1, 0, kStepAlone));
  EXPECT_THAT(energy::round_order({0, 1, 2, 3}, false), ElementsAre(kStepAlone, 0, 1, 2, 3, kStepAlone));
  EXPECT_THAT(energy::round_order({7}, false), ElementsAre(kStepAlone, 7, kStepAlone));
}

}  // namespace
