#include "profiler/collect/program_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "fake_backend.h"
#include "recording_lines.h"
#include "tests/golden.h"

namespace profiler::collect {
namespace {

using ::testing::IsEmpty;

class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() : path_(::testing::TempDir() + "program_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl") {
    std::filesystem::remove(path_);
    recorder_ = std::make_unique<Recorder>(path_);
  }
  ~ProgramTest() override { std::filesystem::remove(path_); }
  template <class C, class... Args>
  void begin(Args... args) {
    collector_ = std::make_unique<C>(plan_, gpu_, *recorder_, args...);
    gpu_.observer = collector_.get();
    collector_->cuda_ready();
  }
  Lines lines() const { return Lines(path_); }
  int64_t count(const char* what) const { return std::count(gpu_.log.begin(), gpu_.log.end(), what); }

  std::string path_;
  CollectPlan plan_;
  FakeBackend gpu_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<Collector> collector_;
};

TEST_F(ProgramTest, TracerNumbersDirectLaunchesInLaunchOrderAndGraphNodesAfterThem) {
  begin<ProgramTracer>();
  gpu_.launch("_Z1av");
  gpu_.launch("node", LaunchKind::graph);
  gpu_.launch("copy HtoD", LaunchKind::copy);
  gpu_.launch("_Z1bv");
  collector_->process_ends();
  const auto r = lines();
  EXPECT_TRUE(r.complete());
  ASSERT_EQ(r.of("launch").size(), 4u);
  std::map<std::string, int64_t> index;
  for (const auto& l : r.of("launch")) index[l.at("name")] = l.at("index").get<int64_t>();
  EXPECT_EQ(index.at("a()"), 0);
  EXPECT_EQ(index.at("b()"), 1);
  EXPECT_EQ(index.at("node"), 2);
  EXPECT_EQ(index.at("copy HtoD"), 0);
}

TEST_F(ProgramTest, EveryFieldOfATraceIsRecorded) {
  begin<ProgramTracer>();
  collector_->range_push(1, "outer");
  collector_->range_push(2, "inner");
  gpu_.launch("_Z1av");
  collector_->range_pop(2);
  gpu_.launch("copy HtoD", LaunchKind::copy);
  collector_->range_pop(1);
  gpu_.launch("node", LaunchKind::graph);
  gpu_.launch("memset", LaunchKind::memset);
  gpu_.launch("_Z6failedv", LaunchKind::kernel, LaunchEnd::failed);
  collector_->process_ends();
  expect_golden("collect/data/program_trace.jsonl", lines().text());
}

TEST_F(ProgramTest, EveryFieldOfItsCountersIsRecorded) {
  begin<ProgramCounter>(int64_t{2});
  collector_->range_push(1, "outer");
  for (const char* name : {"_Z1av", "_Z1bv", "_Z1cv"}) gpu_.launch(name);
  collector_->range_pop(1);
  gpu_.launch("node", LaunchKind::graph);
  gpu_.launch("_Z1dv");
  collector_->process_ends();
  expect_golden("collect/data/program_counters.jsonl", lines().text());
}

TEST_F(ProgramTest, TheTracerWaitsForTheDeviceBeforeItTakesTheLastRecords) {
  begin<ProgramTracer>();
  gpu_.launch("k");
  gpu_.log.clear();
  collector_->process_ends();
  EXPECT_THAT(gpu_.log, ::testing::ElementsAre("sync", "callbacks off", "trace off"));
  EXPECT_EQ(lines().of("session").size(), 1u);
}

TEST_F(ProgramTest, ASessionIsReadOnceTheDeviceIsDoneAndTheProgramIsDescribedOnce) {
  begin<ProgramCounter>(int64_t{2});
  for (int i = 0; i < 3; ++i) gpu_.launch("k");
  collector_->process_ends();
  EXPECT_THAT(gpu_.log, ::testing::ElementsAre("callbacks kernels", "sync", "enable auto", "sync", "start", "sync", "stop", "sync", "start",
                                               "sync", "stop", "disable"));
  EXPECT_EQ(lines().of("session").size(), 1u);
}

// A copy of nothing has no record; a kernel always has one.
TEST_F(ProgramTest, OnlyAKernelWithoutARecordIsLost) {
  begin<ProgramTracer>();
  gpu_.launch("copy HtoD", LaunchKind::copy);
  gpu_.launch("_Z1av");
  gpu_.launch("_Z1bv");
  gpu_.buffered.resize(2);
  gpu_.buffered.erase(gpu_.buffered.begin());
  collector_->process_ends();
  EXPECT_EQ(lines().of("launch").size(), 1u);
  EXPECT_EQ(lines().missing("records_lost_in_step"), 1);
}

TEST_F(ProgramTest, TracerKeepsAtMostTheLimitAndCountsTheRest) {
  plan_.max_launches = 3;
  begin<ProgramTracer>();
  for (int i = 0; i < 10; ++i) gpu_.launch("k");
  collector_->process_ends();
  EXPECT_EQ(lines().of("launch").size(), 3u);
  EXPECT_EQ(lines().missing("launches_not_kept"), 7);
}

TEST_F(ProgramTest, TracerSkipsFailedLaunchesInTheNumbering) {
  begin<ProgramTracer>();
  gpu_.launch("_Z1av");
  gpu_.launch("_Z1bv", LaunchKind::kernel, LaunchEnd::failed);
  gpu_.launch("_Z1cv");
  collector_->process_ends();
  ASSERT_EQ(lines().of("launch").size(), 2u);
  EXPECT_EQ(lines().of("launch")[1].at("index"), 1);
  EXPECT_EQ(lines().missing("records_lost_in_step"), 0);
}

TEST_F(ProgramTest, TracerCountsRecordsWithoutLaunchAndWithoutTime) {
  begin<ProgramTracer>();
  ActivityEvent e;
  e.correlation = 12345;
  e.name = "stranger";
  collector_->activity(e);
  gpu_.launch("k");
  gpu_.buffered[0].end_ns = 0;
  collector_->process_ends();
  EXPECT_EQ(lines().missing("unmatched_correlation"), 1);
  EXPECT_EQ(lines().missing("kernels_without_time"), 1);
  EXPECT_EQ(lines().of("launch")[0].at("start_ns"), 0);
}

TEST_F(ProgramTest, ARecordWithoutATimeSaysWhatWasWrongWithIt) {
  const auto detail_of = [&](int64_t start_ns, int64_t end_ns) {
    begin<ProgramTracer>();
    gpu_.launch("k");
    gpu_.buffered[0].start_ns = start_ns;
    gpu_.buffered[0].end_ns = end_ns;
    collector_->process_ends();
    for (const auto& m : lines().of("missing"))
      if (m.at("name") == "kernels_without_time") return m.at("detail").get<std::string>();
    return std::string("none");
  };
  EXPECT_EQ(detail_of(500, 400), "records that end before they start");
}

TEST_F(ProgramTest, ARecordOfTimeZeroSaysSo) {
  begin<ProgramTracer>();
  gpu_.launch("k");
  gpu_.buffered[0].start_ns = 0;
  collector_->process_ends();
  const auto rows = lines().of("missing");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("detail"), "records with a zero time stamp");
}

