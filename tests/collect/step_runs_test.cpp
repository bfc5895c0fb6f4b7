// Foreign programs with step ranges, of any number of steps: what a whole `profile --step-range step -- program` makes of them, from the
// collector's phases to the document, with a GPU made of numbers. What would make it worse than useless: a program of 20 steps ends with
// "needs 69" and no table, or a cut plan passes for the whole one.
#include "profiler/recording/step_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "fake_backend.h"
#include "profiler/collect/step_collector.h"
#include "profiler/document/build_profile.h"
#include "profiler/report/markdown.h"
#include "profiler/report/table.h"

namespace profiler::collect {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// As the command asks: 10 warm-up, 50 timed, 1 counted, 1 counted by pass, 5 traced and 2 for the tracing to settle.
const std::vector<PhasePlan> kWanted = {
    {Phase::warmup, 10}, {Phase::timed, 50}, {Phase::counters, 1}, {Phase::pass_counters, 1}, {Phase::activity, 7}};

int64_t steps_of(const std::vector<PhasePlan>& phases, Phase phase) {
  int64_t n = 0;
  for (const PhasePlan& p : phases)
    if (p.phase == phase) n += p.steps;
  return n;
}

TEST(PhasesThatFit, TakeEveryStepThatThereIsAndNoneTwice) {
  for (int64_t n = 0; n <= 100; ++n) {
    const auto phases = phases_that_fit(kWanted, n);
    EXPECT_EQ(planned_steps(phases), std::min<int64_t>(n, 69)) << n;
    for (const PhasePlan& p : phases) EXPECT_LE(p.steps, steps_of(kWanted, p.phase)) << n;
  }
}

TEST(PhasesThatFit, AreInOrderOfWorth) {
  const auto counts = [](int64_t n) {
    const auto p = phases_that_fit(kWanted, n);
    return std::vector<int64_t>{steps_of(p, Phase::warmup), steps_of(p, Phase::timed), steps_of(p, Phase::counters),
                                steps_of(p, Phase::pass_counters), steps_of(p, Phase::activity)};
  };
  EXPECT_EQ(counts(1), (std::vector<int64_t>{0, 0, 0, 0, 1})) << "one step: its kernels";
  EXPECT_EQ(counts(2), (std::vector<int64_t>{1, 0, 0, 0, 1}));
  EXPECT_EQ(counts(3), (std::vector<int64_t>{1, 1, 0, 0, 1}));
  EXPECT_EQ(counts(4), (std::vector<int64_t>{1, 1, 1, 0, 1}));
  EXPECT_EQ(counts(9), (std::vector<int64_t>{1, 3, 1, 1, 3}));
  EXPECT_EQ(counts(20), (std::vector<int64_t>{3, 10, 1, 1, 5}));
  EXPECT_EQ(counts(69), (std::vector<int64_t>{10, 50, 1, 1, 7}));
  for (int64_t n = 1; n < 100; ++n)
    for (size_t i = 0; i < 5; ++i) EXPECT_GE(counts(n + 1)[i], counts(n)[i]) << n << ": a longer program never has less";
}

TEST(PhasesThatFit, KeepTheOrderAndLeaveOutWhatIsNotWanted) {
  const auto phases = phases_that_fit({{Phase::warmup, 10}, {Phase::timed, 50}, {Phase::activity, 7}}, 6);
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[0].phase, Phase::warmup);
  EXPECT_EQ(phases[1].phase, Phase::timed);
  EXPECT_EQ(phases[2].phase, Phase::activity);
}

TEST(LeftOut, WarmUpOfTheTracingIsNoWarmUp) {
  std::vector<StepRecord> steps;
  for (const Phase p : {Phase::warmup, Phase::timed, Phase::warmup, Phase::warmup, Phase::activity}) {
    StepRecord s;
    s.step = static_cast<int64_t>(steps.size());
    s.phase = p;
    steps.push_back(s);
  }
  const auto short_of = left_out({{Phase::warmup, 3}, {Phase::timed, 1}, {Phase::activity, 3}}, steps);
  ASSERT_TRUE(short_of);
  EXPECT_EQ(short_of->name, "plan_shortened");
  EXPECT_EQ(short_of->detail, "the program had 5 steps, the plan needs 7: 1 of 3 warm-up");
  EXPECT_FALSE(left_out({{Phase::warmup, 1}, {Phase::timed, 1}, {Phase::activity, 3}}, steps));
}

TEST(LeftOut, WhatWasNotPlannedIsNotLeftOut) {
  StepRecord timed;
  timed.phase = Phase::timed;
  EXPECT_FALSE(left_out({{Phase::timed, 1}}, {timed}));
  const auto short_of = left_out({{Phase::timed, 2}}, {timed});
  ASSERT_TRUE(short_of);
  EXPECT_EQ(short_of->detail, "the program had 1 step, the plan needs 2: 1 of 2 timed");
}

