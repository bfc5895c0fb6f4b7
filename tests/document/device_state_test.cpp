// Cool or warm, and joules per step, from steps whose truth is known because the test wrote them.
#include "profiler/document/device_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "profiler/document/json.h"
#include "profiler/document/states.h"
#include "profiler/report/markdown.h"
#include "profiler/report/table.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;
using testing::HasSubstr;

constexpr double kSecond = 1e9;
constexpr int64_t kStart = 5'000'000'000;

// A process whose step takes step_ms(t) at second t, sampled every 100 ms, with an energy counter that jumps every 100 ms.
struct Process {
  std::function<double(double)> step_ms;
  std::function<double(double)> clock_mhz = [](double) { return 1800.0; };
  std::function<double(double)> power_w = [](double) { return 690.0; };
  std::vector<StepInTime> steps = {};
  std::vector<EnvironmentSample> samples = {};
  std::vector<EnergySample> energy = {};

  Process& run(double seconds, size_t warmup = 10) {
    double t = 0;
    while (t < seconds) {
      const double ms = step_ms(t);
      steps.push_back({kStart + std::llround(t * kSecond), ms * 1e6, steps.size() >= warmup});
      t += ms * 1e-3;
    }
    double joules = 1000;
    for (int i = 0; i * 0.1 < t + 0.2; ++i) {
      const double at = i * 0.1;
      const int64_t ns = kStart + std::llround(at * kSecond);
      samples.push_back({ns, Phase::timed, clock_mhz(at), 2600, power_w(at), 50, 0});
      energy.push_back({ns + 3'000'000, static_cast<uint64_t>(std::llround(joules * 1e3))});
      joules += power_w(at + 0.05) * 0.1;
    }
    return *this;
  }
  DeviceStates states() const { return device_states(steps, samples, energy, "timed", 4096); }
};

const StateRow* row(const DeviceStates& d, const std::string& state) {
  for (const StateRow& r : d.rows)
    if (r.state == state) return &r;
  return nullptr;
}

// The note's start of a process at the cap: 8.5 ms for 70 ms, 8.85 until 0.75 s, a dip, then a cycle of 1.03 s about 9.05 ms.
double start_at_the_cap(double t) {
  if (t < 0.07) return 8.5;
  if (t < 0.75) return 8.85;
  if (t < 1.0) return 9.7;
  return 9.05 * (1 + 0.02 * std::sin(2 * std::numbers::pi * t / 1.03));
}

TEST(DeviceState, HalfASecondOfStepsCanOnlyBeCool) {
  const DeviceStates d = Process{start_at_the_cap}.run(0.5).states();
  EXPECT_EQ(d.state, "cool");
  ASSERT_EQ(d.rows.size(), 1u);
  EXPECT_LT(d.rows[0].step_time_ns, 8.9e6);
  EXPECT_FALSE(d.rows[0].joules_per_step) << "half a second is five jumps of the counter";
  EXPECT_THAT(d.why_no_energy, HasSubstr("needs 1 s"));
}

// Equal steps at an equal clock are no proof of warmth below two windows.
TEST(DeviceState, BelowTwoWindowsEvenSteadyStepsAreCool) {
  EXPECT_EQ((Process{[](double) { return 9.0; }}.run(2.0).states().state), "cool");
  EXPECT_EQ((Process{[](double) { return 9.0; }}.run(6.0).states().state), "warm");
}

TEST(DeviceState, StepsOfWhichLessThanHalfAreWarmAreCool) {
  EXPECT_EQ((Process{[](double) { return 9.0; }}.run(3.5).states().state), "cool") << "2.07 s until the second window ends, 1.43 s behind";
}