TEST_F(ProgramTest, CounterSessionsRollOverAndTheIndexGoesOn) {
  begin<ProgramCounter>(int64_t{4});
  for (int i = 0; i < 10; ++i) gpu_.launch("k");
  collector_->process_ends();
  EXPECT_EQ(count("start"), 3);
  EXPECT_EQ(count("stop"), 3);
  EXPECT_EQ(count("enable auto"), 1);
  const auto r = lines();
  ASSERT_EQ(r.of("counters").size(), 10u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(r.of("counters")[i].at("index"), i);
    EXPECT_EQ(r.of("counters")[i].at("values")[0], 101.0 + i);
  }
  ASSERT_EQ(r.of("counter_set").size(), 1u);
  EXPECT_EQ(r.of("counter_set")[0].at("launches"), 10);
  EXPECT_TRUE(r.complete());
}

TEST_F(ProgramTest, AGraphLaunchStopsTheSessionBeforeItAndIsCounted) {
  begin<ProgramCounter>(int64_t{100});
  gpu_.launch("_Z1av");
  gpu_.launch("", LaunchKind::graph);
  gpu_.launch("", LaunchKind::graph);
  gpu_.launch("_Z1bv");
  collector_->process_ends();
  EXPECT_EQ(count("stop"), 2);
  EXPECT_EQ(lines().missing("graph_launch_in_counter_run"), 2);
  ASSERT_EQ(lines().of("counters").size(), 2u);
  EXPECT_EQ(lines().of("counters")[1].at("kernel"), "b()");
  EXPECT_EQ(lines().of("counters")[1].at("index"), 1);
}

