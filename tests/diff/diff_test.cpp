#include "profiler/diff/diff.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "base/errors.h"
#include "base/run_fields.h"
#include "profiler/diff/waterfall.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;
using testing::ElementsAre;
using testing::HasSubstr;

KernelRow kernel(const std::string& name, const std::string& pass, const std::string& op, double time_ns, int64_t launches = 12) {
  KernelRow k;
  k.name = name;
  k.pass = pass;
  k.op = op;
  k.activity = "kernel";
  k.launches = launches;
  k.time_ns = time_ns;
  return k;
}
ProfileDocument document(std::vector<KernelRow> kernels, double idle_ns) {
  ProfileDocument d;
  double sum = idle_ns;
  for (const KernelRow& k : kernels) sum += k.time_ns;
  d.kernels = std::move(kernels);
  d.totals.time_ns = sum;
  d.totals.idle_ns = idle_ns;
  d.collection.producer = "cupti";
  return d;
}
KernelChange change(const ProfileDiff& d, const std::string& what) {
  const auto at = std::find_if(d.kernels.begin(), d.kernels.end(), [&](const KernelChange& k) { return k.change == what; });
  if (at == d.kernels.end()) throw std::runtime_error("no row is " + what);
  return *at;
}
double sum_of(const ProfileDiff& d) {
  double sum = d.b_idle_ns - d.a_idle_ns + d.b_rest_ns - d.a_rest_ns;
  for (const KernelChange& k : d.kernels) sum += k.delta_ns();
  return sum;
}

TEST(Diff, KernelsIdleAndRestSumToTheStepsDifference) {
  ProfileDocument a =
      document({kernel("x", "forward", "qkv", 1e6), kernel("y", "backward", "qkv", 2e6), kernel("gone", "forward", "gelu", 3e5)}, 4e5);
  ProfileDocument b =
      document({kernel("x", "forward", "qkv", 9e5), kernel("y", "backward", "qkv", 2.2e6), kernel("new", "other", "copy", 1e5)}, 1e5);
  *b.totals.time_ns += 7e4;  // unattributed
  const ProfileDiff d = diff_profiles(a, b);
  EXPECT_NEAR(sum_of(d), d.b_device.time_ns - d.a_device.time_ns, 1e-6);
  EXPECT_NEAR(d.b_rest_ns, 7e4, 1e-6);
  EXPECT_EQ(d.kernels.front().delta_ns(), -3e5);  // sorted by what it matters
}

TEST(Diff, AnotherVariantsKernelReplacesTheOneOfTheSameOp) {
  const ProfileDiff d =
      diff_profiles(document({kernel("warp_rows", "forward", "ln1", 1e6), kernel("warp_rows", "forward", "ln2", 1e6)}, 0),
                    document({kernel("block_rows", "forward", "ln1", 8e5), kernel("warp_rows", "forward", "ln2", 1e6)}, 0));
  const KernelChange k = change(d, "replaced");
  EXPECT_THAT(k.a_kernels, ElementsAre("warp_rows"));
  EXPECT_THAT(k.b_kernels, ElementsAre("block_rows"));
  EXPECT_DOUBLE_EQ(k.delta_ns(), -2e5);
  EXPECT_EQ(d.kernels.size(), 2u);
}

TEST(Diff, AFusedKernelReplacesAllThatItTookTheWorkOf) {
  const ProfileDiff d = diff_profiles(document({kernel("gemm", "forward", "mlp_up", 1e6), kernel("bias", "forward", "mlp_up", 1e5)}, 0),
                                      document({kernel("gemm_bias", "forward", "mlp_up", 1.05e6)}, 0));
  const KernelChange k = change(d, "replaced");
  EXPECT_EQ(k.a_kernels.size(), 2u);
  EXPECT_EQ(k.a.launches, 24);
  EXPECT_EQ(k.b.launches, 12);
  EXPECT_NEAR(k.delta_ns(), -5e4, 1e-6);
}

TEST(Diff, LaunchesOfAKernelWithoutATimeAreCounted) {
  const ProfileDiff d = diff_profiles(document({kernel("gemm", "forward", "mlp_up", 1e6), kernel("lost", "forward", "mlp_up", 0, 5)}, 0),
                                      document({kernel("gemm_bias", "forward", "mlp_up", 1e6)}, 0));
  EXPECT_EQ(change(d, "replaced").a.launches, 17);
}

TEST(Waterfall, JsonCountsTheRowsThatItFoldsAndTellsTheChangeOfAnOp) {
  const auto w = make_waterfall(
      document({kernel("x", "forward", "qkv", 1e6), kernel("y", "forward", "gelu", 2e6), kernel("z", "forward", "ln1", 3e6)}, 0),
      document({kernel("x", "forward", "qkv", 9e5), kernel("y", "forward", "gelu", 2e6), kernel("z", "forward", "ln1", 3e6, 13)}, 0));
  const nlohmann::ordered_json j = to_json(*w);
  EXPECT_EQ(j["kernels"].size(), 1u);
  EXPECT_EQ(j["other"]["kernels"], 2);
  EXPECT_EQ(j["other"]["a_launches"], 24);
  EXPECT_EQ(j["other"]["b_launches"], 25);
  ASSERT_EQ(j["ops"].size(), 1u);
  EXPECT_EQ(j["ops"][0]["delta_ns"], -1e5);
}

TEST(Diff, TemplateArgumentsAloneMakeAReplacementOfItsOwn) {
  const ProfileDiff d =
      diff_profiles(document({kernel("void f<4>(float*)", "forward", "qkv", 1e6), kernel("old", "forward", "qkv", 2e6)}, 0),
                    document({kernel("void f<8>(float*)", "forward", "qkv", 9e5), kernel("fresh", "forward", "qkv", 1e6)}, 0));
  ASSERT_EQ(d.kernels.size(), 2u);
  EXPECT_THAT(d.kernels[0].a_kernels, ElementsAre("old"));
  EXPECT_THAT(d.kernels[1].b_kernels, ElementsAre("void f<8>(float*)"));
}