TEST(RecordSteps, AsManyStepsAsPlannedAndNoneTracedIsNoReasonToRunTheProgramAgain) {
  int runs = 0, notes = 0;
  const Recording r = record_steps({{Phase::warmup, 1}, {Phase::timed, 2}, {Phase::activity, 1}}, {[&](const std::vector<PhasePlan>&) {
                                                                                                     ++runs;
                                                                                                     Recording of_run;
                                                                                                     of_run.steps.resize(4);
                                                                                                     return of_run;
                                                                                                   },
                                                                                                   [&](const std::string&) { ++notes; }});
  EXPECT_EQ(r.steps.size(), 4u);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(notes, 0);
}

// ---- whole runs of programs

class Programs : public ::testing::Test {
 protected:
  Programs() : path_(::testing::TempDir() + "step_runs_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl") {}
  ~Programs() override { std::filesystem::remove(path_); }

  struct Program {
    std::vector<int64_t> steps;  // of its first, second, … run; the last stands for all further ones
    std::function<void(FakeBackend&, int64_t step)> kernels = [](FakeBackend& gpu, int64_t) {
      gpu.launch("_Z4gemmv");
      gpu.launch("_Z4biasv");
    };
    std::string range = "step";
    bool launches_on_another_thread = false;
  };

  Recording record(const Program& program) {
    return record_steps(kWanted, {[&](const std::vector<PhasePlan>& phases) { return run(program, phases); },
                                  [&](const std::string& text) { notes_.push_back(text); }});
  }
  static ProfileDocument document(const Recording& r) {
    Ceilings ceilings;
    ceilings.copy_bytes_per_s = 1e12;
    return build_profile(r, std::nullopt, ceilings, {});
  }
  static const MissingRow* missing_row(const ProfileDocument& d, const std::string& name) {
    for (const MissingRow& m : d.missing)
      if (m.name == name) return &m;
    return nullptr;
  }

  std::string path_;
  std::vector<std::string> notes_;
  std::vector<const void*> contexts_;  // of the last run
  int runs_ = 0;

 private:
  Recording run(const Program& program, const std::vector<PhasePlan>& phases) {
    std::filesystem::remove(path_);
    const int64_t steps = program.steps[std::min(static_cast<size_t>(runs_), program.steps.size() - 1)];
    ++runs_;
    CollectPlan plan;
    plan.phases = phases;
    FakeBackend gpu;
    Recorder recorder(path_);
    StepCollector collector(plan, gpu, recorder, {});
    gpu.observer = &collector;
    for (int64_t s = 0; s < steps; ++s) {
      collector.range_push(1, program.range);
      if (program.launches_on_another_thread)
        std::thread([&] { program.kernels(gpu, s); }).join();
      else
        program.kernels(gpu, s);
      collector.range_pop(1);
    }
    collector.process_ends();
    contexts_ = gpu.contexts;
    return load_recording(path_);
  }
};

TEST_F(Programs, OfAnyNumberOfStepsShowTheirKernelsAndSayWhatWasLeftOut) {
  for (const int64_t n : {1, 2, 3, 4, 5, 6, 9, 20, 61, 62, 63, 64, 65, 68, 69, 70, 1000}) {
    SCOPED_TRACE(n);
    runs_ = 0;
    notes_.clear();
    const ProfileDocument d = document(record({.steps = {n}}));
    EXPECT_FALSE(has_severe_missing(d)) << d.missing.front().name << ": " << d.missing.front().detail;
    EXPECT_GE(d.collection.traced_steps, 1);
    ASSERT_EQ(d.kernels.size(), 2u);
    EXPECT_EQ(d.kernels[0].launches, 1) << "per step";
    EXPECT_EQ(d.kernels[0].dram_read_bytes.has_value(), n >= 4) << "counted";
    EXPECT_EQ(d.timing.step_time_ns.median.has_value(), n >= 3) << "timed";
    // From 65 steps on the first run has reached a traced step.
    EXPECT_EQ(runs_, n < 65 ? 2 : 1);
    EXPECT_EQ(notes_.size(), n < 65 ? 1u : 0u);
    const MissingRow* cut = missing_row(d, "plan_shortened");
    EXPECT_EQ(cut != nullptr, n < 69);
    if (cut) {
      EXPECT_EQ(cut->severity, "notice");
      EXPECT_THAT(table_text(d, {TableBy::kernel, 12, 200, false}),
                  HasSubstr("the program had " + std::to_string(n) + (n == 1 ? " step" : " steps") + ", the plan needs 69: "));
    }
    EXPECT_FALSE(missing_row(d, "phases_not_traced"));
    EXPECT_FALSE(missing_row(d, "unattributed_kernels")) << "it promised no leaf ranges";
    EXPECT_FALSE(missing_row(d, "unknown_range_path"));
  }
}