TEST_F(ProgramTest, NoSessionSwitchesDuringAStreamCapture) {
  begin<ProgramCounter>(int64_t{2});
  gpu_.launch("_Z1av");
  gpu_.launch("_Z1av");
  collector_->capture_changed(1);
  const auto syncs = count("sync");
  for (int i = 0; i < 5; ++i) gpu_.launch("_Z1cv", LaunchKind::kernel, LaunchEnd::captured);
  EXPECT_EQ(count("sync"), syncs);
  EXPECT_EQ(count("stop"), 0);
  collector_->capture_changed(-1);
  gpu_.launch("_Z1bv");
  collector_->process_ends();
  const auto counters = lines().of("counters");
  ASSERT_EQ(counters.size(), 3u);
  EXPECT_EQ(counters[2].at("index"), 2);
}

TEST_F(ProgramTest, ASessionWithMissingRangesLosesItsValuesOnly) {
  begin<ProgramCounter>(int64_t{3});
  int sessions = 0;
  gpu_.spoil = [&](SessionValues& v) {
    if (++sessions == 2) v.ranges.pop_back();
    if (sessions == 3) v.ranges[0].values[0] = std::numeric_limits<double>::infinity();
  };
  for (int i = 0; i < 12; ++i) gpu_.launch("k");
  collector_->process_ends();
  const auto r = lines();
  ASSERT_EQ(r.of("counters").size(), 6u);
  EXPECT_EQ(r.of("counters")[3].at("index"), 9);
  EXPECT_EQ(r.missing("counter_set_failed"), 6);
  EXPECT_EQ(r.of("counter_set")[0].at("launches"), 6);
  EXPECT_EQ(r.of("counter_set")[0].at("ranges"), 6);
}

TEST_F(ProgramTest, AMetricAskedForByNameWithoutAValueCostsThatKernelNothingElse) {
  plan_.metrics = {"gpu__time_duration.sum", "dram__bytes_read.sum"};
  begin<ProgramCounter>(int64_t{2});
  gpu_.spoil = [](SessionValues& v) { v.ranges.front().values[1] = std::numeric_limits<double>::quiet_NaN(); };
  for (int i = 0; i < 4; ++i) gpu_.launch("_Z1av");  // two sessions
  collector_->process_ends();
  const auto r = lines();
  EXPECT_EQ(r.missing("counter_set_failed"), 0);
  EXPECT_EQ(r.missing("metric_without_value"), 2);
  ASSERT_EQ(r.of("counters").size(), 4u);
  const auto sets = r.of("counter_set");
  ASSERT_EQ(sets.size(), 2u) << "one for both sessions";
  for (const auto& set : sets) EXPECT_EQ(set.at("ranges"), 2);
  EXPECT_EQ(r.of("counters")[2].at("set"), sets[1].at("name"));
  EXPECT_EQ(r.of("counters")[3].at("set"), "core");
}

TEST_F(ProgramTest, WithoutPermissionTheProgramRunsOnAndOneRowSaysWhy) {
  begin<ProgramCounter>(int64_t{3});
  gpu_.fail_enable = Failure{"counters_unavailable", "35"};
  for (int i = 0; i < 12; ++i) gpu_.launch("k");
  collector_->process_ends();
  EXPECT_EQ(lines().missing("counters_unavailable"), 1);
  EXPECT_EQ(count("enable auto"), 1);
  EXPECT_TRUE(lines().complete());
}

TEST_F(ProgramTest, AContextThatEndsTakesItsSessionWithIt) {
  begin<ProgramCounter>(int64_t{100});
  const int context = 0;
  gpu_.launch("k", LaunchKind::kernel, LaunchEnd::performed, &context);
  collector_->context_ends(&context);
  EXPECT_EQ(lines().of("counters").size(), 1u);
  EXPECT_EQ(count("disable"), 1);
  collector_->process_ends();
  EXPECT_EQ(count("stop"), 1);
}

}  // namespace
}  // namespace profiler::collect
