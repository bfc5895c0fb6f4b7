// Records in hostile order: before and after their launch, twice, without launch, without time, from two
// threads.
#include "profiler/collect/step_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "profiler/collect/missing_names.h"

namespace profiler::collect {
namespace {

StepRecord step_record(int64_t step) {
  StepRecord s;
  s.step = step;
  s.phase = Phase::activity;
  s.host_begin_ns = 1000 * (step + 1);
  return s;
}

LaunchCall launch_call(uint32_t correlation, LaunchKind kind, std::string_view symbol = "") {
  LaunchCall c;
  c.kind = kind;
  c.correlation = correlation;
  c.symbol = symbol;
  c.grid = {7, 1, 1};
  c.host_ns = 5;
  return c;
}

ActivityEvent event(Activity activity, uint32_t correlation, std::string_view name, int64_t start, int64_t end) {
  ActivityEvent e;
  e.activity = activity;
  e.correlation = correlation;
  e.name = name;
  e.start_ns = start;
  e.end_ns = end;
  e.stream = 7;
  return e;
}
ActivityEvent kernel(uint32_t correlation, std::string_view name, int64_t start, int64_t end) {
  return event(Activity::kernel, correlation, name, start, end);
}

int64_t missing_count(const StepTrace::Result& r, std::string_view name) {
  int64_t n = 0;
  for (const auto& m : r.missing)
    if (m.name == name) n += m.count;
  return n;
}

TEST(StepTrace, IndexIsTheLaunchOrderWhateverTheOrderOfRecords) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "first"), "step/forward/0/ln1");
  t.launch(launch_call(2, LaunchKind::memset), "step/forward/0/qkv");
  t.launch(launch_call(3, LaunchKind::kernel, "second"), "step/forward/0/qkv");
  t.launch(launch_call(4, LaunchKind::copy), "step/forward/-/copy");
  t.end_step(0, 99);
  t.activity(event(Activity::copy, 4, "copy DtoH", 400, 450));
  t.activity(kernel(3, "second", 300, 340));
  t.activity(event(Activity::memset, 2, "memset", 200, 210));
  t.activity(kernel(1, "first", 100, 120));
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 4u);
  EXPECT_EQ(r.launches[0].name, "first");
  EXPECT_EQ(r.launches[0].index, 0);
  EXPECT_EQ(r.launches[0].path, "step/forward/0/ln1");
  EXPECT_EQ(r.launches[1].name, "second");
  EXPECT_EQ(r.launches[1].index, 1);
  EXPECT_EQ(r.launches[1].start_ns, 300);
  EXPECT_EQ(r.launches[1].stream, 7);
  EXPECT_EQ(r.launches[2].activity, Activity::copy);
  EXPECT_EQ(r.launches[2].index, 0);
  EXPECT_EQ(r.launches[3].activity, Activity::memset);
  ASSERT_EQ(r.steps.size(), 1u);
  EXPECT_EQ(r.steps[0].kernels, 2);
  EXPECT_EQ(r.steps[0].copies, 1);
  EXPECT_EQ(r.steps[0].memsets, 1);
  EXPECT_EQ(r.steps[0].gpu_begin_ns, 100);
  EXPECT_EQ(r.steps[0].gpu_end_ns, 450);
  EXPECT_EQ(r.steps[0].host_end_ns, 99);
  ASSERT_EQ(r.stats.size(), 4u);
  EXPECT_EQ(r.stats[1].median_ns, 40);
  EXPECT_TRUE(r.missing.empty());
}