TEST(Diff, OneNameInTwoOpsStaysTwoRows) {
  const ProfileDiff d = diff_profiles(document({kernel("gemm", "forward", "qkv", 1e6), kernel("gemm", "forward", "attproj", 1e6)}, 0),
                                      document({kernel("gemm", "forward", "qkv", 2e6), kernel("gemm", "forward", "attproj", 5e5)}, 0));
  ASSERT_EQ(d.kernels.size(), 2u);
  EXPECT_EQ(d.kernels[0].op, "qkv");
  EXPECT_DOUBLE_EQ(d.kernels[0].delta_ns(), 1e6);
}

TEST(Diff, WithoutAnOpGoneAndNewAreNotOneAnother) {
  ProfileDocument a = document({kernel("a", "", "", 1e6)}, 0), b = document({kernel("b", "", "", 1e6)}, 0);
  a.kernels[0].pass = a.kernels[0].op = b.kernels[0].pass = b.kernels[0].op = std::nullopt;
  const ProfileDiff d = diff_profiles(a, b);
  EXPECT_EQ(change(d, "gone").a_kernels.front(), "a");
  EXPECT_EQ(change(d, "new").b_kernels.front(), "b");
  // Two of PyTorch's: a GELU that came was told as what became of a multiplication that went.
  a.kernels[0].name = "void at::native::vectorized_elementwise_kernel<4, MulFunctor>(int)";
  b.kernels[0].name = "void at::native::vectorized_elementwise_kernel<4, GeluFunctor>(int)";
  const ProfileDiff of_one_name = diff_profiles(a, b);
  EXPECT_EQ(change(of_one_name, "gone").a_kernels.front(), a.kernels[0].name);
  EXPECT_EQ(change(of_one_name, "new").b_kernels.front(), b.kernels[0].name);
}

TEST(Diff, NamesOfOtherToolsAreTheSameKernel) {
  const ProfileDiff d = diff_profiles(document({kernel("void m::(anonymous namespace)::k<(int)4>(float*)", "forward", "qkv", 1e6)}, 0),
                                      document({kernel("void m::<unnamed>::k<4>(float *)", "forward", "qkv", 1e6)}, 0));
  EXPECT_EQ(d.kernels.at(0).change, "changed");
}

// Kernels of ours were `replaced` by themselves in a diff with ncu's report of them.
TEST(Diff, TheLibrarysAndTheCompilersSpellingAreOneName) {
  const auto same = [](const char* a, const char* b) { return comparable_kernel_name(a) == comparable_kernel_name(b); };
  EXPECT_TRUE(same("void m::(anonymous namespace)::k<true, 4u, 8ul, (m::E)1>(float*, float const*, m::T const&)",
                   "void m::<unnamed>::k<(bool)1, (unsigned int)4, (unsigned long)8, (m::E)1>(float *, const float *, const T1 &)"));
  EXPECT_TRUE(same("m::f(float*, float const*)", "m::f(float *, const float *)"));
  EXPECT_TRUE(same("void k<false, -4>(int)", "void k<(bool)0, (int)-4>(int)"));
  EXPECT_FALSE(same("void k<true>(int)", "void k<(bool)0>(int)"));
  EXPECT_FALSE(same("void k<4u>(int)", "void k<40>(int)"));
  EXPECT_FALSE(same("void k<4>(int)", "void k<4, 4>(int)"));
  EXPECT_FALSE(same("(anonymous namespace)::f(float*)", "(anonymous namespace)::f(double*)")) << "two functions of one name";
  EXPECT_FALSE(same("const_true", "const_1"));
}

TEST(Diff, IdleTimeCountsOnlyWhereBothKnowIt) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 5e5), b = document({kernel("k", "forward", "qkv", 1.1e6)}, 0);
  b.totals.idle_ns.reset();
  const ProfileDiff d = diff_profiles(a, b);
  EXPECT_FALSE(d.idle_known);
  EXPECT_EQ(d.step->basis, "kernel time");
  EXPECT_NEAR(d.step->ratio(), 1.1, 1e-9);
  EXPECT_NEAR(sum_of(d), d.b_device.time_ns - d.a_device.time_ns, 1e-6);
}

TEST(Diff, TheStepIsThatOfTimedStepsWhereBothHaveThem) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0), b = a;
  EXPECT_EQ(diff_profiles(a, b).step->basis, "device time");
  a.timing.step_time_ns.median = 2e6, a.timing.step_time_ns.interval_low = 1.9e6, a.timing.step_time_ns.interval_high = 2.1e6;
  b.timing.step_time_ns.median = 2.1e6, b.timing.step_time_ns.interval_low = 2.05e6, b.timing.step_time_ns.interval_high = 2.15e6;
  StepChange s = diff_profiles(a, b).step.value();
  EXPECT_EQ(s.basis, "timed steps");
  EXPECT_NEAR(s.ratio(), 1.05, 1e-12);
  EXPECT_EQ(s.differs(), false);  // 2.05 / 2.1 to 2.15 / 1.9
  b.timing.step_time_ns.interval_low = 2.11e6;
  EXPECT_EQ(diff_profiles(a, b).step->differs(), true);
  b.timing.step_time_ns.interval_low.reset();
  EXPECT_FALSE(diff_profiles(a, b).step->differs());
}

StateRow steps_of(const char* state, double step_time_ns) {
  StateRow s;
  s.state = state, s.run = "timed";
  s.steps = 10, s.step_time_ns = step_time_ns, s.time_ns = 10 * step_time_ns;
  return s;
}

