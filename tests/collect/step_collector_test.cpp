#include "profiler/collect/step_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <thread>

#include "fake_backend.h"
#include "profiler/collect/missing_names.h"
#include "recording_lines.h"
#include "tests/golden.h"

namespace profiler::collect {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StepCollectorTest : public ::testing::Test {
 protected:
  StepCollectorTest()
      : path_(::testing::TempDir() + "step_collector_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl") {
    std::filesystem::remove(path_);
  }
  ~StepCollectorTest() override { std::filesystem::remove(path_); }

  void begin(std::vector<PhasePlan> phases, std::vector<std::string> metrics = {}) {
    CollectPlan plan;
    plan.phases = std::move(phases);
    plan.metrics = std::move(metrics);
    recorder_ = std::make_unique<Recorder>(path_);
    StepCollector::Hooks hooks;
    hooks.phase = [this](Phase p) { phases_.push_back(p); };
    hooks.finished = [this] { ++finished_; };
    hooks.described = [this](const SessionRecord& s) { described_.push_back(s.device); };
    collector_ = std::make_unique<StepCollector>(plan, gpu_, *recorder_, hooks);
    gpu_.observer = collector_.get();
  }
  void push(std::string_view name) { collector_->range_push(1, name); }
  void pop() { collector_->range_pop(1); }
  void op(std::string_view leaf, std::initializer_list<std::string_view> kernels) {
    push(leaf);
    for (const auto k : kernels) gpu_.launch(k);
    pop();
  }
  void step() {
    push("step");
    op("forward/0/qkv", {"_Z4gemmv", "_Z4biasv"});
    op("forward/1/qkv", {"_Z4gemmv"});
    op("optimizer/-/adamw", {"_Z5adamwv"});
    pop();
  }
  Lines lines() const { return Lines(path_); }

  std::string path_;
  FakeBackend gpu_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<StepCollector> collector_;
  std::vector<Phase> phases_;
  std::vector<std::map<std::string, std::string>> described_;
  int finished_ = 0;
};

TEST_F(StepCollectorTest, EveryFieldOfAllPhasesIsRecorded) {
  begin({{Phase::warmup, 1}, {Phase::timed, 2}, {Phase::counters, 1}, {Phase::pass_counters, 1}, {Phase::activity, 3}});
  for (int i = 0; i < 8; ++i) step();
  collector_->process_ends();
  expect_golden("collect/data/steps.jsonl", lines().text());
}

// PyTorch, and most programs that make their tensors lazily: the first CUDA call comes inside the first step.
TEST_F(StepCollectorTest, ADeviceThatTheProgramInitializesInItsFirstStepIsDescribed) {
  gpu_.device.clear();
  begin({{Phase::warmup, 1}, {Phase::timed, 2}});
  push("step");
  EXPECT_THAT(described_, IsEmpty());
  gpu_.device = {{"name", "late"}, {"l2_bytes", "4096"}};
  pop();
  EXPECT_EQ(described_.size(), 1u);
  step();
  step();
  ASSERT_EQ(described_.size(), 1u);
  EXPECT_EQ(described_[0].at("name"), "late");
  const auto sessions = lines().of("session");
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].at("device").at("l2_bytes"), "4096");
}

TEST_F(StepCollectorTest, ADeviceThatComesBetweenTwoStepsIsDescribedToo) {
  gpu_.device.clear();
  begin({{Phase::timed, 2}});
  step();
  gpu_.device = {{"name", "late"}};
  push("step");
  EXPECT_EQ(described_.size(), 1u);
  pop();
}

TEST_F(StepCollectorTest, StepsWithoutAnyDeviceAreDescribedOnceAtTheEnd) {
  gpu_.device.clear();
  begin({{Phase::timed, 2}});
  step();
  EXPECT_THAT(lines().of("session"), IsEmpty());
  step();
  EXPECT_TRUE(lines().complete());
  ASSERT_EQ(lines().of("session").size(), 1u);
  EXPECT_THAT(described_, ElementsAre(IsEmpty()));
}

TEST_F(StepCollectorTest, AProgramThatEndsBeforeADeviceCameIsDescribedOnce) {
  gpu_.device.clear();
  begin({{Phase::timed, 9}});
  step();
  collector_->process_ends();
  EXPECT_EQ(lines().of("session").size(), 1u);
  EXPECT_THAT(described_, ElementsAre(IsEmpty()));
}