TEST(StepTrace, AnOperationKeepsEverythingThatItsRecordTells) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "k"), "step/a");
  t.launch(launch_call(2, LaunchKind::graph), "step/b");
  t.end_step(0, 99);
  ActivityEvent e = kernel(1, "k", 100, 120);
  e.device = 2;
  e.grid = {7, 6, 5};
  e.block = {128, 4, 2};
  e.registers = 40;
  e.shared_static_bytes = 1024;
  e.shared_dynamic_bytes = 2048;
  t.activity(e);
  ActivityEvent node = kernel(2, "n", 200, 230);
  node.graph_node = 0x500000003;
  t.activity(node);
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 2u);
  const LaunchRecord& l = r.launches[0];
  EXPECT_EQ(l.device, 2);
  EXPECT_EQ(l.stream, 7);
  EXPECT_EQ(l.grid, (std::array<int64_t, 3>{7, 6, 5}));
  EXPECT_EQ(l.block, (std::array<int64_t, 3>{128, 4, 2}));
  EXPECT_EQ(l.registers, 40);
  EXPECT_EQ(l.shared_static_bytes, 1024);
  EXPECT_EQ(l.shared_dynamic_bytes, 2048);
  EXPECT_EQ(l.correlation, 1);
  EXPECT_EQ(l.graph_node, 0);
  EXPECT_EQ(l.launch_ns, 5);
  EXPECT_EQ(r.launches[1].graph_node, 0x500000003);
}

TEST(StepTrace, ARecordBeforeItsLaunchIsMatchedOnceTheLaunchIsKnown) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  char name[] = "early_kernel";  // CUPTI's, and another one after the call
  t.activity(kernel(9, name, 100, 130));
  std::fill(std::begin(name), std::end(name) - 1, 'x');
  t.launch(launch_call(9, LaunchKind::kernel, "early_kernel"), "step/a");
  t.end_step(0, 99);
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 1u);
  EXPECT_EQ(r.launches[0].name, "early_kernel");
  EXPECT_EQ(r.launches[0].end_ns, 130);
  EXPECT_TRUE(r.missing.empty());
}

TEST(StepTrace, RecordsWithoutLaunchAreCountedNotAttributed) {
  StepTrace::Limits limits;
  limits.early_records = 2;
  StepTrace t(limits);
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "k"), "step/a");
  t.activity(kernel(1, "k", 10, 20));
  for (uint32_t i = 100; i < 105; ++i) t.activity(kernel(i, "stranger", 10, 20));
  t.end_step(0, 99);
  const auto r = t.finish();
  EXPECT_EQ(r.launches.size(), 1u);
  EXPECT_EQ(missing_count(r, missing::kUnmatched), 5);
}

TEST(StepTrace, ASecondRecordOfAKernelIsCountedAndAddsNoTime) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "k"), "step/a");
  t.activity(kernel(1, "k", 10, 20));
  t.activity(kernel(1, "k", 10, 2000));
  t.end_step(0, 99);
  const auto r = t.finish();
  ASSERT_EQ(r.stats.size(), 1u);
  EXPECT_EQ(r.stats[0].samples, 1);
  EXPECT_EQ(r.stats[0].max_ns, 10);
  EXPECT_EQ(r.steps[0].gpu_end_ns, 20);
  EXPECT_EQ(missing_count(r, missing::kUnmatched), 1);
}

// A short kernel may begin and end within one tick of the clock.
TEST(StepTrace, ARecordThatEndsWhereItStartsHasATime) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "k"), "step/a");
  t.activity(kernel(1, "k", 64, 64));
  t.end_step(0, 99);
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 1u);
  EXPECT_EQ(r.launches[0].start_ns, 64);
  EXPECT_EQ(missing_count(r, missing::kNoTime), 0);
}

TEST(StepTrace, ZeroAndReversedTimestampsAreLostTimeNotZeroTime) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  for (uint32_t i = 1; i <= 4; ++i) t.launch(launch_call(i, LaunchKind::kernel, "k"), "step/a");
  t.activity(kernel(1, "k", 0, 0));
  t.activity(kernel(2, "k", 50, 40));
  t.activity(kernel(3, "k", 50, 0));
  t.activity(kernel(4, "k", 60, 70));
  t.end_step(0, 99);
  const auto r = t.finish();
  EXPECT_EQ(missing_count(r, missing::kNoTime), 3);
  ASSERT_EQ(r.launches.size(), 4u);
  EXPECT_EQ(r.launches[1].start_ns, 0);
  EXPECT_EQ(r.launches[1].end_ns, 0);
  ASSERT_EQ(r.stats.size(), 1u);
  EXPECT_EQ(r.stats[0].index, 3);
  EXPECT_EQ(r.steps[0].gpu_begin_ns, 60);
  EXPECT_EQ(r.steps[0].kernels, 4);
}