// A warm baseline let a cool step through that was 4% slower than its own cool one.
TEST(Diff, WhatIsJudgedIsOfOneState) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0), b = a;
  a.timing.step_time_ns.median = 2e6, a.timing.state = "warm";
  a.timing.states = {steps_of("cool", 1.9e6), steps_of("warm", 2e6)};
  b.timing.step_time_ns.median = 1.98e6, b.timing.state = "cool";
  b.timing.states = {steps_of("cool", 1.976e6)};
  EXPECT_NEAR(diff_profiles(a, b).judged().ratio, 1.04, 1e-9);
  EXPECT_EQ(diff_profiles(a, b).judged().quantity, "mean of cool steps");
  b.timing.states.push_back(steps_of("warm", 2.1e6));
  EXPECT_NEAR(diff_profiles(a, b).judged().ratio, 1.05, 1e-9) << "training runs warm";
  b.timing.state = "warm";
  EXPECT_NEAR(diff_profiles(a, b).judged().ratio, 0.99, 1e-9) << "the medians are of one state";
  EXPECT_EQ(diff_profiles(a, b).judged().quantity, "median step");
  b.timing.state.reset();
  EXPECT_EQ(diff_profiles(a, b).judged().quantity, "median step") << "nobody knows better";
  b.timing.state = "cool";
  a.timing.states = {steps_of("warm", 2e6)}, b.timing.states = {steps_of("cool", 1.98e6)};
  try {
    diff_profiles(a, b).judged();
    ADD_FAILURE();
  } catch (const stepscope::InputError& e) {
    EXPECT_STREQ(e.what(),
                 "A's timed steps ran on a warm device and B's on a cool one, and there is no state of which both have steps: take both "
                 "with `profile --sustained`, which adds warm steps");
  }
}

TEST(Diff, AStepDiffersWhenItsWholeIntervalLiesOnOneSideOfOne) {
  const auto differs = [](std::optional<double> low, std::optional<double> high) {
    return StepChange{"timed steps", 2e6, 2e6, low, high}.differs();
  };
  EXPECT_EQ(differs(0.95, 0.99), true) << "faster";
  EXPECT_EQ(differs(1.01, 1.05), true) << "slower";
  EXPECT_EQ(differs(0.99, 1.05), false);
  EXPECT_EQ(differs(1, 1.05), false) << "one is in it";
  EXPECT_EQ(differs(0.95, 1), false);
  EXPECT_FALSE(differs(1.01, std::nullopt));
  EXPECT_FALSE(differs(std::nullopt, 0.99));
}

TEST(Diff, OneSideWithoutTimedStepsIsComparedByDeviceTime) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0), b = a;
  a.timing.step_time_ns.median = 2e6;
  EXPECT_EQ(diff_profiles(a, b).step->basis, "device time");
  EXPECT_EQ(diff_profiles(b, a).step->basis, "device time");
}

TEST(Diff, KernelsThatAreGoneForNothingStayRowsOfTheirOwn) {
  const ProfileDiff d = diff_profiles(
      document({kernel("gemm", "forward", "mlp_up", 1e6), kernel("bias", "forward", "mlp_up", 1e5), kernel("norm", "forward", "ln1", 1e6)},
               0),
      document({kernel("norm", "forward", "ln1", 1e6)}, 0));
  ASSERT_EQ(d.kernels.size(), 3u);
  EXPECT_EQ(d.kernels[0].change, "gone");
  EXPECT_THAT(d.kernels[0].a_kernels, ElementsAre("gemm"));
  EXPECT_EQ(d.kernels[1].change, "gone");
  EXPECT_THAT(d.kernels[1].a_kernels, ElementsAre("bias"));
}

TEST(Diff, OtherWorkOrAnotherGpuIsUnlike) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0), b = a;
  a.run.batch_size = 4, b.run.batch_size = 8;
  a.run.variants = {{"gelu", "kernel"}}, b.run.variants = {{"gelu", "epilogue"}};
  const ProfileDiff d = diff_profiles(a, b);
  EXPECT_TRUE(d.unlike());
  EXPECT_EQ(d.runs.size(), 2u);
  EXPECT_THAT(diff_table(d, {"a", "b"}), testing::AllOf(HasSubstr("batch size 4 -> 8"), HasSubstr("variant gelu kernel -> epilogue"),
                                                        HasSubstr("cannot be compared")));
  b.run.batch_size.reset();  // not known is not another one
  EXPECT_FALSE(diff_profiles(a, b).unlike());
}

TEST(Diff, AVariantAgainstTheDefaultIsADifference) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0), b = a;
  b.run.variants = {{"zero_grad", "memset"}};
  EXPECT_THAT(diff_table(diff_profiles(a, b), {"a", "b"}), HasSubstr("variant zero_grad default -> memset"));
  EXPECT_THAT(diff_table(diff_profiles(b, a), {"b", "a"}), HasSubstr("variant zero_grad memset -> default"));
  b = a;
  b.collection.graph_launches = 834;
  EXPECT_THAT(diff_table(diff_profiles(a, b), {"a", "b"}), HasSubstr("CUDA graph 0 -> 834"));
}

TEST(Diff, AnotherNumberOfThreadsIsAnotherDevice) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0);
  a.collection.producer = "cpu";
  a.environment.gpu = "CPU";
  a.run.device = "CPU, 2 threads";
  ProfileDocument b = a;
  b.run.device = "CPU, 1 thread";
  EXPECT_TRUE(diff_profiles(a, b).unlike());
}

// A profile of a CPU and the join of its own recordings, whose run.json is not there, were "not the same: device CPU, 1 thread -> CPU".
TEST(Diff, ACpuWhoseThreadsADocumentDoesNotKnowIsTheSameDevice) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0);
  a.collection.producer = "cpu";
  a.environment.gpu = "CPU";
  ProfileDocument b = a;
  a.run.device = "CPU, 1 thread";
  EXPECT_FALSE(diff_profiles(a, b).unlike());
  EXPECT_FALSE(diff_profiles(b, a).unlike());
  b.collection.producer = "cupti";
  b.environment.gpu = "NVIDIA H200";
  EXPECT_TRUE(diff_profiles(a, b).unlike());
}