TEST_F(StepCollectorTest, TimedStepsTouchNothing) {
  begin({{Phase::warmup, 1}, {Phase::timed, 3}});
  for (int i = 0; i < 4; ++i) step();
  EXPECT_THAT(gpu_.log, IsEmpty());
  const auto r = lines();
  EXPECT_TRUE(r.complete());
  EXPECT_EQ(r.of("step").size(), 4u);
  EXPECT_EQ(r.of("step")[3].at("phase"), "timed");
  EXPECT_EQ(r.of("step")[3].at("step"), 3);
  EXPECT_EQ(finished_, 1);
}

TEST_F(StepCollectorTest, StepsAfterThePlanAreLeftAlone) {
  begin({{Phase::timed, 1}});
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(lines().of("step").size(), 1u);
  EXPECT_THAT(gpu_.log, IsEmpty());
  EXPECT_TRUE(collector_->done());
}

TEST_F(StepCollectorTest, LastWarmupStepSizesTheCounterImage) {
  begin({{Phase::warmup, 2}, {Phase::timed, 1}, {Phase::counters, 1}});
  step();
  EXPECT_THAT(gpu_.log, IsEmpty());
  step();
  EXPECT_THAT(gpu_.log, ElementsAre("callbacks kernels", "callbacks off"));
  gpu_.log.clear();
  step();
  EXPECT_THAT(gpu_.log, IsEmpty());
  step();
  ASSERT_EQ(gpu_.requests.size(), 1u);
  EXPECT_EQ(gpu_.requests[0].max_ranges, 5);  // 4 launches, 10% more, at least one
  EXPECT_FALSE(gpu_.requests[0].user_ranges);
}

// The mixed trainer replays graphs, of which the counted step launches every kernel by itself: an image of 2048 ranges was full before its end.
TEST_F(StepCollectorTest, NodesOfTheGraphsThatTheWarmupStepReplaysSizeTheCounterImage) {
  begin({{Phase::warmup, 2}, {Phase::counters, 1}});
  push("step");
  constexpr uint64_t kCaptured = uint64_t{5} << 32, kInstantiated = uint64_t{6} << 32, kSmall = uint64_t{7} << 32;
  for (uint64_t node = 0; node < 300; ++node) {
    collector_->graph_node_created(kCaptured + node);
    collector_->graph_node_cloned(kInstantiated + node, kCaptured + node);
  }
  collector_->graph_node_created(kSmall);
  pop();
  push("step");
  for (int replay = 0; replay < 10; ++replay) gpu_.launch("", LaunchKind::graph);
  gpu_.launch("", LaunchKind::graph, LaunchEnd::failed);
  gpu_.launch("_Z4gemmv");
  pop();
  step();
  ASSERT_EQ(gpu_.requests.size(), 1u);
  EXPECT_EQ(gpu_.requests[0].max_ranges, 3302);  // 10 * 300 + 1, a tenth more, one more
}

TEST_F(StepCollectorTest, AReplayOfFewNodesHasTheRoomOfAnUnknownStep) {
  begin({{Phase::warmup, 1}, {Phase::counters, 1}});
  push("step");
  gpu_.launch("", LaunchKind::graph);  // captured before anybody listened
  gpu_.launch("_Z4gemmv");
  pop();
  step();
  ASSERT_EQ(gpu_.requests.size(), 1u);
  EXPECT_EQ(gpu_.requests[0].max_ranges, 2048);
}

TEST_F(StepCollectorTest, CountersArePerKernelInLaunchOrderWithNamePathAndGrid) {
  begin({{Phase::warmup, 1}, {Phase::counters, 1}});
  step();
  gpu_.log.clear();
  step();
  EXPECT_THAT(gpu_.log, ElementsAre("sync", "enable auto", "callbacks kernels", "start", "sync", "stop", "callbacks off", "disable"));
  const auto r = lines();
  const auto sets = r.of("counter_set");
  ASSERT_EQ(sets.size(), 1u);
  EXPECT_EQ(sets[0].at("name"), "core");
  EXPECT_EQ(sets[0].at("launches"), 4);
  EXPECT_EQ(sets[0].at("ranges"), 4);
  const auto counters = r.of("counters");
  ASSERT_EQ(counters.size(), 4u);
  EXPECT_EQ(counters[1].at("index"), 1);
  EXPECT_EQ(counters[1].at("kernel"), "bias()");
  EXPECT_EQ(counters[1].at("path"), "step/forward/0/qkv");
  EXPECT_EQ(counters[3].at("path"), "step/optimizer/-/adamw");
  EXPECT_EQ(counters[0].at("grid"), nlohmann::json({3, 2, 1}));
  EXPECT_EQ(counters[0].at("step"), 1);
  EXPECT_TRUE(r.complete());
}

