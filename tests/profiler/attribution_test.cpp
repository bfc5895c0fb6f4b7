// Where the step's time goes, and that it cannot go anywhere unseen.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/errors.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;
using fixture::is_missing;
using fixture::Kernel;
using fixture::pass_group;

double parts(const Attribution& a) {
  double sum = a.unattributed_ns + a.idle_ns;
  for (const Group& g : a.passes) sum += g.sums.time_ns;
  return sum;
}

const std::vector<Kernel> kThree = {{"forward/0/qkv", "gemm", 100'000, 1e6, 1e6, 50},
                                    {"forward/0/gelu", "gelu", 50'000, 2e6, 2e6, 0},
                                    {"backward/0/qkv", "gemm", 200'000, 3e6, 3e6, 10}};

TEST(Attribution, EveryLaunchGoesToThePassAndOpOfItsRange) {
  const Recording r = fixture::recording(kThree);
  const auto a = attribute(r, fixture::input());
  ASSERT_TRUE(a);
  ASSERT_EQ(a->passes.size(), 2u);
  EXPECT_DOUBLE_EQ(pass_group(*a, "forward")->sums.time_ns, 150'000);
  EXPECT_DOUBLE_EQ(pass_group(*a, "backward")->sums.time_ns, 200'000);
  EXPECT_EQ(pass_group(*a, "forward")->sums.launches, 2);
  EXPECT_EQ(a->kernels.size(), 3u) << "the same kernel in another pass is another row";
  EXPECT_DOUBLE_EQ(a->time_ns, 352'000);
  EXPECT_DOUBLE_EQ(a->idle_ns, 2000);
  EXPECT_DOUBLE_EQ(a->unattributed_ns, 0);
  EXPECT_DOUBLE_EQ(parts(*a), a->time_ns);
  EXPECT_TRUE(a->missing.empty());
}

TEST(Attribution, TheOrderOfLinesDoesNotMatter) {
  const Recording good = fixture::gpt2_recording();
  Recording r = good;
  std::mt19937 random(7);
  const auto shuffle = [&](auto& list) { std::shuffle(list.begin(), list.end(), random); };
  shuffle(r.launches);
  shuffle(r.stats);
  shuffle(r.steps);
  shuffle(r.counters);
  shuffle(r.counter_sets);
  shuffle(r.environment);
  const auto a = attribute(good, fixture::input()), b = attribute(r, fixture::input());
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->missing.size(), b->missing.size());
  EXPECT_DOUBLE_EQ(a->time_ns, b->time_ns);
  ASSERT_EQ(a->kernels.size(), b->kernels.size());
  for (size_t i = 0; i < a->kernels.size(); ++i) {
    EXPECT_DOUBLE_EQ(a->kernels[i].sums.time_ns, b->kernels[i].sums.time_ns);
    EXPECT_EQ(a->kernels[i].sums.dram_read_bytes, b->kernels[i].sums.dram_read_bytes);
  }
}

TEST(Attribution, AKernelOutsideEveryLeafRangeIsUnattributedNotGuessed) {
  auto kernels = kThree;
  kernels[1].path = "";  // its name still says gelu
  const Recording r = fixture::recording(kernels);
  const auto a = attribute(r, fixture::input());
  EXPECT_DOUBLE_EQ(a->unattributed_ns, 50'000);
  EXPECT_DOUBLE_EQ(pass_group(*a, "forward")->sums.time_ns, 100'000);
  EXPECT_DOUBLE_EQ(parts(*a), a->time_ns);
  EXPECT_TRUE(is_missing(a->missing, "unattributed_kernels"));

  kernels[1].path = "forward/0/swiglu";
  const Recording unknown = fixture::recording(kernels);
  const auto b = attribute(unknown, fixture::input());
  EXPECT_DOUBLE_EQ(b->unattributed_ns, 50'000);
  EXPECT_TRUE(is_missing(b->missing, "unknown_range_path"));
  EXPECT_FALSE(is_missing(b->missing, "unattributed_kernels"));
}

TEST(Attribution, UnattributedTimeIsOfAllLaunchesOutside) {
  auto kernels = kThree;
  kernels[0].path = kernels[1].path = "";
  const Recording r = fixture::recording(kernels);
  const auto a = attribute(r, fixture::input());
  EXPECT_DOUBLE_EQ(a->unattributed_ns, 150'000);
  EXPECT_DOUBLE_EQ(parts(*a), a->time_ns);
}

TEST(Attribution, ACopyThatTheStepCountedAndNobodyRecordedIsLost) {
  Recording r = fixture::recording(kThree);
  EXPECT_FALSE(is_missing(attribute(r, fixture::input())->missing, "records_lost_in_step"));
  r.steps[0].copies = 1;
  EXPECT_TRUE(is_missing(attribute(r, fixture::input())->missing, "records_lost_in_step"));
}

TEST(Attribution, ADroppedRecordFails) {
  Recording r = fixture::gpt2_recording();
  r.launches.erase(r.launches.begin() + 5);
  const auto a = attribute(r, fixture::input());
  EXPECT_TRUE(is_missing(a->missing, "records_lost_in_step"));

  Recording without_count = fixture::gpt2_recording();  // the step's own count is gone too; the statistics still know the index
  without_count.launches.erase(without_count.launches.begin() + 5);
  for (StepRecord& s : without_count.steps) --s.kernels;
  EXPECT_TRUE(is_missing(attribute(without_count, fixture::input())->missing, "records_lost_in_step"));

  Recording memset = fixture::gpt2_recording();
  std::erase_if(memset.launches, [](const LaunchRecord& l) { return l.activity == Activity::memset; });
  memset.stats.clear();
  EXPECT_TRUE(is_missing(attribute(memset, fixture::input())->missing, "records_lost_in_step"));
}

TEST(Attribution, AStepThatEndsBeforeItsKernelsDoIsNotConserved) {
  Recording r = fixture::recording(kThree);
  r.steps[0].gpu_end_ns -= 50'000;
  const auto a = attribute(r, fixture::input());
  EXPECT_TRUE(is_missing(a->missing, "pass_sum_mismatch"));
  EXPECT_GT(a->conservation_error_ns, a->time_ns * kConservation_pct / 100);
}

TEST(Attribution, TwoStreamsThatOverlapShareTheTimeAndStillAddUp) {
  Recording r = fixture::recording(kThree);
  // The gelu moves to another stream and runs inside the first gemm.
  LaunchRecord& gelu = r.launches[1];
  gelu.stream = 8;
  gelu.start_ns = r.launches[0].start_ns + 20'000;
  gelu.end_ns = gelu.start_ns + 50'000;
  const auto a = attribute(r, fixture::input());
  EXPECT_EQ(a->streams, 2);
  EXPECT_DOUBLE_EQ(a->timeline.overlap_ns, 50'000);
  EXPECT_DOUBLE_EQ(pass_group(*a, "forward")->sums.time_ns, 100'000);
  EXPECT_DOUBLE_EQ(pass_group(*a, "forward")->sums.duration_ns, 150'000);
  EXPECT_DOUBLE_EQ(parts(*a), a->time_ns);
  EXPECT_FALSE(is_missing(a->missing, "pass_sum_mismatch"));
}

TEST(Attribution, UnattributedLaunchesThatOverlapShareTheTimeToo) {
  auto kernels = kThree;
  kernels[0].path = kernels[1].path = "";
  Recording r = fixture::recording(kernels);
  r.launches[1].stream = 8;
  r.launches[1].start_ns = r.launches[0].start_ns + 20'000;
  r.launches[1].end_ns = r.launches[1].start_ns + 50'000;
  const auto a = attribute(r, fixture::input());
  EXPECT_DOUBLE_EQ(a->unattributed_ns, 100'000) << "not 150'000, the sum of their durations";
  EXPECT_DOUBLE_EQ(parts(*a), a->time_ns);
}

TEST(Attribution, ADurationIsTheMedianOverTheTracedSteps) {
  Recording r = fixture::recording(kThree);
  for (int64_t i = 0; i < 3; ++i) {
    const double own = static_cast<double>(r.launches[static_cast<size_t>(i)].end_ns - r.launches[static_cast<size_t>(i)].start_ns);
    const double median = i == 1 ? own + 500 : own;  // 0.14% of the step: still adds up
    r.stats.push_back({Activity::kernel, i, 5, median, median, median, 2 * median});
  }
  const auto a = attribute(r, fixture::input());
  EXPECT_TRUE(a->from_medians);
  EXPECT_DOUBLE_EQ(a->launches[1].duration_ns, 50'500);
  EXPECT_EQ(a->launches[1].samples, 5);
}

// A report of another tool has one sample of each kernel, with parts of a nanosecond that its record cannot hold.
TEST(Attribution, AStatisticOfOneSampleIsTheDuration) {
  Recording r = fixture::recording(kThree);
  r.stats.push_back({Activity::kernel, 1, 1, 50'000.5, 50'000.5, 50'000.5, 50'000.5});
  const auto a = attribute(r, fixture::input());
  EXPECT_TRUE(a->from_medians);
  EXPECT_DOUBLE_EQ(a->launches[1].duration_ns, 50'000.5);
}

TEST(Attribution, WithoutStatisticsMediansComeFromStepsKeptInFull) {
  Recording r = fixture::recording(kThree);
  const auto shown = r.launches;
  for (const int64_t step : {10, 11}) {
    for (LaunchRecord l : shown) {
      l.step = step;
      l.start_ns -= (12 - step) * 10'000'000;
      l.end_ns -= (12 - step) * 10'000'000;
      if (l.index == 1) l.end_ns += step == 10 ? 300 : 200;  // 300, 200, 0: median 200
      r.launches.push_back(l);
    }
  }
  const auto a = attribute(r, fixture::input());
  EXPECT_EQ(a->step, 12);
  EXPECT_DOUBLE_EQ(a->launches[1].duration_ns, 50'200);
  EXPECT_EQ(a->launches[1].samples, 3);
  EXPECT_FALSE(is_missing(a->missing, "kernel_sequence_changed"));

  for (LaunchRecord& l : r.launches)
    if (l.step == 11 && l.index == 2) l.name = "another gemm";
  EXPECT_TRUE(is_missing(attribute(r, fixture::input())->missing, "kernel_sequence_changed"));
  for (LaunchRecord& l : r.launches)
    if (l.step == 10 && l.index == 0) l.name = "yet another";
  const auto two = attribute(r, fixture::input());
  const auto row =
      std::find_if(two->missing.begin(), two->missing.end(), [](const MissingRecord& m) { return m.name == "kernel_sequence_changed"; });
  ASSERT_NE(row, two->missing.end());
  EXPECT_EQ(row->count, 2);
  EXPECT_EQ(row->detail, "step 10: kernel 0 is 'yet another', in step 12 '" + shown[0].name + "'") << "the first of them";
}

// A recording of ours holds the launches of one traced step. Of the others nobody looked at the counts, so medians stood for steps of 55 and
// of 48 kernels.
TEST(Attribution, AStepThatLaunchedMoreThanTheOneShownHasNoMedianWithIt) {
  Recording r = fixture::gpt2_recording();
  EXPECT_TRUE(attribute(r, fixture::input())->from_medians);
  const auto step = [](Recording& of, int64_t number) -> StepRecord& {
    return *std::find_if(of.steps.begin(), of.steps.end(), [&](const StepRecord& s) { return s.step == number; });
  };
  ++step(r, 11).kernels;
  step(r, 10).memsets = 0;
  const auto a = attribute(r, fixture::input());
  EXPECT_FALSE(a->from_medians);
  const auto row =
      std::find_if(a->missing.begin(), a->missing.end(), [](const MissingRecord& m) { return m.name == "kernel_sequence_changed"; });
  ASSERT_NE(row, a->missing.end());
  EXPECT_EQ(row->count, 2);
  EXPECT_EQ(row->detail, "step 10: kernels 19, copies 1, memsets 0; step 12: 19, 1, 1");
  // Records that were dropped are not counted, which says nothing about what was launched.
  r.missing.push_back({"dropped_activity_records", 2, ""});
  EXPECT_FALSE(is_missing(attribute(r, fixture::input())->missing, "kernel_sequence_changed"));
}

// A copy of the next batch on a stream of its own: the step began with it, and the kernels of the step before stood in its idle time.
TEST(Attribution, AStepThatBeginsBeforeTheOneBeforeHasEndedIsNamed) {
  Recording r = fixture::recording(kThree);
  EXPECT_FALSE(is_missing(attribute(r, fixture::input())->missing, "steps_overlap"));
  StepRecord before = r.steps.front();
  const int64_t length = before.gpu_end_ns - before.gpu_begin_ns;
  before.step -= 1;
  const auto said = [&](int64_t overlap_ns, int64_t begins_before_ns) {
    Recording both = r;
    StepRecord s = before;
    s.gpu_begin_ns -= begins_before_ns;
    s.gpu_end_ns = r.steps.front().gpu_begin_ns + overlap_ns;
    both.steps.insert(both.steps.begin(), s);
    const auto a = attribute(both, fixture::input());
    for (const MissingRecord& m : a->missing)
      if (m.name == "steps_overlap") return m.detail;
    return std::string();
  };
  EXPECT_EQ(said(-1000, length), "");
  EXPECT_EQ(said(length / 400, length), "") << "programmatic dependent launch";
  EXPECT_EQ(said(100'000, length), "step 12 of 0.352 ms on the GPU and a neighbour run at once for up to 0.100 ms");
}

TEST(Attribution, MediansThatDoNotAddUpGiveWayToOneStepAndSaySo) {
  Recording r = fixture::recording(kThree);
  for (int64_t i = 0; i < 3; ++i) r.stats.push_back({Activity::kernel, i, 5, 300'000, 300'000, 1, 900'000});
  const auto a = attribute(r, fixture::input());
  EXPECT_FALSE(a->from_medians);
  const auto row = std::find_if(a->missing.begin(), a->missing.end(), [](const MissingRecord& m) { return m.name == "traced_steps_vary"; });
  ASSERT_NE(row, a->missing.end());
  EXPECT_NE(row->detail.find("% more than the median step, 0."), std::string::npos) << row->detail;
  EXPECT_NE(row->detail.find("; the step shown took 0."), std::string::npos) << row->detail;
  EXPECT_DOUBLE_EQ(a->launches[1].duration_ns, 50'000);
  EXPECT_DOUBLE_EQ(parts(*a), a->time_ns);
}

TEST(Attribution, AKernelWithoutATimeIsCountedAndAddsNothing) {
  Recording r = fixture::recording(kThree);
  r.launches[1].start_ns = r.launches[1].end_ns = 0;
  r.launches[2].end_ns = r.launches[2].start_ns - 1;
  r.launches[2].start_ns = r.launches[0].end_ns + 10;
  const auto a = attribute(r, fixture::input());
  ASSERT_TRUE(is_missing(a->missing, "kernels_without_time"));
  EXPECT_FALSE(is_missing(attribute(fixture::recording(kThree), fixture::input())->missing, "kernels_without_time"));
}

// Its bytes went over the time of the others, which read as more than the GPU can.
TEST(Attribution, AKernelWithoutATimeLeavesNoBandwidth) {
  Recording r = fixture::recording(kThree);
  r.launches[1].start_ns = r.launches[1].end_ns = 0;
  const auto a = attribute(r, fixture::input());
  ASSERT_TRUE(a);
  const Measured& forward = pass_group(*a, "forward")->sums;
  EXPECT_EQ(forward.dram_read_bytes, 3e6) << "of the counted step, which has it";
  EXPECT_FALSE(forward.dram_bytes_per_s);
  EXPECT_FALSE(forward.dram_of_ceiling_pct);
  EXPECT_FALSE(a->all.dram_bytes_per_s);
  EXPECT_TRUE(pass_group(*a, "backward")->sums.dram_bytes_per_s);
  EXPECT_TRUE(pass_group(*a, "backward")->sums.dram_of_ceiling_pct);
}

TEST(Attribution, TheSameLaunchTwiceIsAContradiction) {
  Recording r = fixture::recording(kThree);
  r.launches.push_back(r.launches[1]);
  EXPECT_THROW(attribute(r, fixture::input()), stepscope::InputError);
}

TEST(Attribution, NothingTracedIsNoAnswer) {
  Recording r = fixture::recording(kThree);
  r.launches.clear();
  EXPECT_FALSE(attribute(r, fixture::input()));
  EXPECT_FALSE(attribute(Recording{}, fixture::input()));
}

TEST(Attribution, AProgramWithoutStepsIsListedByKernelWithoutComplaint) {
  auto kernels = kThree;
  for (Kernel& k : kernels) k.path = "";
  Recording r = fixture::recording(kernels);
  for (LaunchRecord& l : r.launches) l.step = -1;
  for (CounterRecord& c : r.counters) c.step = -1;
  r.steps.clear();
  const auto a = attribute(r, fixture::input());
  ASSERT_TRUE(a);
  EXPECT_FALSE(a->step);
  EXPECT_TRUE(a->passes.empty());
  EXPECT_TRUE(a->missing.empty());
  ASSERT_EQ(a->kernels.size(), 2u);
  EXPECT_EQ(a->kernels[0].sums.launches, 2);
  EXPECT_DOUBLE_EQ(a->kernels[0].sums.time_ns, 300'000);
  EXPECT_DOUBLE_EQ(*a->kernels[0].sums.dram_read_bytes, 4e6);
  EXPECT_DOUBLE_EQ(a->time_ns, 352'000);
}

TEST(Attribution, FloorsOfOpsComeFromTheWorkModel) {
  Recording r = fixture::recording(kThree);
  AttributionInput in = fixture::input();
  // forward/0/qkv: 4e8 FLOP at 1e13 = 40 us > 1e7 B at 1e12 = 10 us. backward/0/qkv: 3e8 B = 300 us, more
  // than it took.
  in.work[*parse_leaf("forward/0/qkv")] = {4e8, 1e7};
  in.work[*parse_leaf("backward/0/qkv")] = {0, 3e8};
  in.work[*parse_leaf("optimizer/-/adamw")] = {0, 1e9};  // never ran: no time, no floor
  const auto a = attribute(r, in);
  const Group& forward = *pass_group(*a, "forward");
  ASSERT_TRUE(forward.work);
  EXPECT_DOUBLE_EQ(*forward.work->floor_ns, 40'000);
  EXPECT_DOUBLE_EQ(*forward.work->headroom_ns, 60'000);
  EXPECT_DOUBLE_EQ(*pass_group(*a, "backward")->work->headroom_ns, 0);
  EXPECT_EQ(a->passes.size(), 2u);
  for (const Group& g : a->ops)
    if (op_words()[static_cast<size_t>(*g.op)] == "gelu") {
      EXPECT_FALSE(g.work);
    }
}

TEST(Attribution, TheWorkOfAPassIsThatOfAllItsOps) {
  const Recording r = fixture::recording(kThree);
  AttributionInput in = fixture::input();
  in.work[*parse_leaf("forward/0/qkv")] = {4e8, 1e7};
  in.work[*parse_leaf("forward/0/gelu")] = {1e6, 3e7};
  const auto a = attribute(r, in);
  const Group& forward = *pass_group(*a, "forward");
  ASSERT_TRUE(forward.work);
  EXPECT_DOUBLE_EQ(forward.work->flops, 4.01e8);
  EXPECT_DOUBLE_EQ(forward.work->min_bytes, 4e7);
}

TEST(Attribution, AProgramWithoutLeafRangesIsNotToldOfKernelsOutsideThem) {
  const Recording none = fixture::recording({{"", "a(float)", 10'000, 1e6, 1e6, 0}, {"loss", "b(float)", 20'000, 1e6, 1e6, 0}});
  AttributionInput in = fixture::input();
  EXPECT_TRUE(is_missing(attribute(none, in)->missing, "unattributed_kernels")) << "a trainer of ours has leaf ranges";
  EXPECT_TRUE(is_missing(attribute(none, in)->missing, "unknown_range_path"));
  in.foreign = true;
  EXPECT_FALSE(is_missing(attribute(none, in)->missing, "unattributed_kernels"));
  EXPECT_FALSE(is_missing(attribute(none, in)->missing, "unknown_range_path"));
  const Recording some = fixture::recording({{"", "a(float)", 10'000, 1e6, 1e6, 0}, {"forward/0/qkv", "b(float)", 20'000, 1e6, 1e6, 0}});
  EXPECT_TRUE(is_missing(attribute(some, in)->missing, "unattributed_kernels"));
}

}  // namespace