TEST(Diff, AnotherClockIsADifferenceFromOnePercentOn) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0), b = a;
  const auto clocks = [&](double x, double y) {
    a.environment.sm_clock_mhz_median = x;
    b.environment.sm_clock_mhz_median = y;
    for (const RunDifference& r : diff_profiles(a, b).runs)
      if (r.what == "SM clock") return r.a + " -> " + r.b;
    return std::string();
  };
  EXPECT_EQ(clocks(1980, 1755), "1980 MHz -> 1755 MHz");
  EXPECT_EQ(clocks(1755, 1980), "1755 MHz -> 1980 MHz");
  EXPECT_EQ(clocks(1000, 1011), "1000 MHz -> 1011 MHz");
  EXPECT_EQ(clocks(1000, 989), "1000 MHz -> 989 MHz");
  EXPECT_EQ(clocks(1000, 1009), "");
  b.environment.sm_clock_mhz_median.reset();
  EXPECT_TRUE(diff_profiles(a, b).runs.empty());
}

KernelRow with_bytes(KernelRow k, double read, double write) {
  k.dram_read_bytes = read;
  k.dram_write_bytes = write;
  return k;
}

TEST(Diff, BytesOfReplacedKernelsAreSummedOnlyWhereAllAreKnown) {
  const KernelRow gemm = kernel("gemm", "forward", "mlp_up", 1e6), bias = kernel("bias", "forward", "mlp_up", 1e5),
                  fused = kernel("gemm_bias", "forward", "mlp_up", 1.05e6);
  const auto a_bytes = [&](const KernelRow& x, const KernelRow& y) {
    const ProfileDiff d = diff_profiles(document({x, y}, 0), document({with_bytes(fused, 3e6, 4e6)}, 0));
    EXPECT_EQ(dram_bytes(change(d, "replaced").b), 7e6);
    return dram_bytes(change(d, "replaced").a);
  };
  EXPECT_EQ(a_bytes(with_bytes(gemm, 5e6, 2e6), with_bytes(bias, 1e6, 1e6)), 9e6);
  EXPECT_EQ(a_bytes(with_bytes(gemm, 5e6, 2e6), bias), std::nullopt) << "half a sum would look like an answer";
  EXPECT_EQ(a_bytes(gemm, with_bytes(bias, 1e6, 1e6)), std::nullopt);
}

StateRow state(const std::string& word, const std::string& run, double step_ns, double seconds, double joules) {
  StateRow s;
  s.state = word;
  s.run = run;
  s.step_time_ns = step_ns;
  s.time_ns = seconds * 1e9;
  s.steps = static_cast<int64_t>(s.time_ns / step_ns);
  s.joules_per_step = joules;
  return s;
}

TEST(Diff, WarmIsComparedWithWarmAndCoolWithCool) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0), b = a;
  a.timing.state = b.timing.state = "cool";
  a.timing.states = {state("cool", "timed", 8.8e6, 0.4, 5.9), state("warm", "sustained", 9.0e6, 6, 6.3)};
  b.timing.states = {state("cool", "timed", 8.7e6, 0.4, 5.8), state("warm", "timed", 9.4e6, 3, 6.1),
                     state("warm", "sustained", 9.09e6, 6, 6.2)};
  const ProfileDiff d = diff_profiles(a, b);
  ASSERT_EQ(d.states.size(), 2u);
  EXPECT_NEAR(d.states[0].ratio(), 1.01, 1e-12) << "the longest warm runs";
  const std::string warm = "mean of warm steps 9.000 -> 9.090 ms  +1.00%; 6.30 -> 6.20 J a step";
  EXPECT_THAT(diff_table(d, {"a", "b"}), testing::AllOf(HasSubstr(warm), HasSubstr("mean of cool steps 8.800 -> 8.700 ms  -1.14%")));
  EXPECT_THAT(diff_markdown(d, {"a", "b"}), HasSubstr(warm));
  EXPECT_EQ(diff_json(d, {"a", "b"})["states"][0]["b"]["joules_per_step"], 6.2);
  b.timing.states.resize(1);
  EXPECT_EQ(diff_profiles(a, b).states.size(), 1u) << "one side alone is no comparison";
  b.timing.state = "warm";
  EXPECT_THAT(diff_table(diff_profiles(a, b), {"a", "b"}), HasSubstr("timed steps on a device that was cool -> warm"));
}

TEST(Diff, NothingToCompareIsAnErrorThatNamesTheDocument) {
  ProfileDocument timed, nothing;
  timed.timing.step_time_ns.median = 1e6;
  const ProfileDocument device = document({}, 1);
  const auto error = [](const ProfileDocument& a, const ProfileDocument& b) -> std::string {
    try {
      diff_profiles(a, b);
      return "none";
    } catch (const stepscope::InputError& e) {
      return e.what();
    }
  };
  for (const ProfileDocument& d : {timed, device}) {
    EXPECT_EQ(error(nothing, d), "the first document holds no time of a step");
    EXPECT_EQ(error(d, nothing), "the second document holds no time of a step");
    EXPECT_EQ(error(d, d), "none");
  }
  for (const auto& [a, b] : {std::pair(timed, device), std::pair(device, timed)})
    EXPECT_EQ(error(a, b), "the documents hold no time of the same kind: expected timed steps or device time in both");
}

// Every difference of two runs that are alike but for what `change` does to them.
template <class Change>
std::vector<std::string> differences(const Change& change) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0), b = a;
  change(a, b);
  std::vector<std::string> out;
  for (const RunDifference& r : diff_profiles(a, b).runs)
    out.push_back(fmt::format("{}: {} -> {}{}", r.what, r.a, r.b, r.unlike ? ", unlike" : ""));
  return out;
}