TEST_F(StepCollectorTest, ASetWithTooFewRangesIsNeverAttributed) {
  begin({{Phase::counters, 1}});
  gpu_.spoil = [](SessionValues& v) { v.ranges.pop_back(); };
  step();
  const auto r = lines();
  EXPECT_THAT(r.of("counters"), IsEmpty());
  EXPECT_EQ(r.missing("counter_set_failed"), 1);
  EXPECT_EQ(r.of("counter_set")[0].at("ranges"), 3);
  EXPECT_EQ(r.of("counter_set")[0].at("launches"), 4);
}

TEST_F(StepCollectorTest, AValueThatIsNotANumberSpoilsTheSet) {
  begin({{Phase::counters, 1}});
  gpu_.spoil = [](SessionValues& v) { v.ranges[2].values[1] = std::numeric_limits<double>::quiet_NaN(); };
  step();
  EXPECT_THAT(lines().of("counters"), IsEmpty());
  EXPECT_EQ(lines().missing("counter_set_failed"), 1);
}

TEST_F(StepCollectorTest, AnInfiniteValueSpoilsTheSetToo) {
  begin({{Phase::counters, 1}});
  gpu_.spoil = [](SessionValues& v) { v.ranges[0].values[0] = std::numeric_limits<double>::infinity(); };
  step();
  EXPECT_THAT(lines().of("counters"), IsEmpty());
  EXPECT_EQ(lines().missing("counter_set_failed"), 1);
}

// A hit rate of a kernel that read nothing: all kernels lost all their counters.
TEST_F(StepCollectorTest, AMetricAskedForByNameWithoutAValueCostsThatKernelNothingElse) {
  begin({{Phase::counters, 1}}, {"gpu__time_duration.sum", "dram__bytes_read.sum"});
  gpu_.spoil = [](SessionValues& v) { v.ranges[2].values[1] = std::numeric_limits<double>::quiet_NaN(); };
  step();
  const auto r = lines();
  EXPECT_EQ(r.missing("counter_set_failed"), 0);
  EXPECT_EQ(r.missing("metric_without_value"), 1);
  EXPECT_EQ(r.of("missing")[0].at("detail"), "dram__bytes_read.sum of 1 kernels");
  const auto sets = r.of("counter_set");
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0].at("name"), "core");
  EXPECT_EQ(sets[0].at("launches"), 3);
  EXPECT_EQ(sets[0].at("ranges"), 3);
  EXPECT_EQ(sets[1].at("metrics"), nlohmann::json({"gpu__time_duration.sum"}));
  EXPECT_EQ(sets[1].at("launches"), 1);
  const auto counters = r.of("counters");
  ASSERT_EQ(counters.size(), 4u);
  EXPECT_EQ(counters[2].at("set"), sets[1].at("name"));
  EXPECT_EQ(counters[2].at("values").size(), 1u);
  EXPECT_EQ(counters[3].at("set"), "core");
}

TEST_F(StepCollectorTest, OurOwnSetsAreNumbersOfEveryKernel) {
  begin({{Phase::counters, 1}}, {"set:tf32"});
  gpu_.spoil = [](SessionValues& v) { v.ranges[2].values[1] = std::numeric_limits<double>::quiet_NaN(); };
  step();
  EXPECT_THAT(lines().of("counters"), IsEmpty());
  EXPECT_EQ(lines().missing("counter_set_failed"), 1);
}

TEST_F(StepCollectorTest, APassForWhichAMetricAskedForByNameHasNoValueKeepsItsOthers) {
  begin({{Phase::pass_counters, 1}}, {"gpu__time_duration.sum", "dram__bytes_read.sum"});
  gpu_.spoil = [](SessionValues& v) { v.ranges[1].values[1] = std::numeric_limits<double>::quiet_NaN(); };
  push("step");
  op("forward/0/qkv", {"a"});
  op("backward/1/qkv", {"c"});
  pop();
  const auto r = lines();
  EXPECT_EQ(r.missing("counter_set_failed"), 0);
  EXPECT_EQ(r.missing("metric_without_value"), 1);
  ASSERT_EQ(r.of("counters").size(), 2u);
  EXPECT_EQ(r.of("counters")[0].at("values").size(), 2u);
  EXPECT_EQ(r.of("counters")[1].at("values").size(), 1u);
}