TEST(DeviceState, ALongRunHasACoolAndAWarmFigure) {
  const DeviceStates d = Process{start_at_the_cap}.run(12).states();
  EXPECT_EQ(d.state, "warm");
  const StateRow *cool = row(d, "cool"), *warm = row(d, "warm");
  ASSERT_TRUE(cool && warm);
  EXPECT_NEAR(warm->step_time_ns, 9.05e6, 0.01e6);
  EXPECT_NEAR(*warm->joules_per_step, 690 * 9.05e-3, 0.02);
  EXPECT_NEAR(*warm->power_w, 690, 1);
  EXPECT_NEAR(*warm->sm_clock_mhz, 1800, 1e-6);
  EXPECT_NEAR(*warm->tokens_per_s, 4096 / 9.05e-3, 1000);
  EXPECT_GE(warm->time_ns, 3 * kSecond);
  EXPECT_GE(warm->begin_ns, 2 * kSecond);
  EXPECT_LT(warm->begin_ns, 6 * kSecond);
}

// Total time over steps: the skew of a cycle moves a median, not this.
TEST(DeviceState, TheWarmFigureIsTotalTimeOverSteps) {
  const auto spiky = [](double t) { return std::fmod(t, 1.03) < 0.2 ? 10.0 : 9.0; };
  const DeviceStates d = Process{spiky}.run(15).states();
  const StateRow* warm = row(d, "warm");
  ASSERT_TRUE(warm);
  EXPECT_NEAR(warm->step_time_ns, warm->time_ns / static_cast<double>(warm->steps), 1e-3);
  EXPECT_GT(warm->step_time_ns, 9.1e6);
}

TEST(DeviceState, TwoSecondsBehindTheSettlingAreTooFewForAWarmFigure) {
  const DeviceStates d = Process{[](double) { return 9.0; }}.run(4.5).states();
  EXPECT_EQ(d.state, "warm");
  EXPECT_FALSE(row(d, "warm"));
}

TEST(DeviceState, AClockThatStillFallsIsNotSettledHoweverSteadyTheSteps) {
  Process p{[](double) { return 9.0; }};
  p.clock_mhz = [](double t) { return 1950 - 60 * t; };
  const DeviceStates d = p.run(6).states();
  EXPECT_EQ(d.state, "cool");
  Process q{[](double) { return 9.0; }};
  q.power_w = [](double t) { return 300 + 50 * t; };
  EXPECT_EQ(q.run(6).states().state, "cool");
}

TEST(DeviceState, StepsThatDriftForTenSecondsAreNeither) {
  const DeviceStates d = Process{[](double t) { return 9.0 * (1 + 0.01 * t); }}.run(12).states();
  EXPECT_FALSE(d.state);
  EXPECT_THAT(d.why_none, HasSubstr("the step still changed by 0.9"));
  EXPECT_TRUE(d.rows.empty());
}

TEST(DeviceState, WithoutClockAndPowerItIsNeither) {
  Process p{[](double) { return 9.0; }};
  p.run(6);
  p.samples.clear();
  EXPECT_FALSE(p.states().state);
  EXPECT_THAT(p.states().why_none, HasSubstr("NVML"));
}

TEST(DeviceState, StepsThatCompileFirstDoNotCountAsSettling) {
  int step = 0;
  const auto slow_start = [&](double) { return step++ < 4 ? 1500.0 : 9.0; };
  const Process p = Process{slow_start}.run(12, 0);
  const Settling s = settling_of(p.steps, p.samples);
  ASSERT_TRUE(s.first_warm);
  EXPECT_EQ(*s.first_warm, 4u + 2 * 115) << "two windows of ordinary steps of 9 ms";
}