TEST(Diff, ListsWhereverBothSaySomethingElse) {
  using Document = ProfileDocument;
  EXPECT_THAT(differences([](Document& a, Document& b) {
                a.environment.gpu = "NVIDIA H200", b.environment.gpu = "NVIDIA H100";
                a.run.deterministic = true, b.run.deterministic = false;
                a.run.clip = 1, b.run.clip = 0.5;
                a.run.seed = 1, b.run.seed = 2;
                a.run.data = {"one.bin", "two.bin"}, b.run.data = {"one.bin"};
                a.collection.time_basis = "activity", b.collection.time_basis = "counters";
                a.collection.graph_launches = 2;
                a.run.trainer = b.run.trainer = "mixed";
                a.run.git_revision = "abc", b.run.git_revision = "def";
                a.run.build_type = "Release", b.run.build_type = "Debug";
                a.environment.throttle_reasons = {"one", "two"}, b.environment.samples = 3;
                b.ranks.resize(2), b.world.size = 2;
              }),
              ElementsAre("device: NVIDIA H200 -> NVIDIA H100, unlike", "ranks: 1 -> 2", "deterministic: yes -> no", "seed: 1 -> 2",
                          "data: one.bin two.bin -> one.bin", "clip: 1 -> 0.5", "times of: activity -> counters",
                          "launches from a CUDA graph: 2 -> 0", "code: abc -> def", "build: Release -> Debug", "throttled: one+two -> "));
  EXPECT_THAT(differences([](Document& a, Document& b) {
                a.environment.versions = {{"cuBLAS", "13.0"}, {"driver", "580"}};
                b.environment.versions = {{"cuBLAS", "13.1"}, {"CUPTI", "13.0"}};
              }),
              ElementsAre("version of cuBLAS: 13.0 -> 13.1"));
  EXPECT_THAT(differences([](Document& a, Document& b) {
                b.collection.producer = "ncu";
                a.environment.versions = {{"CUDA", "13.0"}}, b.environment.versions = {{"CUDA", "12.8"}};
              }),
              ElementsAre("collected by: cupti -> ncu"))
      << "versions of other tools are no difference of the runs";
}

// Two programs that are no trainers of ours were compared without a word.
TEST(Diff, NamesTheProgramsThatAreNoTrainers) {
  using Document = ProfileDocument;
  const auto ran = [](Document& d, const std::string& flags, const std::string& program) {
    d.collection.program = program;
    d.run.command = fmt::format("bin/stepscope profile {} -- {}", flags, program);
  };
  EXPECT_THAT(differences([&](Document& a, Document& b) {
                ran(a, "--step-range step --steps 8 -o a.json", "python3 train.py");
                ran(b, "--step-range step --by op --out=b.json", "python3 train.py --fused");
              }),
              ElementsAre("program: python3 train.py -> python3 train.py --fused",
                          "command: profile --step-range step --steps 8 -> profile --step-range step"));
  EXPECT_THAT(differences([&](Document& a, Document& b) {
                ran(a, "-o a.json --top 3", "./x");
                ran(b, "--by op --out b.json --report b.html", "./x");
              }),
              ElementsAre())
      << "where a document is written to is no difference of what ran";
  EXPECT_THAT(differences([&](Document& a, Document& b) {
                ran(a, "--json --steps 8 -o 'my profile -- a.json' '--report=it'\\''s.html'", "./x");
                ran(b, "--steps 8", "./x");
              }),
              ElementsAre())
      << "--json takes no value, and a name in quotes is one word";
  EXPECT_THAT(
      differences([&](Document& a, Document& b) {
        ran(a, "--step-range 'my step'", "./don't --o=1");
        ran(b, "--step-range 'my  step' --json", "./don't --o=2");
      }),
      ElementsAre("program: ./don't --o=1 -> ./don't --o=2", "command: profile --step-range 'my step' -> profile --step-range 'my  step'"));
  EXPECT_THAT(differences([&](Document& a, Document& b) {
                a.run.command = "stepscope join a.jsonl", b.run.command = "stepscope join b.jsonl";
                a.collection.program = "stepscope train --batch-size 4 --run-json /tmp/1";
                b.collection.program = "stepscope train --batch-size 8 --run-json /tmp/2";
              }),
              ElementsAre("program: stepscope train --batch-size 4 -> stepscope train --batch-size 8"))
      << "recordings without their run.json";
  EXPECT_THAT(differences([&](Document& a, Document& b) {
                a.collection.producer = b.collection.producer = "ncu";
                a.collection.program = "/bin/one", b.collection.program = "/bin/two";
                a.run.command = "stepscope ingest a.ncu-rep", b.run.command = "stepscope ingest b.ncu-rep --first 1";
              }),
              ElementsAre("program: /bin/one -> /bin/two"));
  EXPECT_THAT(differences([&](Document& a, Document& b) {
                a.collection.producer = b.collection.producer = "nsys";
                a.collection.program = "a.sqlite", b.collection.program = "b.sqlite";
              }),
              ElementsAre())
      << "these are the names of the exports";
  EXPECT_THAT(differences([&](Document& a, Document& b) {
                a.run.trainer = "mixed", a.collection.program = "stepscope train --trainer mixed";
                b.collection.program = "python3 train.py";
              }),
              ElementsAre("program: the trainer mixed -> python3 train.py"));
  EXPECT_THAT(differences([&](Document& a, Document& b) {
                a.run.trainer = "mixed", a.collection.program = "stepscope train --trainer mixed";
                b.collection.program = "/home/me/build/bin/stepscope";
              }),
              ElementsAre())
      << "the report may be of that trainer";
  EXPECT_THAT(differences([&](Document& a, Document& b) {
                a.run.trainer = b.run.trainer = "mixed";
                ran(a, "--steps 8", "stepscope train --run-json 1"), ran(b, "--steps 9", "stepscope train --run-json 2");
              }),
              ElementsAre())
      << "a trainer says its settings itself";
}

