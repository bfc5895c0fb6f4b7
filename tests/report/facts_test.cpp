// Facts and cells that every form of the report shows: each figure stands in the place and the unit that its words name.
#include "profiler/report/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/report/cells.h"
#include "profiler/report/table.h"

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
  d.run.memory_bytes = {{"parameters", 3.0 * (1 << 30)}, {"gradients", 1.5 * (1 << 20)}};
  d.run.first_loss = 11, d.run.last_loss = 4;
  const auto facts = environment_facts(d);
  EXPECT_THAT(facts, testing::Contains(std::pair<std::string, std::string>("memory parameters", "3.00 GiB")));
  EXPECT_THAT(facts, testing::Contains(std::pair<std::string, std::string>("memory gradients", "1.50 MiB")));
  EXPECT_THAT(facts, testing::Contains(std::pair<std::string, std::string>("loss", "11.0000 to 4.0000")));
}

TEST(Facts, AProgramOfOursIsItsTrainerModelAndShape) {
  const auto ran = [](const std::string& program) {
    ProfileDocument d;
    d.environment.gpu = "Test GPU";
    d.collection.program = program;
    return what_ran(d);
  };
  EXPECT_THAT(ran("/opt/bin/stepscope train --trainer fp32 --model 124M --batch-size 4 --seq-len 1024 --run-json x"),
              testing::ElementsAre("Test GPU", "stepscope train", "fp32", "124M", "B 4 T 1024"));
  EXPECT_THAT(ran("/opt/bin/stepscope train"), testing::ElementsAre("Test GPU", "stepscope train"));
  EXPECT_THAT(ran("/opt/bin/stepscope"), testing::ElementsAre("Test GPU", "/opt/bin/stepscope"));
  EXPECT_THAT(ran("python3 train.py"), testing::ElementsAre("Test GPU", "python3 train.py"));
  EXPECT_THAT(ran(""), testing::ElementsAre("Test GPU")) << "nobody knows the program";
}

TEST(Facts, OfAReportTellHowManyKernelsWereMeasuredAndWhoseCeilingsTheseAre) {
  ProfileDocument d;
  d.collection.producer = "ncu";
  d.totals.time_ns = 2e6, d.totals.launches = 15;
  d.ceilings.copy_bytes_per_s = 1e12, d.ceilings.device = "Test GPU";
  EXPECT_THAT(table_text(d, {}), testing::HasSubstr("15 kernels, each measured alone by Nsight Compute\n"));
  EXPECT_EQ(headline(d).at(0).after, "each measured alone");
  EXPECT_EQ(ceilings_sentence(d), "Ceilings measured on this device: copy 1000 GB/s.");
  for (const char* name : {"launches_multiplied", "ceilings_of_unknown_gpu"}) d.missing.emplace_back().name = name;
  EXPECT_THAT(table_text(d, {}), testing::HasSubstr("15 launches, several of one kernel, measured alone by Nsight Compute\n"))
      << "an older document does not know how many kernels there were";
  d.collection.measured_kernels = 4;
  const std::string text = table_text(d, {});
  EXPECT_THAT(text, testing::HasSubstr("4 kernels, each measured alone by Nsight Compute, shown as 15 launches\n"));
  EXPECT_THAT(text, testing::HasSubstr("(max) its share of the measured"));
  EXPECT_EQ(headline(d).at(0).after, "measured alone, some counted several times");
  EXPECT_EQ(ceilings_sentence(d), "Ceilings measured on Test GPU: copy 1000 GB/s.");
}

TEST(Facts, TheDeviceIsToldWithItsClockItsPowerAndWhatHeldItBack) {
  ProfileDocument d;
  d.environment.sm_clock_mhz_median = 1755, d.environment.sm_clock_mhz_min = 1600, d.environment.sm_clock_mhz_max = 1980;
  d.environment.power_w_median = 640, d.environment.power_w_max = 701, d.environment.temperature_c_max = 64;
  d.environment.throttle_reasons = {"sw_power_cap", "hw_slowdown"};
  using Row = std::pair<std::string, std::string>;
  EXPECT_THAT(environment_facts(d),
              testing::ElementsAre(Row("SM clock", "1755 MHz (1600 to 1980)"), Row("power", "640 W, at most 701 W"),
                                   Row("temperature", "at most 64 °C"), Row("throttled", "sw_power_cap, hw_slowdown")));
}

TEST(Cells, MillisecondsHaveFourDigitsOrAsManyAsTheyNeed) {
  EXPECT_EQ(milliseconds(9'999'000.0), "9.999");
  EXPECT_EQ(milliseconds(10e6), "10.00");
  EXPECT_EQ(milliseconds(-10e6), "-10.00");
  EXPECT_EQ(milliseconds(999.99e6), "999.99");
  EXPECT_EQ(milliseconds(1000e6), "1000.0");
  EXPECT_EQ(milliseconds(std::nullopt), "-");
}

TEST(Cells, TensorUseIsAPercentageElseInstructionsWithALetter) {
  const auto cell = [](std::optional<double> percent, std::optional<double> instructions) {
    Numbers n;
    n.tensor_active_pct = percent;
    n.tensor_instructions = instructions;
    return tensor_cell(n);
  };
  EXPECT_EQ(cell(12.34, 5e6), "12.3");
  EXPECT_EQ(cell(std::nullopt, std::nullopt), "-");
  for (const auto& [instructions, text] :
       {std::pair(0.0, "0 inst"), {999.0, "999 inst"}, {1e3, "1.0k inst"}, {999e3, "999.0k inst"}, {1e6, "1.0M inst"}, {1e9, "1.0G inst"}})
    EXPECT_EQ(cell(std::nullopt, instructions), text);
}

TEST(Cells, CountsAreWholeBelowTenThousand) {
  EXPECT_EQ(thousands(9999), "9999");
  EXPECT_EQ(thousands(10'000), "10.0k");
  EXPECT_EQ(thousands(999'900), "999.9k");
  EXPECT_EQ(thousands(1e6), "1.00M");
}

}  // namespace