TEST(StepTrace, AKernelWhoseRecordNeverCameKeepsItsPlaceAndIsCounted) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "a"), "step/a");
  t.launch(launch_call(2, LaunchKind::kernel, "lost"), "step/b");
  t.launch(launch_call(3, LaunchKind::kernel, "c"), "step/c");
  t.activity(kernel(3, "c", 30, 31));
  t.activity(kernel(1, "a", 10, 11));
  t.end_step(0, 99);
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 3u);
  EXPECT_EQ(r.launches[1].name, "lost");
  EXPECT_EQ(r.launches[1].start_ns, 0);
  EXPECT_EQ(r.launches[2].index, 2);
  EXPECT_EQ(missing_count(r, missing::kRecordsLost), 1);
}

TEST(StepTrace, StatsGoOverAllKeptStepsAndLaunchesAreOfTheOneNearestToTheirMedian) {
  StepTrace t;
  uint32_t id = 0;
  for (int64_t s = 0; s < 12; ++s) {
    t.begin_step(step_record(s), s >= 2);
    t.launch(launch_call(++id, LaunchKind::kernel, "k"), "step/a");
    t.activity(kernel(id, "k", 1000 * (s + 1), 1000 * (s + 1) + 10 + s));
    t.end_step(s, 99);
  }
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 1u);
  EXPECT_EQ(r.launches[0].step, 7) << "17 ns, as near to 16.5 as the 16 of the step before";
  ASSERT_EQ(r.stats.size(), 1u);
  EXPECT_EQ(r.stats[0].samples, 10);
  EXPECT_EQ(r.stats[0].min_ns, 12);
  EXPECT_EQ(r.stats[0].max_ns, 21);
  EXPECT_EQ(r.stats[0].median_ns, 16.5);
  EXPECT_EQ(r.steps.size(), 10u);
}

// The last of five steps took ten times as long; its table stood for all of them.
TEST(StepTrace, AnOutlierIsNotTheStepShownButForRanksWhichShowTheirLast) {
  for (const bool rank : {false, true}) {
    StepTrace t(StepTrace::Limits{}, rank);
    for (int64_t s = 0; s < 5; ++s) {
      const auto id = static_cast<uint32_t>(s + 1);
      t.begin_step(step_record(s), true);
      t.launch(launch_call(id, LaunchKind::kernel, "k"), "step/a");
      t.activity(kernel(id, "k", 1000 * (s + 1), 1000 * (s + 1) + (s == 4 ? 200 : 20 + s)));
      t.end_step(s, 99);
    }
    const auto r = t.finish();
    ASSERT_EQ(r.launches.size(), 1u);
    EXPECT_EQ(r.launches[0].step, rank ? 4 : 2);
  }
}

TEST(StepTrace, AnUnfinishedLastStepIsNotTheOneShown) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "k"), "step/a");
  t.activity(kernel(1, "k", 10, 20));
  t.end_step(0, 99);
  t.begin_step(step_record(1), true);
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 1u);
  EXPECT_EQ(r.launches[0].step, 0);
  EXPECT_EQ(r.steps.size(), 1u);
}

TEST(StepTrace, AStepThatLaunchesOtherKernelsIsToldNotAveraged) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "a"), "step/a");
  t.end_step(0, 99);
  t.activity(kernel(1, "a", 10, 20));
  t.begin_step(step_record(1), true);
  t.launch(launch_call(2, LaunchKind::kernel, "b"), "step/a");
  t.end_step(1, 199);
  t.activity(kernel(2, "b", 10, 2000));
  t.begin_step(step_record(2), true);
  t.launch(launch_call(3, LaunchKind::kernel, "a"), "step/a");
  t.end_step(2, 299);
  t.activity(kernel(3, "a", 10, 30));
  const auto r = t.finish();
  ASSERT_EQ(r.stats.size(), 1u);
  EXPECT_EQ(r.stats[0].samples, 2);
  EXPECT_EQ(r.stats[0].max_ns, 20);
  EXPECT_EQ(missing_count(r, missing::kSequenceChanged), 1);
}