TEST(Diff, AProgramsNameCannotWriteToTheTerminal) {
  ProfileDocument a = document({kernel("k", "forward", "qkv", 1e6)}, 0), b = a;
  a.collection.program = "one", b.collection.program = "\x1b[2Jtwo";
  EXPECT_THAT(diff_table(diff_profiles(a, b), {"a", "b"}), HasSubstr("program one -> ?[2Jtwo"));
}

// "throttled none -> power_cap" and "launches from a CUDA graph 0 -> 402" were said of a report that knows neither.
TEST(Diff, WhatAReportDoesNotKnowIsNotCompared) {
  EXPECT_THAT(differences([](ProfileDocument& report, ProfileDocument& ours) {
                report.collection.producer = "ncu";
                ours.run.trainer = "mixed";
                ours.run.variants = {{"gelu", "kernel"}};
                ours.run.git_revision = "abc", ours.run.build_type = "Release";
                ours.collection.graph_launches = 402;
                ours.environment.samples = 14, ours.environment.throttle_reasons = {"power_cap"};
              }),
              ElementsAre("collected by: ncu -> cupti"));
  EXPECT_THAT(differences([](ProfileDocument& a, ProfileDocument& b) {
                a.collection.producer = b.collection.producer = "nsys";
                b.collection.graph_launches = 402;
              }),
              ElementsAre());
  EXPECT_THAT(differences([](ProfileDocument& a, ProfileDocument& b) {
                a.environment.samples = b.environment.samples = 14;
                b.environment.throttle_reasons = {"power_cap"};
              }),
              ElementsAre("throttled:  -> power_cap"));
}

// Two builds of one revision, each with other changes that nobody had committed, were compared as the same code.
TEST(Diff, UncommittedChangesOfOneRevisionAreSaidButNotRefused) {
  ProfileDocument a = document({kernel("x", "forward", "qkv", 1e6)}, 1e5);
  a.run.trainer = "mixed";
  a.run.git_revision = "9aed3b99d4c788f07064fbe2805cd64502b3368b-dirty";
  const ProfileDiff d = diff_profiles(a, a);
  const std::string words = "code 9aed3b9-dirty -> 9aed3b9-dirty: uncommitted changes, which may differ.";
  EXPECT_THAT(diff_table(d, {"a", "b", DiffBy::kernel, 12, 200}), HasSubstr("A and B: uncommitted_changes: " + words));
  EXPECT_THAT(diff_markdown(d, {}), HasSubstr("- A and B: uncommitted\\_changes: code 9aed3b9-dirty"));
  EXPECT_EQ(diff_json(d, {})["doubts"][0]["text"], words);
  EXPECT_EQ(d.severe(), nullptr);
  EXPECT_FALSE(d.unlike());
  ProfileDocument b = a;
  b.run.git_revision = "9aed3b99d4c788f07064fbe2805cd64502b3368b";
  EXPECT_TRUE(diff_profiles(b, b).doubts.empty());
  EXPECT_TRUE(diff_profiles(a, b).doubts.empty()) << "the revisions differ, and 'not the same' says so";
}

// Older documents of reports and of other programs name the stepscope that made the document, and not the code that was measured.
TEST(Diff, TheCodeOfProgramsThatAreNoTrainersIsNotCompared) {
  const auto revisions = [](ProfileDocument& a, ProfileDocument& b) {
    a.run.git_revision = "abc", b.run.git_revision = "def";
    a.run.build_type = "Release", b.run.build_type = "Debug";
  };
  EXPECT_THAT(differences(revisions), ElementsAre());
}

// An older document does not name the metric: it is the one that there was, where any kernel has a number.
TEST(Diff, TensorUseOfAnOlderDocumentIsOfTheOnlyMetricThatThereWas) {
  const auto with_use = [](ProfileDocument& d) { d.kernels[0].tensor_active_pct = 50; };
  const std::string old = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
  EXPECT_THAT(differences([&](auto& a, auto& b) { with_use(a), b.collection.tensor_metric = "m"; }),
              ElementsAre("tensor use from: " + old + " -> m"));
  EXPECT_THAT(differences([&](auto& a, auto& b) { with_use(b), a.collection.tensor_instructions_metric = "i"; }),
              ElementsAre("tensor use from: i -> " + old));
  EXPECT_THAT(differences([&](auto&, auto& b) { b.collection.tensor_metric = "m"; }), ElementsAre());
  EXPECT_THAT(differences([&](auto& a, auto& b) { with_use(a), b.collection.tensor_metric = old; }), ElementsAre());
}

// A pass's row, and device time that no row has: more of it in A than B's medians leave.
TEST(Diff, ARestBelowZeroHasNoPercentage) {
  ProfileDocument a = document({kernel("x", "forward", "qkv", 1e6)}, 1e5), b = document({kernel("x", "forward", "qkv", 1e6)}, 1e5);
  PassRow pass;
  pass.name = "forward";
  pass.time_ns = 1e6;
  a.passes = b.passes = {pass};
  *a.totals.time_ns -= 4e4;
  *b.totals.time_ns += 2e4;
  DiffText text;
  text.by = DiffBy::pass;
  EXPECT_THAT(diff_table(diff_profiles(a, b), text), testing::ContainsRegex("rest +-0\\.040 0\\.020 \\+0\\.060 +- "));
  EXPECT_THAT(diff_table(diff_profiles(b, a), text), testing::ContainsRegex("rest +0\\.020 -0\\.040 -0\\.060 -300\\.0 "));
}