TEST_F(StepCollectorTest, FailedAndCapturedLaunchesAreNoRanges) {
  begin({{Phase::counters, 1}});
  push("step");
  gpu_.launch("_Z1av");
  gpu_.launch("_Z1bv", LaunchKind::kernel, LaunchEnd::failed);
  gpu_.launch("_Z1cv", LaunchKind::kernel, LaunchEnd::captured);
  gpu_.launch("_Z1dv");
  pop();
  const auto counters = lines().of("counters");
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_EQ(counters[1].at("kernel"), "d()");
}

TEST_F(StepCollectorTest, AGraphInTheCounterStepIsNamedAndEndsTheCounters) {
  begin({{Phase::counters, 2}, {Phase::timed, 1}});
  gpu_.fail_stop = Failure{"counter_set_failed", "999"};
  for (int i = 0; i < 2; ++i) {
    push("step");
    gpu_.launch("_Z1av");
    gpu_.launch("", LaunchKind::graph);
    pop();
  }
  step();
  const auto r = lines();
  EXPECT_EQ(r.missing("graph_launch_in_counter_run"), 1);
  EXPECT_THAT(r.of("counters"), IsEmpty());
  EXPECT_EQ(std::count(gpu_.log.begin(), gpu_.log.end(), "start"), 1);
  EXPECT_TRUE(r.complete());
}

TEST_F(StepCollectorTest, WithoutPermissionTheTimingStands) {
  begin({{Phase::warmup, 1}, {Phase::timed, 2}, {Phase::counters, 1}, {Phase::pass_counters, 1}, {Phase::activity, 3}});
  gpu_.fail_enable = Failure{"counters_unavailable", "35"};
  for (int i = 0; i < 8; ++i) step();
  const auto r = lines();
  EXPECT_EQ(r.missing("counters_unavailable"), 2);
  EXPECT_EQ(std::count(gpu_.log.begin(), gpu_.log.end(), "start"), 0);
  EXPECT_EQ(r.of("launch").size(), 4u);
  EXPECT_EQ(r.of("step").size(), 8u);
  EXPECT_TRUE(r.complete());
}

TEST_F(StepCollectorTest, PassRangesFollowTheSecondComponentAndEqualNamesMerge) {
  begin({{Phase::pass_counters, 1}});
  push("step");
  op("forward/0/qkv", {"a"});
  op("forward/1/qkv", {"b"});
  op("backward/1/qkv", {"c"});
  op("forward/0/qkv", {"d"});  // the next micro-batch
  pop();
  std::vector<std::string> ranges;
  for (const auto& l : gpu_.log)
    if (l.starts_with("push") || l == "pop") ranges.push_back(l);
  EXPECT_THAT(ranges, ElementsAre("push forward", "pop", "push backward", "pop", "push forward", "pop"));
  const auto r = lines();
  ASSERT_EQ(r.of("counters").size(), 2u);
  EXPECT_EQ(r.of("counters")[0].at("pass"), "forward");
  EXPECT_EQ(r.of("counters")[0].at("index"), -1);
  EXPECT_EQ(r.of("counters")[0].at("set"), r.of("counter_set")[0].at("name"));
  EXPECT_EQ(r.of("counter_set")[0].at("launches"), 2);
  EXPECT_TRUE(gpu_.requests[0].user_ranges);
}

// Ranks that are counted exchange nothing: their pass `communication` is a range around nothing.
TEST_F(StepCollectorTest, APassWithoutKernelsAndWithoutRatiosSpoilsNoOther) {
  begin({{Phase::pass_counters, 1}});
  gpu_.spoil = [](SessionValues& v) { v.ranges[1].values[1] = std::numeric_limits<double>::quiet_NaN(); };
  push("step");
  op("forward/0/qkv", {"a"});
  op("communication/-/reduce_gradients", {});
  op("backward/1/qkv", {"c"});
  pop();
  const auto r = lines();
  ASSERT_EQ(r.of("counters").size(), 2u);
  EXPECT_EQ(r.of("counters")[0].at("pass"), "forward");
  EXPECT_EQ(r.of("counters")[1].at("pass"), "backward");
  EXPECT_EQ(r.of("counter_set")[0].at("launches"), r.of("counter_set")[0].at("ranges"));
  EXPECT_EQ(r.missing("counter_set_failed"), 0);
}
TEST_F(StepCollectorTest, APassWithKernelsAndWithoutRatiosSpoilsTheSet) {
  begin({{Phase::pass_counters, 1}});
  gpu_.spoil = [](SessionValues& v) { v.ranges[1].values[1] = std::numeric_limits<double>::quiet_NaN(); };
  push("step");
  op("forward/0/qkv", {"a"});
  op("backward/1/qkv", {"c"});
  pop();
  EXPECT_THAT(lines().of("counters"), IsEmpty());
  EXPECT_EQ(lines().missing("counter_set_failed"), 1);
}