TEST(StepTrace, ALastStepUnlikeTheFirstHasNoStats) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "a"), "step/a");
  t.end_step(0, 99);
  t.activity(kernel(1, "a", 10, 20));
  t.begin_step(step_record(1), true);
  t.launch(launch_call(2, LaunchKind::kernel, "b"), "step/a");
  t.end_step(1, 199);
  t.activity(kernel(2, "b", 10, 2000));
  const auto r = t.finish();
  EXPECT_TRUE(r.stats.empty());
  EXPECT_GE(missing_count(r, missing::kSequenceChanged), 1);
}

TEST(StepTrace, FailedAndCapturedLaunchesDoNotExist) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "failed"), "step/a");
  t.launch_ended(1, LaunchEnd::failed);
  t.launch(launch_call(2, LaunchKind::kernel, "captured"), "step/a");
  t.launch_ended(2, LaunchEnd::captured);
  t.launch(launch_call(3, LaunchKind::kernel, "k"), "step/a");
  t.launch_ended(3, LaunchEnd::performed);
  t.activity(kernel(3, "k", 10, 20));
  t.end_step(0, 99);
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 1u);
  EXPECT_EQ(r.launches[0].index, 0);
  EXPECT_EQ(r.steps[0].kernels, 1);
  EXPECT_TRUE(r.missing.empty());
}

TEST(StepTrace, TheDriverIdOfARuntimeLaunchFindsItsLaunch) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "k"), "step/a");
  t.alias(1, 2);
  t.activity(kernel(2, "k", 10, 20));
  t.end_step(0, 99);
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 1u);
  EXPECT_EQ(r.launches[0].start_ns, 10);
  EXPECT_TRUE(r.missing.empty());
}

TEST(StepTrace, GraphNodesAreOrderedByNodeAndBelongToWhereTheyWereCaptured) {
  StepTrace t;
  t.node_created(0x100000001, "step/forward/0/qkv");
  t.node_created(0x100000002, "step/backward/0/qkv");
  t.node_cloned(0x200000001, 0x100000001);
  t.node_cloned(0x200000002, 0x100000002);
  t.begin_step(step_record(0), true);
  t.launch(launch_call(1, LaunchKind::kernel, "before"), "step/a");
  t.launch(launch_call(2, LaunchKind::graph), "step");
  t.launch(launch_call(3, LaunchKind::kernel, "after"), "step/z");
  t.end_step(0, 99);
  auto node = [](uint64_t id, std::string_view name, int64_t start) {
    ActivityEvent e = kernel(2, name, start, start + 5);
    e.graph_node = id;
    return e;
  };
  t.activity(kernel(3, "after", 50, 60));
  t.activity(node(0x200000002, "bwd", 20));
  t.activity(node(0x200000001, "fwd", 30));  // nodes may run in another order than they were captured
  t.activity(node(0x200000009, "unknown", 40));
  t.activity(kernel(1, "before", 10, 15));
  const auto r = t.finish();
  ASSERT_EQ(r.launches.size(), 5u);
  EXPECT_EQ(r.launches[0].name, "before");
  EXPECT_EQ(r.launches[1].name, "fwd");
  EXPECT_EQ(r.launches[1].path, "step/forward/0/qkv");
  EXPECT_EQ(r.launches[2].name, "bwd");
  EXPECT_EQ(r.launches[2].path, "step/backward/0/qkv");
  EXPECT_EQ(r.launches[3].path, "step");
  EXPECT_EQ(r.launches[4].name, "after");
  EXPECT_EQ(r.launches[4].index, 4);
  EXPECT_EQ(r.steps[0].kernels, 5);
  EXPECT_EQ(missing_count(r, missing::kUnknownRange), 1);
}