// A kernel below the cut of a record was "gone".
TEST(Diff, AReducedRecordIsNamedBecauseItLacksKernels) {
  const ProfileDocument a = document({kernel("x", "forward", "qkv", 1e6), kernel("loss", "classifier", "loss", 1e6)}, 1e5);
  ProfileDocument b = document({kernel("x", "forward", "qkv", 1e6)}, 1e5);
  EXPECT_TRUE(diff_profiles(a, b).doubts.empty());
  b.missing.emplace_back().name = "record_reduced";
  const ProfileDiff d = diff_profiles(a, b);
  EXPECT_THAT(diff_table(d, {}), HasSubstr("B: record_reduced: cut down to the larger kernels"));
  EXPECT_THAT(diff_markdown(d, {}), HasSubstr("- B: record\\_reduced: cut down"));
  EXPECT_EQ(diff_json(d, {})["doubts"][0]["of"], "B");
  EXPECT_THAT(diff_table(diff_profiles(b, b), {}), HasSubstr("A and B: record_reduced"));
  EXPECT_EQ(d.severe(), nullptr);
}

// Records that were lost looked like a kernel that is gone, and the gate of --fail-if-slower passed.
TEST(Diff, WhatIsSevereInOneDocumentStandsFirst) {
  const ProfileDocument a = document({kernel("x", "forward", "qkv", 1e6)}, 1e5);
  ProfileDocument b = a;
  b.collection.time_basis = "one_traced_step";
  for (const char* name : {"traced_steps_vary", "records_lost_in_step", "too_few_timed_steps"}) {
    MissingRow& m = b.missing.emplace_back();
    m.name = name;
    m.severity = m.name == "records_lost_in_step" ? "severe" : "notice";
    m.advice = "lost";
    m.detail = "step 7";
  }
  const ProfileDiff d = diff_profiles(a, b);
  ASSERT_NE(d.severe(), nullptr);
  EXPECT_EQ(d.severe()->name, "records_lost_in_step");
  ASSERT_EQ(d.doubts.size(), 2u);
  EXPECT_THAT(diff_table(d, {}),
              HasSubstr("B: severe records_lost_in_step: lost (step 7)\nB: traced_steps_vary: the rows are those of one"));
}

// A document of two ranks held the notice of the other one, and "the rows are those of one traced step" was told of rows that are medians.
TEST(Diff, TracedStepsThatVaryAreToldWhereTheRowsAreThoseOfOneOnly) {
  ProfileDocument a = document({kernel("x", "forward", "qkv", 1e6)}, 1e5);
  a.missing.emplace_back().name = "traced_steps_vary";
  ProfileDocument b = a;
  a.collection.time_basis = "median_over_traced_steps";
  b.collection.time_basis = "one_traced_step";
  const ProfileDiff d = diff_profiles(a, b);
  ASSERT_EQ(d.doubts.size(), 1u);
  EXPECT_EQ(d.doubts[0].of, "B");
  EXPECT_EQ(d.doubts[0].text, "the rows are those of one traced step, because traced steps differ; the step above is of others.");
}

TEST(Diff, ATableOfNoLayersOrOpsIsASentence) {
  const ProfileDocument a = document({kernel("x", "forward", "qkv", 1e6)}, 1e5);
  for (const auto& [by, what] : {std::pair(DiffBy::layer, "layer"), std::pair(DiffBy::op, "op")}) {
    DiffText text;
    text.by = by;
    for (const std::string& shown : {diff_table(diff_profiles(a, a), text), diff_markdown(diff_profiles(a, a), text)})
      EXPECT_THAT(shown, testing::AllOf(testing::EndsWith(std::string("No ") + what + "s: neither document has a row of one.\n"),
                                        testing::Not(HasSubstr(what + std::string(" A ms")))));
  }
}

// Of the document that was not traced every time was 0, and the rest of the other one below it: "rest 0.000 -4.285", "sum 0.000 0.000".
TEST(Diff, WithoutATimeOnTheDeviceNoRowIsCompared) {
  const ProfileDocument traced =
      build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ProfileDocument timed;
  timed.run = traced.run, timed.environment = traced.environment, timed.timing = traced.timing;
  using Documents = std::tuple<const ProfileDocument*, const ProfileDocument*, std::string>;
  for (const auto& [a, b, words] :
       {Documents(&timed, &traced, "A holds no"), Documents(&traced, &timed, "B holds no"), Documents(&timed, &timed, "Neither")}) {
    const ProfileDiff d = diff_profiles(*a, *b);
    ASSERT_TRUE(d.step);
    for (const std::string& text : {diff_table(d, {}), diff_markdown(d, {})})
      EXPECT_THAT(text, testing::AllOf(HasSubstr("\n" + words), HasSubstr("median step"), testing::Not(HasSubstr("sum"))));
    const nlohmann::ordered_json j = diff_json(d, {});
    EXPECT_FALSE(j.contains("device") || j.contains("rest")) << "0 is no answer";
    EXPECT_TRUE(j["passes"].empty() && j["kernels"].empty());
    EXPECT_EQ(d.judged().ratio, 1);
  }
}

TEST(Diff, EqualDocumentsDifferInNothing) {
  const ProfileDocument d = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  const ProfileDiff diff = diff_profiles(d, d);
  EXPECT_TRUE(diff.runs.empty());
  for (const KernelChange& k : diff.kernels) EXPECT_EQ(k.delta_ns(), 0);
  EXPECT_NEAR(sum_of(diff), 0, 1e-6);
  const nlohmann::ordered_json j = diff_json(diff, {"a", "b"});
  EXPECT_EQ(j["schema"], "stepscope.diff/1");
  EXPECT_EQ(j["step"]["ratio"], 1.0);
}

TEST(Diff, TablesFitTheTerminalWhateverTheNames) {
  ProfileDocument a = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()), b = a;
  b.kernels[0].name = std::string(300, 'x');
  for (PassRow& p : b.passes) p.time_ns *= 1e4;
  const ProfileDiff d = diff_profiles(a, b);
  for (const DiffBy by : {DiffBy::pass, DiffBy::op, DiffBy::kernel, DiffBy::layer}) {
    DiffText o{std::string(200, 'a'), "b"};
    o.by = by;
    std::string text = diff_table(d, o);
    for (size_t at; (at = text.find('\n')) != std::string::npos; text.erase(0, at + 1)) EXPECT_LE(at, 80u) << text.substr(0, at);
  }
}