TEST(Energy, IsInterpolatedBetweenTheJumps) {
  std::vector<EnergySample> jumps;
  for (int64_t i = 0; i < 40; ++i) jumps.push_back({i * 100'000'000, static_cast<uint64_t>(70'000 * i)});  // 700 W
  EXPECT_NEAR(*energy_between(jumps, 0.55e9, 2.05e9).joules, 1.5 * 700, 1e-6) << "both ends between two jumps";
  EXPECT_NEAR(*energy_between(jumps, 0.50e9, 2.07e9).joules, 1.57 * 700, 1e-6) << "one end on a jump";
  EXPECT_NEAR(*energy_between(jumps, 0, 4.1e9).joules, 4.1 * 700, 1e-6) << "the last 0.2 s behind the last jump draw what the rest drew";
}

TEST(Energy, IsAbsentWithTheReason) {
  std::vector<EnergySample> jumps;
  EXPECT_THAT(energy_between(jumps, 0, 3e9).why_none, HasSubstr("not seen to change"));
  for (int64_t i = 0; i < 12; ++i) jumps.push_back({i * 100'000'000, static_cast<uint64_t>(70'000 * i)});
  EXPECT_THAT(energy_between(jumps, 0, 0.45e9).why_none, HasSubstr("0.45 s"));
  EXPECT_THAT(energy_between(jumps, 0, 3e9).why_none, HasSubstr("1.10 of 3.00 s"));
  EXPECT_EQ(energy_between(jumps, 0.55e9, 2e9).why_none, "0.55 s of steps with 6 changes of the energy counter; it needs 1 s and 10");
  EXPECT_EQ(energy_between(jumps, 0.15e9, 3e9).why_none, "0.95 s of steps with 10 changes of the energy counter; it needs 1 s and 10");
  const std::vector<EnergySample> slow = {{0, 0}, {1'000'000'000, 700'000}, {2'000'000'000, 1'400'000}};
  EXPECT_FALSE(energy_between(slow, 0, 2e9).joules) << "three changes resolve nothing";
}

// ---- the whole way: recording -> document -> table, Markdown, JSON
Recording recorded(const Process& p, Recording r, int64_t warmup) {
  r.steps.clear();
  for (size_t i = 0; i < p.steps.size(); ++i) {
    StepRecord s;
    s.step = static_cast<int64_t>(i);
    s.phase = s.step < warmup ? Phase::warmup : Phase::timed;
    s.host_begin_ns = p.steps[i].begin_ns;
    s.host_end_ns = s.host_begin_ns + 100;
    r.steps.push_back(s);
  }
  r.environment = p.samples;
  r.energy = p.energy;
  return r;
}
RunInfo run_of(const Process& p) {
  RunInfo run = fixture::gpt2_run();
  run.steps.clear();
  for (const StepInTime& s : p.steps) run.steps.push_back({static_cast<int64_t>(run.steps.size()) + 1, 1.0, 1.0, s.time_ns});
  return run;
}

TEST(Sustained, StandsBesideTheCoolStepsInEveryOutput) {
  ProfileDocument d = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  EXPECT_EQ(d.timing.state, "cool");
  EXPECT_TRUE(fixture::missing_row(d, "energy_not_measured"));
  EXPECT_THAT(table_text(d, {}), HasSubstr("] cool"));
  const Process p = Process{start_at_the_cap}.run(10);
  ProfileOptions o = fixture::options();
  o.first_timed_step = 10;
  o.timed_steps = static_cast<int64_t>(p.steps.size()) - 10;
  add_sustained(d, recorded(p, fixture::gpt2_recording(), 10), run_of(p), o);
  ASSERT_EQ(d.timing.states.size(), 2u);
  EXPECT_EQ(d.timing.states[1].run, "sustained");
  EXPECT_NEAR(d.timing.states[1].step_time_ns, 9.05e6, 0.01e6);
  EXPECT_FALSE(fixture::missing_row(d, "energy_not_measured")) << "the longer run has it";
  for (const std::string& text : {table_text(d, {}), markdown_text(d, 3)}) {
    EXPECT_THAT(text, testing::ContainsRegex("cool +\\|?.*5\\.0"));
    EXPECT_THAT(text, testing::ContainsRegex("warm +\\|?.*9\\.05.*6\\.2"));
  }
  const ProfileDocument back = profile_from_json(to_json(d), "a test");
  EXPECT_EQ(to_json(back), to_json(d));
  EXPECT_EQ(back.timing.states[1].joules_per_step, d.timing.states[1].joules_per_step);
}

// Steps 10 to 17 of run.json are the timed ones, and they began where the recording saw the first timed step begin: at 510 ms.
TEST(DeviceState, TheTimedStepsOfATrainerLieWhereTheyWereRecorded) {
  Recording r = fixture::gpt2_recording();
  r.environment.clear();
  for (const auto& [ms, mhz] : {std::pair{450, 1000.0}, {512, 1500.0}, {560, 2000.0}})
    r.environment.push_back({ms * 1'000'000, Phase::timed, mhz, 2600, 400, 50, 0});
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  ASSERT_EQ(d.timing.states.size(), 1u);
  EXPECT_NEAR(*d.timing.states[0].sm_clock_mhz, (2 * 1000 + 38.28 * 1500) / 40.28, 1e-6);
}

TEST(Sustained, SaysWhyItDidNotBecomeWarm) {
  ProfileDocument d = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  const Process p = Process{start_at_the_cap}.run(1.5);
  ProfileOptions o = fixture::options();
  o.timed_steps = static_cast<int64_t>(p.steps.size()) - 10;
  add_sustained(d, recorded(p, fixture::gpt2_recording(), 10), run_of(p), o);
  EXPECT_EQ(d.timing.states.size(), 1u);
  ASSERT_TRUE(fixture::missing_row(d, "sustained_not_measured"));
  EXPECT_THAT(fixture::missing_row(d, "sustained_not_measured")->detail, HasSubstr("less than two windows"));
  EXPECT_THAT(fixture::missing_row(d, "sustained_not_measured")->advice, HasSubstr("where a GPU ran")) << "more steps help no CPU";
}

// A foreign program has its step ranges and nothing else.
TEST(Sustained, OfAProgramWithoutRunJsonGoesByItsStepRanges) {
  Process p{start_at_the_cap};
  p.run(10, 10);
  ProfileDocument d = build_profile(recorded(p, fixture::gpt2_recording(), 10), std::nullopt, fixture::round_ceilings(), {});
  EXPECT_EQ(d.timing.state, "warm");
  ASSERT_EQ(d.timing.states.size(), 2u);
  EXPECT_NEAR(d.timing.states[1].step_time_ns, 9.05e6, 0.01e6);
  EXPECT_FALSE(d.timing.states[1].tokens_per_s);
}

// Steps with a collector are 40% longer here; those of the figure end where it begins.
TEST(DeviceState, CollectedStepsOfAProgramAreNoPartOfItsFigures) {
  Process p{[](double t) { return t < 5 ? 9.0 : 12.6; }};
  p.run(8, 10);
  Recording r = recorded(p, fixture::gpt2_recording(), 10);
  int64_t timed = 0;
  for (StepRecord& s : r.steps) {
    if (s.host_begin_ns >= kStart + 5'000'000'000) s.phase = Phase::counters;
    timed += s.phase == Phase::timed;
  }
  const ProfileDocument d = build_profile(r, std::nullopt, fixture::round_ceilings(), {});
  ASSERT_FALSE(d.timing.states.empty());
  int64_t steps = 0;
  for (const StateRow& s : d.timing.states) {
    EXPECT_NEAR(s.step_time_ns, 9e6, 1e3) << s.state;
    steps += s.steps;
  }
  EXPECT_LE(steps, timed);
}

TEST(Sustained, ARunOnACpuSaysNothingAboutCoolAndWarm) {
  const ProfileDocument d = build_profile(fixture::cpu_recording(), fixture::cpu_run(), {}, fixture::options());
  EXPECT_FALSE(d.timing.state);
  EXPECT_TRUE(d.timing.states.empty());
  EXPECT_FALSE(fixture::missing_row(d, "device_state_unknown"));
}

TEST(Sustained, WithoutSamplesTheHeadlineSaysNeither) {
  Recording r = fixture::gpt2_recording();
  r.environment.clear();
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  EXPECT_FALSE(d.timing.state);
  EXPECT_TRUE(fixture::missing_row(d, "environment_not_sampled"));
  EXPECT_THAT(table_text(d, {}), testing::Not(HasSubstr("cool")));
}

}  // namespace
