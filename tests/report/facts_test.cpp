// Facts and cells that every form of the report shows: each figure stands in the place and the unit that its words name.
#include "profiler/report/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/report/cells.h"

namespace {

using namespace profiler;

TEST(Facts, TheSentenceOfTheStepsHasItsPercentilesInOrder) {
  ProfileDocument d;
  StepTime& t = d.timing.step_time_ns;
  t.median = 50e6, t.p05 = 40e6, t.p95 = 70e6, t.mean = 52e6;
  t.interval_low = 48e6, t.interval_high = 53e6;
  EXPECT_EQ(steps_sentence(d),
            "Median 50.00 ms, 95% interval of the median 48.00 to 53.00, 5% of the steps below 40.00, 5% above 70.00, mean 52.00.");
}

TEST(Facts, TheSentenceOfTheTimelineTellsBusyFromIdle) {
  ProfileDocument d;
  d.timeline.window_ns = 100e6, d.timeline.busy_ns = 90e6, d.timeline.idle_ns = 10e6, d.timeline.overlap_ns = 20e6;
  EXPECT_EQ(timeline_sentence(d),
            "In 100.00 ms the device was busy for 90.00 ms and idle for 10.00 ms; at least two operations ran at once for 20.00 ms.");
}

TEST(Facts, MemoryIsInGibAndTheLossGoesFromTheFirstToTheLast) {
  ProfileDocument d;
  d.run.memory_bytes = {{"parameters", 3.0 * (1 << 30)}};
  d.run.first_loss = 11, d.run.last_loss = 4;
  const auto facts = environment_facts(d);
  EXPECT_THAT(facts, testing::Contains(std::pair<std::string, std::string>("memory parameters", "3.00 GiB")));
  EXPECT_THAT(facts, testing::Contains(std::pair<std::string, std::string>("loss", "11.0000 to 4.0000")));
}

TEST(Cells, MillisecondsHaveFourDigitsOrAsManyAsTheyNeed) {
  EXPECT_EQ(milliseconds(9'999'000.0), "9.999");
  EXPECT_EQ(milliseconds(10e6), "10.00");
  EXPECT_EQ(milliseconds(-10e6), "-10.00");
  EXPECT_EQ(milliseconds(999.99e6), "999.99");
  EXPECT_EQ(milliseconds(1000e6), "1000.0");
  EXPECT_EQ(milliseconds(std::nullopt), "-");
}

TEST(Cells, CountsAreWholeBelowTenThousand) {
  EXPECT_EQ(thousands(9999), "9999");
  EXPECT_EQ(thousands(10'000), "10.0k");
  EXPECT_EQ(thousands(999'900), "999.9k");
  EXPECT_EQ(thousands(1e6), "1.00M");
}

}  // namespace