TEST(Diff, NamesInMarkdownCannotEndTheirSentence) {
  ProfileDocument a = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ProfileDocument b = a;
  b.environment.gpu = "GPU|<b>`x`";
  b.run.variants["<i>a|b"] = "c";
  const std::string text = diff_markdown(diff_profiles(a, b), {"a|b", "<i>"});
  EXPECT_THAT(text, HasSubstr("GPU\\|&lt;b>\\`x\\`"));
  EXPECT_THAT(text, HasSubstr("; variant &lt;i>a\\|b default -> c"));
  EXPECT_THAT(text, testing::StartsWith("### a\\|b → &lt;i>\n"));
}

TEST(Diff, TheRowsBelowTopAreOneRowWithTheirTime) {
  const ProfileDocument a = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  const ProfileDiff d = diff_profiles(a, a);
  DiffText o{"a", "b"};
  o.by = DiffBy::op;
  o.top = 2;
  const std::string text = diff_markdown(d, o), table = text.substr(text.find("| op |"));
  ASSERT_GT(d.ops.size(), 2u);
  const size_t rest = table.find(fmt::format("| {} more |", d.ops.size() - 2));
  ASSERT_NE(rest, std::string::npos) << table;
  const std::string rows = table.substr(0, rest);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 2 + 2) << "titles and two rows:\n" << table;
  o.top = d.ops.size();
  EXPECT_THAT(diff_markdown(d, o), testing::Not(HasSubstr(" more |"))) << "nothing is left for such a row";
}

TEST(Diff, MarkdownEscapesWhatWouldBreakItsTables) {
  const ProfileDiff d =
      diff_profiles(document({kernel("a|b", "forward", "qkv", 1e6)}, 0), document({kernel("a|b", "forward", "qkv", 2e6)}, 0));
  EXPECT_THAT(diff_markdown(d, {"a", "b"}), HasSubstr("| a\\|b |"));
}

TEST(Diff, NamesTwoGpusOfOneName) {
  ProfileDocument a = document({kernel("x", "forward", "qkv", 1e6)}, 0), b = a;
  a.environment.uuid = "GPU-1", b.environment.uuid = "GPU-2";
  const auto shown = diff_profiles(a, b).runs;
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].what + " " + shown[0].a + " " + shown[0].b, "GPU GPU-1 GPU-2");
  EXPECT_FALSE(shown[0].unlike);
  // Of two ranks the other one may be the median one: the same two GPUs all the same.
  a.ranks.resize(2), b.ranks.resize(2);
  a.ranks[0].uuid = b.ranks[1].uuid = "GPU-1";
  a.ranks[1].uuid = b.ranks[0].uuid = "GPU-2";
  EXPECT_TRUE(diff_profiles(a, b).runs.empty());
  b.ranks[0].uuid = "GPU-3";
  const auto others = diff_profiles(a, b).runs;
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].what + " " + others[0].a + " " + others[0].b, "GPU GPU-1+GPU-2 GPU-1+GPU-3");
}

// `join` without --run-json has the steps of the rank that its document is of, `profile --gpus` those of rank 0.
TEST(Diff, NamesTheRankOfEachMedianStep) {
  ProfileDocument a = document({kernel("x", "forward", "qkv", 1e6)}, 0);
  a.ranks.resize(2), a.world.size = 2, a.world.main_rank = 1;
  a.timing.step_time_ns.median = 1e6;
  ProfileDocument b = a;
  a.run.trainer = "reference", b.run.trainer.reset();
  const auto said = [](const ProfileDocument& x, const ProfileDocument& y) {
    for (const auto& r : diff_profiles(x, y).runs)
      if (r.what == "median step of") return r.a + " -> " + r.b;
    return std::string();
  };
  EXPECT_EQ(said(a, b), "rank 0 by its run.json -> rank 1 by the recording");
  EXPECT_EQ(said(a, a), "");
  EXPECT_EQ(said(b, b), "");
  b.timing.step_time_ns.median.reset();
  EXPECT_EQ(said(a, b), "");
}

// Two runs that differ in one field of base/run_fields.h only: diff names it, in its own words, with both values.
TEST(Diff, NamesEachFieldInWhichTheRunsDiffer) {
  const ProfileDocument same = document({kernel("x", "forward", "qkv", 1e6)}, 0);
  for (const stepscope::RunField& f : stepscope::run_fields()) {
    ProfileDocument a = same, b = same;
    std::visit(
        [&](auto member) {
          using T = std::remove_cvref_t<decltype(a.run.*member)>;
          if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
            (b.run.*member)["op"] = "other";
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            a.run.*member = {"one"};
            b.run.*member = {"two"};
          } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, Text>) {
            a.run.*member = "one";
            b.run.*member = "two";
          } else {
            a.run.*member = 0;
            b.run.*member = 1;
          }
        },
        f.member);
    const auto shown = diff_profiles(a, b).runs;
    if (f.compare == stepscope::Compare::not_at_all && f.name != "device") {
      EXPECT_TRUE(shown.empty()) << f.name;
      continue;
    }
    ASSERT_EQ(shown.size(), 1u) << f.name;
    EXPECT_THAT(shown[0].what, HasSubstr(std::string(f.words))) << f.name;
    EXPECT_NE(shown[0].a, shown[0].b) << f.name;
    EXPECT_EQ(shown[0].unlike, f.compare == stepscope::Compare::unlike || f.name == "device") << f.name;
    EXPECT_TRUE(diff_profiles(a, same).runs.empty() || f.name == "variants") << f.name << ": one that does not say is no difference";
  }
}

}  // namespace