TEST_F(StepCollectorTest, EachStepCountedByPassHasItsOwnLaunches) {
  begin({{Phase::pass_counters, 2}});
  for (int i = 0; i < 2; ++i) step();
  const auto steps = lines().of("step");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].at("kernels"), 4);
  EXPECT_EQ(steps[1].at("kernels"), 4);
}

// Both phases ask for the same metrics: what the GPU does not have is told once, by the one that counts kernels.
TEST_F(StepCollectorTest, MetricsThatTheGpuDoesNotHaveAreToldOnce) {
  begin({{Phase::counters, 1}, {Phase::pass_counters, 1}});
  gpu_.choice.left_out = {{"tensor use", "no such metric"}};
  for (int i = 0; i < 2; ++i) step();
  EXPECT_EQ(lines().missing("counters_unavailable"), 1);
  ASSERT_EQ(lines().of("missing").size(), 1u);
  EXPECT_EQ(lines().of("missing")[0].at("detail"), "tensor use: no such metric");
}
TEST_F(StepCollectorTest, MetricsLeftOutBeforePassesAloneAreCountedAreNotTold) {
  begin({{Phase::pass_counters, 1}});
  gpu_.choice.left_out = {{"tensor use", "no such metric"}};
  step();
  EXPECT_EQ(lines().missing("counters_unavailable"), 0);
}

TEST_F(StepCollectorTest, AStepWithoutRangesInItIsNotCountedByPass) {
  begin({{Phase::warmup, 1}, {Phase::counters, 1}, {Phase::pass_counters, 1}});
  for (int i = 0; i < 3; ++i) {
    push("step");
    gpu_.launch("k");
    pop();
  }
  ASSERT_EQ(gpu_.requests.size(), 1u);
  EXPECT_FALSE(gpu_.requests[0].user_ranges);
  EXPECT_EQ(lines().of("counter_set").size(), 1u);
  EXPECT_EQ(lines().missing("counter_set_failed"), 0);
  EXPECT_TRUE(lines().complete());
}

TEST_F(StepCollectorTest, AStepBeginsBeforeWhatIsSetUpForIt) {
  begin({{Phase::timed, 1}, {Phase::counters, 1}});
  gpu_.slow_enable = std::chrono::milliseconds(30);
  step();
  step();
  const auto steps = lines().of("step");
  ASSERT_EQ(steps.size(), 2u);
  const auto pitch = steps[1].at("host_begin_ns").get<int64_t>() - steps[0].at("host_begin_ns").get<int64_t>();
  EXPECT_LE(pitch, steps[1].at("host_end_ns").get<int64_t>() - steps[0].at("host_begin_ns").get<int64_t>() - 30'000'000)
      << "the time of the timed step would hold the set-up of the counters";
}

TEST_F(StepCollectorTest, PassChangesOfTheWarmupStepGiveTheRoomForPassRanges) {
  begin({{Phase::warmup, 1}, {Phase::pass_counters, 1}});
  const auto micro_batches = [&] {
    push("step");
    for (int i = 0; i < 50; ++i) {
      op("forward/0/qkv", {"a"});
      op("backward/0/qkv", {"b"});
    }
    pop();
  };
  micro_batches();
  micro_batches();
  EXPECT_GE(gpu_.requests[0].max_ranges, 100);
}