TEST(StepTrace, MemoryIsBoundedHoweverManyStepsAreTraced) {
  StepTrace::Limits limits;
  limits.launches = 64;
  limits.steps = 8;
  StepTrace t(limits);
  uint32_t id = 0;
  size_t old_steps = 0;
  for (int64_t s = 0; s < 1000; ++s) {
    t.begin_step(step_record(s), true);
    for (int k = 0; k < 4; ++k) {
      t.launch(launch_call(++id, LaunchKind::kernel, "k"), "step/a");
      t.activity(kernel(id, "k", 10 * id, 10 * id + 7));
    }
    t.end_step(s, 99);
    old_steps += t.take_old_steps().size();
  }
  EXPECT_EQ(old_steps, 1000u - 8u);
  const auto r = t.finish();
  EXPECT_EQ(r.steps.size(), 8u);
  ASSERT_EQ(r.stats.size(), 4u);
  EXPECT_EQ(r.stats[0].samples, 1000);
  EXPECT_EQ(r.stats[0].median_ns, 7);
  EXPECT_TRUE(r.missing.empty());
}

TEST(StepTrace, ForgottenLaunchesWithoutRecordAreCounted) {
  StepTrace::Limits limits;
  limits.launches = 4;
  StepTrace t(limits);
  t.begin_step(step_record(0), true);
  for (uint32_t i = 1; i <= 10; ++i) t.launch(launch_call(i, LaunchKind::kernel, "k"), "step/a");
  t.end_step(0, 99);
  EXPECT_EQ(missing_count(t.finish(), missing::kRecordsLost), 10);
}

TEST(StepTrace, LaunchesAndRecordsMayComeFromTwoThreadsAtOnce) {
  StepTrace t;
  t.begin_step(step_record(0), true);
  constexpr uint32_t kMany = 3000;  // below the limit of early records: none may get lost
  std::thread launches([&] {
    for (uint32_t i = 1; i <= kMany; ++i) t.launch(launch_call(i, LaunchKind::kernel, "k"), "step/a");
  });
  std::thread records([&] {
    for (uint32_t i = 1; i <= kMany; ++i) t.activity(kernel(i, "k", i, i + 3));
  });
  launches.join();
  records.join();
  t.end_step(0, 99);
  const auto r = t.finish();
  EXPECT_EQ(r.launches.size(), kMany);
  for (const auto& l : r.launches) ASSERT_EQ(l.start_ns, static_cast<int64_t>(l.correlation));
  EXPECT_TRUE(r.missing.empty());
}

TEST(StepTrace, RawSinkGetsEveryOperationOfEveryKeptStep) {
  StepTrace t;
  std::vector<LaunchRecord> raw;
  t.set_raw_sink([&](const LaunchRecord& r) { raw.push_back(r); });
  uint32_t id = 0;
  for (int64_t s = 0; s < 5; ++s) {
    t.begin_step(step_record(s), s >= 1);
    t.launch(launch_call(++id, LaunchKind::kernel, "_Z1kv"), "step/a");
    t.activity(kernel(id, "_Z1kv", 10 * id, 10 * id + 1));
    t.end_step(s, 99);
  }
  ASSERT_EQ(raw.size(), 4u);
  EXPECT_EQ(raw[0].step, 1);
  EXPECT_EQ(raw[3].name, "k()");
  EXPECT_EQ(raw[3].path, "step/a");
}

// docs/metrics.md and the field `samples` say from how many steps on.
TEST(DurationSample, MedianOf64IsExact) {
  DurationSample d;
  for (int i = 0; i < 64; ++i) d.add((i * 37) % 64);  // each of 0 to 63 once
  EXPECT_EQ(d.stats().median_ns, 31.5);
  for (int i = 0; i < 136; ++i) d.add(1000);
  EXPECT_EQ(d.stats().samples, 200);
  EXPECT_EQ(DurationSample::kReservoir, 64u);
}

TEST(DurationSample, MedianOfManyIsAnEstimateWhileMeanAndRangeAreExact) {
  DurationSample d;
  for (int i = 1; i <= 10001; ++i) d.add((i * 7919) % 10007);  // a permutation of 1…10006 without a few
  const auto s = d.stats();
  EXPECT_EQ(s.samples, 10001);
  EXPECT_NEAR(s.mean_ns, 5003, 5);
  EXPECT_LE(s.min_ns, 10);
  EXPECT_GE(s.max_ns, 9990);
  EXPECT_NEAR(s.median_ns, 5003, 2200);  // 64 uniform samples: standard deviation of the median about 620
}

}  // namespace
}  // namespace profiler::collect
