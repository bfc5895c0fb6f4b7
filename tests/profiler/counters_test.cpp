// Counters are merged when the counted step is the traced one, weighted when they are added up, and absent
// otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <utility>

#include "profiler/attribute/counters.h"
#include "profiler/attribute/numbers.h"
#include "profiler/attribute/sums.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;
using fixture::is_missing;
using fixture::pass_group;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

const std::vector<fixture::Kernel> kTwo = {{"forward/0/qkv", "gemm", 100'000, 1e6, 2e6, 80},
                                           {"forward/0/gelu", "gelu", 300'000, 10e6, 20e6, 0}};

std::string detail_of(const Attribution& a, const std::string& name) {
  for (const MissingRecord& m : a.missing)
    if (m.name == name) return m.detail;
  return "";
}

TEST(Counters, PercentagesAreWeightedBySmCyclesNeverAveraged) {
  const Recording r = fixture::recording(kTwo);
  const auto a = attribute(r, fixture::input());
  const Measured& s = pass_group(*a, "forward")->sums;
  EXPECT_DOUBLE_EQ(*s.tensor_active_pct, 20) << "80% of 100 us and 0% of 300 us; the mean would be 40";
  EXPECT_DOUBLE_EQ(*s.dram_read_bytes, 11e6);
  EXPECT_DOUBLE_EQ(*s.dram_bytes_per_s, 33e6 / 400e-6);
  EXPECT_DOUBLE_EQ(*s.occupancy_pct, 50);
}

TEST(Counters, AnotherKernelNameInTheCountedStepIsReportedNotPaperedOver) {
  Recording r = fixture::recording(kTwo);
  r.counters[1].kernel = "relu";
  const auto a = attribute(r, fixture::input());
  EXPECT_TRUE(is_missing(a->missing, "counter_sequence_mismatch"));
  EXPECT_NE(detail_of(*a, "counter_sequence_mismatch").find("kernel 1: counted 'relu', traced 'gelu'"), std::string::npos);
  for (const AttributedLaunch& l : a->launches) EXPECT_FALSE(l.counters.dram_read_bytes) << "not even of the kernels that agree";
  EXPECT_FALSE(pass_group(*a, "forward")->sums.tensor_active_pct);
}

TEST(Counters, AnotherGridPathOrNumberOfKernelsIsAMismatchToo) {
  Recording grid = fixture::recording(kTwo), path = grid, fewer = grid, more = grid;
  grid.counters[0].grid = {1, 2, 3};
  path.counters[0].path = "step/forward/1/qkv";
  fewer.counters.pop_back();
  fewer.counter_sets[0].launches = fewer.counter_sets[0].ranges = 1;
  CounterRecord extra = more.counters[1];
  extra.index = 2;
  more.counters.push_back(extra);
  more.counter_sets[0].launches = more.counter_sets[0].ranges = 3;
  for (const Recording* r : {&grid, &path, &fewer, &more}) {
    const auto a = attribute(*r, fixture::input());
    EXPECT_TRUE(is_missing(a->missing, "counter_sequence_mismatch"));
    EXPECT_FALSE(a->launches[0].counters.dram_read_bytes);
  }
}

TEST(Counters, AGridThatDependsOnTheDataCostsThatKernelItsCountersOnly) {
  std::vector<fixture::Kernel> kernels;
  for (int i = 0; i < 20; ++i) kernels.push_back({i < 10 ? "forward/0/qkv" : "backward/0/qkv", "gemm", 100'000, 1e6, 2e6, 80});
  Recording r = fixture::recording(kernels);
  r.counters[15].grid = {1, 2, 3};
  const auto a = attribute(r, fixture::input());
  EXPECT_FALSE(is_missing(a->missing, "counter_sequence_mismatch"));
  EXPECT_NE(detail_of(*a, "counter_grid_differs").find("kernel 15 'gemm': counted with grid 1x2x3"), std::string::npos);
  EXPECT_TRUE(a->launches[14].counters.dram_read_bytes);
  EXPECT_FALSE(a->launches[15].counters.dram_read_bytes);
  EXPECT_TRUE(pass_group(*a, "forward")->sums.dram_read_bytes);
  EXPECT_FALSE(pass_group(*a, "backward")->sums.dram_read_bytes) << "nine tenths of a pass would look like an answer";
  r.counters[3].grid = {1, 2, 3};  // 10% are another workload
  EXPECT_TRUE(is_missing(attribute(r, fixture::input())->missing, "counter_sequence_mismatch"));
}

TEST(Counters, ACutProgramMayHaveCountedFewerButNotOthers) {
  Recording r = fixture::recording(kTwo);
  r.counters.pop_back();
  r.counter_sets[0].launches = r.counter_sets[0].ranges = 1;
  r.missing.push_back({"launches_not_kept", 100, ""});
  const auto a = attribute(r, fixture::input());
  EXPECT_TRUE(a->missing.empty());
  EXPECT_TRUE(a->launches[0].counters.dram_read_bytes);
  EXPECT_FALSE(pass_group(*a, "forward")->sums.dram_read_bytes) << "half the bytes of a pass would look like an answer";
}

// One graph launch, or one session that failed, took the counters of every kernel with it.
TEST(Counters, AProgramWithoutStepsKeepsWhatWasCountedBesideGraphsAndFailedSessions) {
  for (const size_t lost : {0u, 1u}) {
    Recording r = fixture::recording(kTwo);
    r.counters.erase(r.counters.begin() + static_cast<std::ptrdiff_t>(lost));
    r.counter_sets[0].launches = r.counter_sets[0].ranges = 1;
    r.missing.push_back({lost == 0 ? "counter_set_failed" : "graph_launch_in_counter_run", 1, ""});
    EXPECT_TRUE(is_missing(attribute(r, fixture::input())->missing, "counter_sequence_mismatch")) << "a step is counted whole";
    for (LaunchRecord& l : r.launches) l.step = -1;
    for (CounterRecord& c : r.counters) c.step = -1;
    r.steps.clear();
    const auto a = attribute(r, fixture::input());
    EXPECT_FALSE(is_missing(a->missing, "counter_sequence_mismatch"));
    EXPECT_FALSE(a->launches[lost].counters.dram_read_bytes);
    EXPECT_TRUE(a->launches[1 - lost].counters.dram_read_bytes);
    EXPECT_FALSE(a->all.dram_read_bytes) << "half the bytes would look like an answer";
    r.counters[0].kernel = "another";
    EXPECT_TRUE(is_missing(attribute(r, fixture::input())->missing, "counter_sequence_mismatch"));
  }
}

TEST(Counters, ASetWithOtherThanOneRangePerLaunchIsNotUsed) {
  Recording r = fixture::recording(kTwo);
  r.counter_sets[0].ranges = 1;  // what CUPTI returns when the image is too small: no error, dropped = 0
  const auto a = attribute(r, fixture::input());
  EXPECT_NE(detail_of(*a, "counter_set_failed").find("1 ranges for 2 launches"), std::string::npos);
  EXPECT_FALSE(a->launches[0].counters.dram_read_bytes);
}

TEST(Counters, AValueTooFewOrASetNobodyDeclaredIsNotUsed) {
  Recording few = fixture::recording(kTwo), unknown = few;
  few.counters[0].values.pop_back();
  unknown.counter_sets[0].name = "other";
  EXPECT_TRUE(is_missing(attribute(few, fixture::input())->missing, "counter_set_failed"));
  EXPECT_TRUE(is_missing(attribute(unknown, fixture::input())->missing, "counter_set_failed"));
}

TEST(Counters, TwoSessionsOfOneSetWithOtherMetricsAreNotUsed) {
  Recording r = fixture::recording(kTwo);
  CounterSet again = r.counter_sets[0];
  std::swap(again.metrics[1], again.metrics[2]);  // as many values, with another meaning
  r.counter_sets.push_back(again);
  const auto a = attribute(r, fixture::input());
  EXPECT_NE(detail_of(*a, "counter_set_failed").find("two sessions with different metrics"), std::string::npos);
  EXPECT_FALSE(a->launches[0].counters.dram_read_bytes);
}

TEST(Counters, AMetricThatHalfOfTheKernelsHaveIsBetterThanALesserOneOfMore) {
  const std::string cycles = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
  Recording r = fixture::recording({{"forward/0/qkv", "gemm", 100'000, 1e6, 2e6, 80},
                                    {"forward/0/gelu", "gelu", 300'000, 1e6, 2e6, 40},
                                    {"forward/0/ln1", "norm", 100'000, 1e6, 2e6, 0},
                                    {"forward/0/ln2", "norm", 100'000, 1e6, 2e6, 0}});
  r.session.producer = "ncu";  // kernels of a report need not have the same metrics
  CounterSet half = r.counter_sets[0], most = half;
  half.metrics = {cycles}, half.launches = half.ranges = 2;
  most.name = "most", most.launches = most.ranges = 3;
  most.metrics = {"sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_elapsed"};
  r.counter_sets = {half, most};
  auto counters = std::exchange(r.counters, {});
  for (size_t k = 0; k < 4; ++k) {
    CounterRecord c = counters[k];
    if (k < 2) c.values = {k == 0 ? 80.0 : 40.0}, r.counters.push_back(c);
    if (k >= 1) c.set = "most", c.values = {5.0}, r.counters.push_back(c);
  }
  std::vector<const LaunchRecord*> kernels;
  for (const LaunchRecord& l : r.launches) kernels.push_back(&l);
  const MergedCounters merged = merge_counters(r, kernels);
  EXPECT_EQ(merged.tensor_metric, cycles);
  ASSERT_EQ(merged.per_kernel.size(), 4u);
  EXPECT_EQ(merged.per_kernel[1].tensor_active_pct, 40.0);
}

TEST(Counters, SeveralCountedStepsGiveMedians) {
  Recording r = fixture::recording(kTwo);
  const auto first = r.counters;
  for (const int64_t step : {14, 15})
    for (CounterRecord c : first) {
      c.step = step;
      c.values[1] *= step == 14 ? 1.5 : 9;  // 1, 1.5, 9 times
      r.counters.push_back(c);
    }
  const auto a = attribute(r, fixture::input());
  EXPECT_EQ(a->counted_steps, 3);
  EXPECT_DOUBLE_EQ(*a->launches[0].counters.dram_read_bytes, 1.5e6);
}

TEST(Counters, SeveralSetsComplementEachOther) {
  Recording r = fixture::recording(kTwo);
  CounterSet l2 = r.counter_sets[0];
  l2.name = "l2";
  l2.metrics = {"lts__t_bytes.sum"};
  r.counter_sets.push_back(l2);
  for (int64_t i = 0; i < 2; ++i) {
    CounterRecord c = r.counters[static_cast<size_t>(i)];
    c.set = "l2";
    c.step = 14;
    c.values = {5e6};
    r.counters.push_back(c);
  }
  const auto a = attribute(r, fixture::input());
  EXPECT_DOUBLE_EQ(*pass_group(*a, "forward")->sums.l2_bytes, 10e6);
  EXPECT_DOUBLE_EQ(*pass_group(*a, "forward")->sums.dram_read_bytes, 11e6);
}

// One ratio of nothing by nothing, asked for by --metric, took the counters of every kernel with it.
TEST(Counters, AKernelForWhichAMetricHasNoValueKeepsItsOthers) {
  Recording r = fixture::recording(kTwo);
  CounterSet part = r.counter_sets[0];
  const auto occupancy = std::find(part.metrics.begin(), part.metrics.end(), "sm__warps_active.avg.pct_of_peak_sustained_active");
  r.counters[1].values.erase(r.counters[1].values.begin() + (occupancy - part.metrics.begin()));
  part.metrics.erase(occupancy);
  part.name = r.counters[1].set = "core in part, 1";
  part.launches = part.ranges = r.counter_sets[0].launches = r.counter_sets[0].ranges = 1;
  r.counter_sets.push_back(part);
  const auto a = attribute(r, fixture::input());
  EXPECT_FALSE(is_missing(a->missing, "counter_sequence_mismatch"));
  EXPECT_EQ(a->counted_steps, 1);
  EXPECT_TRUE(pass_group(*a, "forward")->sums.dram_read_bytes);
  EXPECT_TRUE(a->launches[0].counters.occupancy_pct);
  EXPECT_FALSE(a->launches[1].counters.occupancy_pct);
  EXPECT_FALSE(pass_group(*a, "forward")->sums.occupancy_pct);

  r.counters.pop_back();
  r.counter_sets[1].launches = r.counter_sets[1].ranges = 0;
  EXPECT_TRUE(is_missing(attribute(r, fixture::input())->missing, "counter_sequence_mismatch")) << "a step is counted whole";
}

// Alone in its set it was another workload, and severe.
TEST(Counters, AKernelInASetOfItsOwnMayHaveAGridThatDependsOnTheData) {
  const std::vector<fixture::Kernel> kernels(20, {"forward/0/qkv", "gemm", 100'000, 1e6, 2e6, 80});
  Recording r = fixture::recording(kernels);
  CounterSet part = r.counter_sets[0];
  part.metrics.pop_back();
  part.name = r.counters[15].set = "core in part, 1";
  part.launches = part.ranges = 1;
  r.counter_sets.push_back(part);
  r.counter_sets[0].launches = r.counter_sets[0].ranges = 19;
  r.counters[15].values.pop_back();
  r.counters[15].grid = {1, 2, 3};
  const auto a = attribute(r, fixture::input());
  EXPECT_FALSE(is_missing(a->missing, "counter_sequence_mismatch"));
  EXPECT_NE(detail_of(*a, "counter_grid_differs").find("kernel 15 'gemm'"), std::string::npos);
  EXPECT_TRUE(a->launches[14].counters.dram_read_bytes);
  EXPECT_FALSE(a->launches[15].counters.dram_read_bytes);
}

TEST(Counters, AKernelThatTookAnotherTimeWhileCountedIsFlagged) {
  Recording r = fixture::recording(kTwo);
  r.environment.clear();
  r.counters[1].values[0] = 400'000;
  const auto a = attribute(r, fixture::input());
  EXPECT_NE(detail_of(*a, "kernel_time_differs_in_counter_run").find("+33%"), std::string::npos);
  EXPECT_DOUBLE_EQ(a->launches[1].duration_ns, 300'000) << "the counted time never becomes the kernel's";
}

// A kernel that computes takes 1400/1980 of its time where it is counted at 1980 MHz and the step ran at 1400.
TEST(Counters, AnotherTimeThatTheClockExplainsIsNotFlagged) {
  const auto said = [](double counted_ns, double counted_hz, double step_mhz) {
    Recording r = fixture::recording(kTwo);
    r.environment.assign(1, {.time_ns = 0, .phase = Phase::timed, .sm_clock_mhz = step_mhz});
    r.counters[1].values[0] = counted_ns, r.counters[1].values[7] = counted_hz;
    return detail_of(*attribute(r, fixture::input()), "kernel_time_differs_in_counter_run");
  };
  EXPECT_EQ(said(300'000 * 1400 / 1980.0, 1980e6, 1400), "");
  EXPECT_EQ(said(300'000, 1980e6, 1400), "") << "one that waits for memory";
  EXPECT_THAT(said(300'000 * 0.5, 1980e6, 1400), ::testing::HasSubstr("-50%"));
  EXPECT_THAT(said(300'000 * 1.3, 1980e6, 1400), ::testing::HasSubstr("+30%")) << "a higher clock makes nothing slower";
  EXPECT_EQ(said(300'000 * 1.3, 1400e6, 1980), "");
  EXPECT_THAT(said(300'000 * 0.7, 1400e6, 1980), ::testing::HasSubstr("-30%"));
  // The kernel's own time is of the traced steps.
  Recording r = fixture::recording(kTwo);
  r.environment.assign(2, {.time_ns = 0, .phase = Phase::timed, .sm_clock_mhz = 1980});
  r.environment[1].phase = Phase::activity, r.environment[1].sm_clock_mhz = 1400;
  r.counters[1].values[0] = 300'000 * 1400 / 1980.0, r.counters[1].values[7] = 1980e6;
  EXPECT_EQ(detail_of(*attribute(r, fixture::input()), "kernel_time_differs_in_counter_run"), "");
}

TEST(Counters, MoreThanTheMeasuredCeilingIsFlagged) {
  Recording r = fixture::recording(kTwo);
  r.counters[0].values[1] = 105e6;  // 107 MB in 100 us: 1.07 TB/s of 1.00
  EXPECT_NE(detail_of(*attribute(r, fixture::input()), "above_ceiling").find("107%"), std::string::npos);
}

TEST(Counters, TensorUseOfMoreThanAllTheTimeIsFlagged) {
  const auto said = [](double first, double second) {
    Recording r = fixture::recording(kTwo);
    r.counters[0].values[3] = first, r.counters[1].values[3] = second;
    return detail_of(*attribute(r, fixture::input()), "tensor_use_above_100");
  };
  EXPECT_EQ(said(101.9, 0), "");
  EXPECT_EQ(said(110, 0), "kernel 0 'gemm' at 110.0%");
  EXPECT_EQ(said(0, 200), "kernel 1 'gelu' at 200.0%");
  EXPECT_EQ(said(100, 100), "") << "nor may the mean's last digit";
  Recording both = fixture::recording(kTwo);
  both.counters[0].values[3] = both.counters[1].values[3] = 103;
  const auto a = attribute(both, fixture::input());
  EXPECT_THAT(a->missing, Contains(AllOf(Field(&MissingRecord::name, "tensor_use_above_100"), Field(&MissingRecord::count, 2))));
}

TEST(Counters, AShortKernelMayReadSomewhatAbove100) {
  const auto said = [](double pct) {
    const Recording r =
        fixture::recording({{"forward/0/qkv", "gemm", 5'000, 1e6, 2e6, pct}, {"forward/0/gelu", "gelu", 300'000, 1e6, 2e6, 0}});
    return detail_of(*attribute(r, fixture::input()), "tensor_use_above_100");
  };
  EXPECT_EQ(said(119), "");
  EXPECT_EQ(said(150), "");
  EXPECT_EQ(said(151), "kernel 0 'gemm' at 151.0%");
}

// Where short kernels are all there is, their row shows it, and whoever reads that row is told.
TEST(Counters, NoPassAndNoStepShowsMoreThan100WithoutAWord) {
  const fixture::Kernel idle = {"backward/0/qkv", "gelu", 300'000, 1e6, 2e6, 0};
  const auto said = [](const std::vector<fixture::Kernel>& kernels) {
    const auto a = attribute(fixture::recording(kernels), fixture::input());
    const auto at = std::find_if(a->missing.begin(), a->missing.end(), [](const auto& m) { return m.name == "tensor_use_above_100"; });
    return at == a->missing.end() ? std::string() : std::to_string(at->count) + ": " + at->detail;
  };
  EXPECT_EQ(said({{"forward/0/ln1", "norm", 5'000, 1e6, 2e6, 90}, {"forward/0/qkv", "gemm", 5'000, 1e6, 2e6, 120}, idle}),
            "1: kernel 1 'gemm' at 120.0%")
      << "forward reads 105%, the step 3%";
  EXPECT_EQ(said({{"forward/0/ln1", "norm", 5'000, 1e6, 2e6, 70}, {"forward/0/qkv", "gemm", 5'000, 1e6, 2e6, 120}, idle}), "")
      << "forward reads 95%";
  EXPECT_EQ(said({{"", "gemm", 5'000, 1e6, 2e6, 120}, {"", "gemm", 5'000, 1e6, 2e6, 101}}), "2: kernel 0 'gemm' at 120.0%")
      << "the step reads 110.5% and has no pass";
}

// A kernel below its floor has nothing to win; it must not take away what the others have.
TEST(Counters, AKernelBelowItsFloorHasNoHeadroomRatherThanANegativeOne) {
  Recording r = fixture::recording(kTwo);
  r.counters[0].values[1] = 105e6;
  const auto a = attribute(r, fixture::input());
  EXPECT_EQ(a->launches[0].headroom_ns(), 0.0);
  ASSERT_GT(a->launches[1].headroom_ns().value_or(0), 0.0);
  EXPECT_DOUBLE_EQ(*pass_group(*a, "forward")->sums.headroom_ns, *a->launches[1].headroom_ns());
}

TEST(Counters, AWholePassIsComparedWithItsKernelsCopiesAndMemsets) {
  const Recording good = fixture::gpt2_recording();
  const auto a = attribute(good, fixture::input());
  EXPECT_FALSE(is_missing(a->missing, "pass_counters_mismatch"));
  ASSERT_TRUE(pass_group(*a, "backward")->whole_pass);
  EXPECT_DOUBLE_EQ(*pass_group(*a, "backward")->whole_pass->dram_read_bytes, 577e6);

  Recording off = good;
  off.counters.back().values[0] *= 1.2;
  EXPECT_TRUE(is_missing(attribute(off, fixture::input())->missing, "pass_counters_mismatch"));

  Recording no_memset = good;  // without the 80 MB of the memset the pass has 8% more than its kernels
  std::erase_if(no_memset.launches, [](const LaunchRecord& l) { return l.activity == Activity::memset; });
  EXPECT_TRUE(is_missing(attribute(no_memset, fixture::input())->missing, "pass_counters_mismatch"));
}

TEST(Counters, ACopyOnTheDeviceReadsAndWritesItsBytesAndOneFromTheHostOnlyWritesThem) {
  const auto mismatch = [](const std::string& name, double whole_more) {
    Recording r = fixture::gpt2_recording();
    const auto memset =
        std::find_if(r.launches.begin(), r.launches.end(), [](const LaunchRecord& l) { return l.activity == Activity::memset; });
    LaunchRecord copy = *memset;
    copy.activity = Activity::copy;
    copy.name = name;
    copy.index = 100;
    copy.bytes = 300'000'000;
    r.launches.push_back(copy);
    r.counters.back().values[0] += whole_more;
    return is_missing(attribute(r, fixture::input())->missing, "pass_counters_mismatch");
  };
  EXPECT_FALSE(mismatch("copy DtoD", 600e6));
  EXPECT_TRUE(mismatch("copy DtoD", 300e6));
  EXPECT_FALSE(mismatch("copy HtoD", 300e6));
  EXPECT_TRUE(mismatch("copy HtoD", 600e6));
}

// Two kernels whose time, cycles and cycles with warps stand in different proportions, so that a row tells by what it was weighted.
struct TwoLaunches {
  TwoLaunches() {
    for (AttributedLaunch* l : {&a, &b}) l->record = &record;
    a.duration_ns = 100, a.time_ns = 50, a.samples = 1;
    b.duration_ns = b.time_ns = 300, b.samples = 1;
  }
  LaunchRecord record;
  AttributedLaunch a, b;
};

TEST(Numbers, AverageRowsByTheWeightThatTheQuantityIsOf) {
  TwoLaunches two;
  two.a.counters.sm_clock_hz = 1e9, two.a.counters.occupancy_pct = 40;
  two.b.counters.sm_clock_hz = 2e9, two.b.counters.occupancy_pct = 80;
  two.a.counters.counted_time_ns = 100, two.b.counters.counted_time_ns = 300;
  two.a.counters.sm_cycles = 900, two.b.counters.sm_cycles = 100;
  two.a.counters.sm_active_cycles = 20, two.b.counters.sm_active_cycles = 60;
  const Numbers n = numbers_of({&two.a, &two.b});
  EXPECT_DOUBLE_EQ(*n.sm_clock_hz, 1.75e9) << "by the time while they were counted";
  EXPECT_DOUBLE_EQ(*n.occupancy_pct, 70) << "by the cycles with warps";
}

TEST(Numbers, PercentagesWithoutCyclesAreWeightedByTheKernelsOwnTime) {
  TwoLaunches two;
  two.a.counters.tensor_active_pct = 80;
  two.b.counters.tensor_active_pct = 0;
  EXPECT_DOUBLE_EQ(*numbers_of({&two.a, &two.b}).tensor_active_pct, 20) << "not by the share of the step, which is 50 of the first";
}

TEST(Numbers, TensorUseIsWeightedByTheCyclesThatItIsAShareOf) {
  TwoLaunches two;
  two.a.counters.tensor_active_pct = 80, two.a.counters.sm_cycles = 300, two.a.counters.sm_active_cycles = 100;
  two.b.counters.tensor_active_pct = 0, two.b.counters.sm_cycles = 100, two.b.counters.sm_active_cycles = 100;
  EXPECT_DOUBLE_EQ(*numbers_of({&two.a, &two.b}).tensor_active_pct, 60) << "of all cycles";
  two.a.counters.tensor_is = two.b.counters.tensor_is = KernelCounters::TensorIs::active_cycles;
  EXPECT_DOUBLE_EQ(*numbers_of({&two.a, &two.b}).tensor_active_pct, 40) << "of the cycles with warps";
}

TEST(Sums, HeadroomIsOfTheShareThatALaunchHasOfTheStep) {
  TwoLaunches two;
  two.a.roofline.floor_ns = 60;  // of 100 ns, half of which another launch ran beside it
  EXPECT_DOUBLE_EQ(*two.a.headroom_ns(), 20);
}

TEST(Sums, ABoundOfTheLesserPartOfTheTimeIsNotThatOfTheRow) {
  TwoLaunches two;
  two.a.roofline.bound = Bound::memory;
  EXPECT_FALSE(sum_launches({&two.a, &two.b}).bound) << "50 ns of 350";
  two.b.roofline.bound = Bound::tensor;
  EXPECT_EQ(sum_launches({&two.a, &two.b}).bound, "tensor");
}

// A reader of a table finds what a number is made of, and when it lies.
TEST(Numbers, EachIsExplainedInTheDocs) {
  std::ifstream in(SOURCE_DIR "/docs/metrics.md");
  const std::string docs{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(docs.empty());
  for (const NumberRow& row : number_rows()) EXPECT_THAT(docs, HasSubstr("`" + std::string(row.name) + "`"));
}

}  // namespace