TEST_F(StepCollectorTest, TracedStepsAreOneTraceWithTheFirstTwoDiscarded) {
  begin({{Phase::activity, 4}});
  for (int i = 0; i < 4; ++i) step();
  EXPECT_THAT(gpu_.log, ElementsAre("sync", "callbacks all", "trace on", "sync", "callbacks off", "trace off"));
  const auto r = lines();
  ASSERT_EQ(r.of("step").size(), 4u);
  EXPECT_EQ(r.of("step")[0].at("phase"), "warmup");
  EXPECT_EQ(r.of("step")[1].at("phase"), "warmup");
  EXPECT_EQ(r.of("step")[2].at("phase"), "activity");
  EXPECT_EQ(r.of("step")[3].at("kernels"), 4);
  ASSERT_EQ(r.of("launch").size(), 4u);
  EXPECT_EQ(r.of("launch")[2].at("path"), "step/forward/1/qkv");
  EXPECT_EQ(r.of("launch")[2].at("step"), 3);
  ASSERT_EQ(r.of("stats").size(), 4u);
  EXPECT_EQ(r.of("stats")[0].at("samples"), 2);
  EXPECT_TRUE(r.complete());
}

TEST_F(StepCollectorTest, CountersAfterTracingAreRefused) {
  begin({{Phase::activity, 1}, {Phase::counters, 1}});
  step();
  step();
  EXPECT_THAT(gpu_.requests, IsEmpty());
  EXPECT_EQ(lines().missing("counters_unavailable"), 1);
  EXPECT_TRUE(lines().complete());
}

TEST_F(StepCollectorTest, NumberedStepsHaveOnePath) {
  begin({{Phase::activity, 1}});
  push("step 17");
  op("forward/0/qkv", {"a"});
  pop();
  EXPECT_EQ(lines().of("launch")[0].at("path"), "step/forward/0/qkv");
}

TEST_F(StepCollectorTest, ARangeNamedStepInsideAStepIsNoStep) {
  begin({{Phase::timed, 2}});
  push("outer");
  push("step");
  push("step");
  pop();
  EXPECT_THAT(lines().of("step"), IsEmpty());
  pop();
  EXPECT_EQ(lines().of("step").size(), 1u);
  pop();
}

TEST_F(StepCollectorTest, LaunchesOfAThreadWithoutRangesBelongToTheStep) {
  begin({{Phase::activity, 1}});
  push("step");
  push("backward/0/qkv");
  std::thread([&] { gpu_.launch("from_another_thread"); }).join();
  pop();
  pop();
  ASSERT_EQ(lines().of("launch").size(), 1u);
  EXPECT_EQ(lines().of("launch")[0].at("path"), "step");
}

TEST_F(StepCollectorTest, AProgramThatEndsEarlyLeavesACompleteRecordingThatSaysSo) {
  begin({{Phase::timed, 1}, {Phase::activity, 9}});
  step();
  step();
  collector_->process_ends();
  const auto r = lines();
  EXPECT_TRUE(r.complete());
  EXPECT_EQ(r.missing("phases_not_traced"), 1);
  collector_->process_ends();  // atexit after the end of the plan: nothing more
  EXPECT_EQ(lines().all.size(), r.all.size());
}

TEST_F(StepCollectorTest, AProgramThatEndsInsideTheTraceKeepsWhatWasTraced) {
  begin({{Phase::activity, 9}});
  for (int i = 0; i < 5; ++i) step();
  collector_->process_ends();
  const auto r = lines();
  EXPECT_EQ(r.of("launch").size(), 4u);
  EXPECT_EQ(r.of("stats")[0].at("samples"), 3);
  EXPECT_EQ(r.missing("phases_not_traced"), 0);
  EXPECT_TRUE(r.complete());
}

// As a sustained run asks for: all steps that the program has, however few they are.
TEST_F(StepCollectorTest, APlanOfTimedStepsAloneMissesNoTrace) {
  begin({{Phase::timed, 1000}});
  step();
  step();
  collector_->process_ends();
  EXPECT_EQ(lines().of("step").size(), 2u);
  EXPECT_EQ(lines().missing("phases_not_traced"), 0);
}

TEST_F(StepCollectorTest, AProgramWithoutStepRangesSaysSo) {
  begin({{Phase::timed, 1}});
  push("epoch");
  pop();
  collector_->process_ends();
  EXPECT_EQ(lines().missing("phases_not_traced"), 1);
  EXPECT_EQ(lines().of("session").size(), 1u);
}

TEST_F(StepCollectorTest, AForkedChildWritesNothing) {
  begin({{Phase::timed, 5}});
  step();
  const size_t before = lines().all.size();
  collector_->abandon();
  step();
  collector_->process_ends();
  EXPECT_EQ(lines().all.size(), before);
}

TEST_F(StepCollectorTest, APlanWithoutStepsIsRefused) { EXPECT_THROW(begin({{Phase::timed, 0}}), std::runtime_error); }

}  // namespace
}  // namespace profiler::collect