TEST_F(Programs, OfTwentyStepsAreShownByKernelFirst) {
  const ProfileDocument d = document(record({.steps = {20}}));
  EXPECT_THAT(markdown_text(d, 12), HasSubstr("One step on the device: "));
  const std::string text = table_text(d, {TableBy::kernel, 12, 200, false});
  EXPECT_THAT(text, HasSubstr("On the device one step took"));
  EXPECT_THAT(text, HasSubstr("2 kernel launches"));
  EXPECT_THAT(text, HasSubstr("10 timed steps without collector, 3 traced"));
  EXPECT_THAT(text, Not(HasSubstr("unattributed")));
  EXPECT_LT(text.find("gemm"), text.find("missing"));
}

TEST_F(Programs, ThatStopEarlierTheSecondTimeAreRunAThirdTime) {
  const ProfileDocument d = document(record({.steps = {20, 12}}));
  EXPECT_EQ(runs_, 3);
  EXPECT_FALSE(has_severe_missing(d));
  EXPECT_THAT(missing_row(d, "plan_shortened")->detail, HasSubstr("had 12 steps"));
}

TEST_F(Programs, ThatStopEarlierEachTimeFailAndSayWhy) {
  const ProfileDocument d = document(record({.steps = {20, 12, 5}}));
  EXPECT_EQ(runs_, kMostRuns);
  ASSERT_TRUE(missing_row(d, "phases_not_traced"));
  EXPECT_TRUE(has_severe_missing(d));
}

TEST_F(Programs, WithoutSuchARangeFailOnceAndNameTheRangesThatTheyOpened) {
  const ProfileDocument d = document(record({.steps = {20}, .range = "iteration"}));
  EXPECT_EQ(runs_, 1);
  ASSERT_TRUE(missing_row(d, "phases_not_traced"));
  EXPECT_THAT(missing_row(d, "phases_not_traced")->detail, HasSubstr("no NVTX range named 'step'; it opened 'iteration'"));
  EXPECT_TRUE(has_severe_missing(d));
  EXPECT_FALSE(missing_row(d, "plan_shortened"));
}

TEST_F(Programs, WhoseStepsVaryShowOneStepAndDoNotFail) {
  Program varying{.steps = {69}};
  varying.kernels = [](FakeBackend& gpu, int64_t step) {
    gpu.launch(step % 2 ? "_Z4evenv" : "_Z3oddv");
    gpu.launch("_Z4biasv");
    if (step % 3 == 0) gpu.launch("_Z3logv");
  };
  const ProfileDocument d = document(record(varying));
  EXPECT_FALSE(has_severe_missing(d)) << d.missing.front().name << ": " << d.missing.front().detail;
  ASSERT_TRUE(missing_row(d, "steps_differ"));
  EXPECT_EQ(d.collection.time_basis, "one_traced_step");
  for (const KernelRow& k : d.kernels) EXPECT_FALSE(k.dram_read_bytes) << "counters of other kernels";
  double sum = 0;
  for (const KernelRow& k : d.kernels) sum += k.time_ns;
  EXPECT_NEAR(sum + *d.totals.idle_ns, *d.totals.time_ns, 1);
}

TEST_F(Programs, WhoseStepsAreOpenedByAThreadThatLaunchesNothingUseTheLaunchersContext) {
  int context = 0;
  Program other{.steps = {69}, .launches_on_another_thread = true};
  other.kernels = [&](FakeBackend& gpu, int64_t) { gpu.launch("_Z4gemmv", LaunchKind::kernel, LaunchEnd::performed, &context); };
  const ProfileDocument d = document(record(other));
  EXPECT_FALSE(has_severe_missing(d));
  ASSERT_EQ(d.kernels.size(), 1u);
  EXPECT_TRUE(d.kernels[0].dram_read_bytes);
  ASSERT_FALSE(contexts_.empty());
  // The launches of the last warm-up step are listened to: from then on the context is known.
  for (const void* c : contexts_) EXPECT_EQ(c, &context);
}

TEST_F(Programs, WithSomeLeafRangesAreToldOfKernelsOutsideThem) {
  Recording r = record({.steps = {69}});
  for (LaunchRecord& l : r.launches)
    if (l.index == 0) l.path = "step/forward/0/qkv";
  for (CounterRecord& c : r.counters)
    if (c.index == 0) c.path = "step/forward/0/qkv";
  const ProfileDocument d = document(r);
  ASSERT_TRUE(missing_row(d, "unattributed_kernels"));
  EXPECT_EQ(d.passes.size(), 1u);
  EXPECT_THAT(table_text(d, {}), HasSubstr("unattributed"));
}

}  // namespace
}  // namespace profiler::collect
