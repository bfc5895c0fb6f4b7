// Busy time is the union of intervals; two streams that overlap share it.
#include <gtest/gtest.h>

#include <numeric>

#include "profiler/attribute/timeline.h"

namespace {

using namespace profiler;

double sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

TEST(Timeline, TwoStreamsThatOverlapAreCountedOnce) {
  // A 0..100, B 50..150, C 200..300; window 0..310: 50 shared, 50 + 10 idle.
  const Timeline t = make_timeline({{200, 300}, {50, 150}, {0, 100}}, {0, 310});
  EXPECT_DOUBLE_EQ(t.busy_ns, 250);
  EXPECT_DOUBLE_EQ(t.overlap_ns, 50);
  EXPECT_DOUBLE_EQ(t.idle_ns, 60);
  EXPECT_DOUBLE_EQ(t.share_ns[0], 100);
  EXPECT_DOUBLE_EQ(t.share_ns[1], 75);
  EXPECT_DOUBLE_EQ(t.share_ns[2], 75);
  EXPECT_DOUBLE_EQ(sum(t.share_ns) + t.idle_ns, t.window_ns);
}

TEST(Timeline, ThreeAtOnceGetAThirdEach) {
  const Timeline t = make_timeline({{0, 90}, {0, 90}, {0, 90}}, {0, 90});
  for (const double s : t.share_ns) EXPECT_DOUBLE_EQ(s, 30);
  EXPECT_DOUBLE_EQ(t.idle_ns, 0);
}

TEST(Timeline, AnOperationInsideAnotherIsNotAGapWhenItEnds) {
  const Timeline t = make_timeline({{0, 100}, {10, 20}}, {0, 100});
  EXPECT_DOUBLE_EQ(t.idle_ns, 0);
  EXPECT_DOUBLE_EQ(t.share_ns[0], 95);
  EXPECT_DOUBLE_EQ(t.share_ns[1], 5);
}

TEST(Timeline, GapsAreCountedByLength) {
  // 800, 1000 (on the limit), 4000, 30000, 200000
  const Timeline t = make_timeline({{800, 1000}, {2000, 3000}, {7000, 8000}, {38000, 40000}}, {0, 240000});
  EXPECT_EQ(t.gaps[0].count, 2);
  EXPECT_DOUBLE_EQ(t.gaps[0].time_ns, 1800);
  EXPECT_EQ(t.gaps[1].count, 1);
  EXPECT_EQ(t.gaps[2].count, 0);
  EXPECT_EQ(t.gaps[3].count, 1);
  EXPECT_EQ(t.gaps[4].count, 1);
  EXPECT_DOUBLE_EQ(t.gaps[4].time_ns, 200000);
}

TEST(Timeline, WorkOutsideTheWindowTakesNothingFromTheIdleTimeInside) {
  const Timeline t = make_timeline({{-50, 10}, {90, 130}}, {0, 100});
  EXPECT_DOUBLE_EQ(t.idle_ns, 80);
}

TEST(Timeline, WithoutOperationsEverythingIsIdle) {
  const Timeline t = make_timeline({{5, 5}, {9, 3}}, {0, 100});
  EXPECT_DOUBLE_EQ(t.idle_ns, 100);
  EXPECT_DOUBLE_EQ(sum(t.share_ns), 0);
}

}  // namespace
