// Whole procedures on a simulated device at its power cap, through the runner itself: what the verdict states must be the ratio that a user
// gets who runs one arm alone for long.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "experiments/runner/run_log.h"
#include "experiments/statistics/error_rate.h"
#include "tests/experiments/simulated_device.h"

namespace experiments {
namespace {

using simulation::Device;
using simulation::Model;
using simulation::Work;

PairPlan plan(uint64_t seed) {
  PairPlan p;
  p.a.label = "A";
  p.b.label = "B";
  p.thresholds.looks = alone_looks();
  p.alone.settle_s = 2;
  p.alone.turns = 0;
  p.steps_again = false;
  p.seed = seed;
  return p;
}

RunLog alone(const Model& model, const Work& work, uint64_t seed, const PairPlan& p) {
  Device device(model, seed);
  return run_alone(p, simulation::hooks(device, work));
}

RunLog in_turns(const Model& model, const Work& work, uint64_t seed) {
  Device device(model, seed);
  PairPlan p = plan(seed);
  p.thresholds.looks = extended_looks();
  return run_pairs(p, simulation::hooks(device, work));
}

bool claims(const RunLog& log) { return log.decision.verdict == Verdict::faster || log.decision.verdict == Verdict::slower; }
bool holds(const RunLog& log, double truth) { return log.decision.interval->low <= truth && truth <= log.decision.interval->high; }

constexpr int kRuns = 200;

TEST(sustained, an_interval_alone_holds_the_time_alone_in_95_percent_of_runs_and_turns_do_not) {
  const Device model({}, 0);
  const Work tensor = model.costing(.01, 1.6, 1), idle = model.costing(.01, .1, 0), dram = model.costing(.005, .9, 0);
  for (const auto& [name, work] : {std::pair("tensor 1%", tensor), {"idle 1%", idle}, {"DRAM 0.5%", dram}}) {
    const double truth = model.alone(work);
    int held = 0, found = 0;
    for (uint64_t i = 0; i < kRuns; ++i) {
      const RunLog log = alone({}, work, 100 + i, plan(i));
      held += holds(log, truth);
      found += log.decision.verdict == Verdict::slower;
    }
    EXPECT_GE(held, kRuns * 95 / 100) << name;
    EXPECT_GE(found, kRuns * 95 / 100) << name;
  }
  for (const auto& [name, work] : {std::pair("tensor 1%", tensor), {"idle 1%", idle}}) {
    int held = 0;
    for (uint64_t i = 0; i < 20; ++i) held += holds(in_turns({}, work, 100 + i), model.alone(work));
    EXPECT_LE(held, 10) << name;
  }
}

TEST(sustained, does_not_claim_what_is_given_back_as_clock) {
  const Device model({}, 0);
  const Work trap = model.trap(-.008);
  ASSERT_NEAR(model.alone(trap), 0, 1e-6);
  ASSERT_NEAR(model.at_one_clock(trap), std::log1p(-.008), 1e-3);
  int claimed = 0, in_turns_claimed = 0;
  for (uint64_t i = 0; i < kRuns; ++i) claimed += claims(alone({}, trap, 300 + i, plan(i)));
  for (uint64_t i = 0; i < 20; ++i) in_turns_claimed += in_turns({}, trap, 300 + i).decision.verdict == Verdict::faster;
  EXPECT_LE(claimed, kRuns * 2 / 100);
  EXPECT_GE(in_turns_claimed, 18);
}

TEST(sustained, identical_code_is_the_same_on_every_model) {
  for (const Model& m : {Model{}, Model::slow(), Model::below_the_cap()}) {
    int claimed = 0, same = 0;
    for (uint64_t i = 0; i < 50; ++i) {
      const RunLog log = alone(m, {}, 500 + i, plan(i));
      claimed += claims(log);
      same += log.decision.verdict == Verdict::same;
    }
    EXPECT_LE(claimed, 3);
    EXPECT_GE(same, 45);
  }
}

// What adds idle time only is a change of the host: it follows no clock. In turns it shows more than a user sees.
TEST(sustained, measures_a_change_of_the_host_by_default) {
  const Device model({}, 0);
  const Work launches{.0466, .1, 0};
  EXPECT_NEAR(model.at_one_clock(launches), std::log1p(.0466), 2e-3);
  for (uint64_t i = 0; i < 20; ++i) {
    const RunLog log = alone({}, launches, 700 + i, plan(i));
    EXPECT_NEAR(log.decision.log_ratio->mean, model.alone(launches), 0.002);
    EXPECT_GT(in_turns({}, launches, 700 + i).decision.log_ratio->mean, model.alone(launches) + 0.008);
  }
}

TEST(sustained, below_the_cap_both_procedures_measure_the_same) {
  const Model below = Model::below_the_cap();
  const Work work{.01, .9, .5};
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(alone(below, work, 900 + i, plan(i)).decision.log_ratio->mean, Device(below, 0).alone(work), 0.0015);
    EXPECT_NEAR(in_turns(below, work, 900 + i).decision.log_ratio->mean, Device(below, 0).alone(work), 0.0015);
  }
}

const SelfCheckResult& check_of(const RunLog& log, SelfCheck check) {
  for (const SelfCheckResult& c : log.self_checks)
    if (c.check == check) return c;
  throw std::runtime_error("no such self check");
}

// One arm stays below the cap and so never slows down; the other does after its first second.
TEST(sustained, says_that_it_had_not_settled_when_nothing_was_left_out) {
  const Work waits{.3, .1, 0};
  PairPlan p = plan(1);
  EXPECT_FALSE(check_of(alone({}, waits, 1, p), SelfCheck::settled).notice);
  p.alone.settle_s = 0;
  p.alone.settle_steps = 0;
  const RunLog log = alone({}, waits, 1, p);
  EXPECT_TRUE(check_of(log, SelfCheck::settled).notice) << check_of(log, SelfCheck::settled).sentence;
  EXPECT_TRUE(check_of(log, SelfCheck::burst).notice);
}

TEST(sustained, says_that_a_second_is_too_short_for_a_cycle_of_one_and_a_half) {
  PairPlan p = plan(1);
  EXPECT_FALSE(check_of(alone({}, {}, 1, p), SelfCheck::cycle).notice);
  const SelfCheckResult slow = check_of(alone(Model::slow(), {}, 1, p), SelfCheck::cycle);
  EXPECT_TRUE(slow.notice) << slow.sentence;
  p.alone.measure_s = 1;
  EXPECT_TRUE(check_of(alone(Model::slow(), {}, 1, p), SelfCheck::cycle).notice);
}

TEST(sustained, says_that_processes_drift) {
  Device device({}, 5);
  device.drift_per_process = 0.003;
  const RunLog log = run_alone(plan(5), simulation::hooks(device, {}));
  EXPECT_NEAR(log.decision.log_ratio->mean, 0, 0.001) << "the balanced order cancels it";
  EXPECT_TRUE(check_of(log, SelfCheck::order).notice);
  EXPECT_NEAR(*check_of(log, SelfCheck::order).value, 0.6, 0.2);
}

TEST(sustained, settles_by_rule_and_then_leaves_the_same_out_everywhere) {
  PairPlan p = plan(3);
  p.alone.settle_s.reset();
  const RunLog log = alone({}, {}, 3, p);
  EXPECT_GE(log.settle_s, kSustainedSettle_s);
  EXPECT_LE(log.settle_s, 6);
  for (const AloneRun& r : log.runs) {
    EXPECT_NEAR(r.settle_s, log.settle_s, 0.02);
    if (&r != &log.runs.front()) {
      EXPECT_NEAR(r.rest_s.value(), 1.1 * 1.7 + 0.7, 0.02) << "every process begins after the same rest";
    }
    EXPECT_FALSE(r.burst);
  }
}

TEST(sustained, rests_as_long_as_a_start_that_finds_on_disk_what_the_first_one_searched) {
  Device device({}, 5);
  Hooks h = simulation::hooks(device, {});
  h.make_arm = [&device, started = std::map<std::string, int>()](const ArmSpec& spec) mutable {
    if (started[spec.label]++ == 0) device.idle(10);
    return std::make_unique<simulation::SimulatedArm>(device, Work{});
  };
  const RunLog log = run_alone(plan(5), h);
  ASSERT_FALSE(log.runs.empty());
  EXPECT_FALSE(log.runs[0].rest_s);  // nothing that was kept stepped before it
  for (size_t i = 1; i < log.runs.size(); ++i) EXPECT_NEAR(log.runs[i].rest_s.value(), 1.1 * 1.7 + AlonePlan{}.teardown_s, 0.2);
}

TEST(sustained, says_after_the_first_round_already_how_long_the_others_will_take) {
  Device device({}, 5);
  PairPlan p = plan(5);
  p.alone.heat_s = 100;  // what heats comes once
  Hooks h = simulation::hooks(device, {});
  std::vector<std::pair<Clock::time_point, double>> said;
  h.progress = [&](const Hooks::Progress& of) { said.emplace_back(h.now(), of.seconds_left); };
  EXPECT_EQ(run_alone(p, h).decision.look, 1);
  ASSERT_EQ(said.size(), 8u);
  for (const auto& [at, seconds_left] : said)
    EXPECT_NEAR(seconds_left, std::chrono::duration<double>(said.back().first - at).count(), 0.1 * seconds_left)
        << "the first process has no rest before it";
}

TEST(sustained, four_turns_are_a_witness_at_equal_clocks) {
  const Device model({}, 0);
  const Work launches{.0466, .1, 0};
  PairPlan p = plan(4);
  p.alone.turns = 4;
  const RunLog log = alone({}, launches, 4, p);
  ASSERT_EQ(log.pairs.size(), 4u);
  ASSERT_TRUE(log.equal_clocks);
  EXPECT_EQ(log.equal_clocks->by, EqualClocksBy::turns);
  const PairedRatio& ratio = log.equal_clocks->ratio;
  EXPECT_LT(log.decision.alpha, 0.02);
  EXPECT_DOUBLE_EQ(ratio.interval.high, t_interval(ratio.log_ratio, log.decision.alpha).high) << "at the level of the verdict's";
  EXPECT_NEAR(log.equal_clocks->ratio.log_ratio.mean, model.at_one_clock(launches), 0.004);
  EXPECT_LT(log.decision.log_ratio->mean, log.equal_clocks->ratio.log_ratio.mean - 0.008);
  EXPECT_EQ(log.decision.look, 1);
}

// An arm that trains well alone and fails in its first block beside another.
class FailsInTurns final : public simulation::SimulatedArm {
 public:
  using SimulatedArm::SimulatedArm;
  BlockTimes block(int, double) override { throw ArmFailure("arm B exited with code 9"); }
};

TEST(sustained, a_failure_in_turns_is_said_and_leaves_the_verdict) {
  Device device({}, 4);
  const Work long_step{.4, .1, .5}, longer{.45, .1, .5};  // no process has four steps within 40 ms
  Hooks h = simulation::hooks(device, {});
  h.make_arm = [&](const ArmSpec& spec) -> std::unique_ptr<Arm> {
    if (spec.label == "B") return std::make_unique<FailsInTurns>(device, longer);
    return std::make_unique<simulation::SimulatedArm>(device, long_step);
  };
  PairPlan p = plan(4);
  p.alone.turns = 4;
  const RunLog log = run_alone(p, h);
  EXPECT_EQ(log.decision.verdict, Verdict::slower) << log.decision.sentence;
  EXPECT_EQ(log.equal_clocks_absent, "in turns: arm B exited with code 9");
}

// As `experiment aa --alone 60` records it, and a test resamples it.
TEST(sustained, sixty_recorded_processes_of_identical_code_resample_to_few_claims_and_show_what_is_planted) {
  Device device({}, 8);
  PairPlan p = plan(8);
  p.thresholds.looks = {{30, 0.02, 0.05, 0.02}};
  const RunLog log = run_alone(p, simulation::hooks(device, {}));
  ASSERT_EQ(log.runs.size(), 60u);
  const auto values = sustained_values(runs_from_json(runs_to_json(log.runs), "test"));
  Thresholds t;
  t.looks = alone_looks();
  EXPECT_LE(resample_trials(values, t, 2000, 0, 1)->rate(), 0.02);
  EXPECT_GE(resample_trials(values, t, 1000, std::log(1.005), 2)->rate(), 0.95);
  EXPECT_EQ(resample_trials(values, t, 1000, std::log(1.01), 3)->rate(), 1.0);
}

// Two changes and one baseline: three processes a round, and each verdict is of its own ratio.
TEST(sustained, experiments_that_are_measured_together_share_the_processes_of_their_baseline) {
  Device device({}, 6);
  const Work slower = device.costing(.02, .9, 0), nothing{};
  std::vector<PairPlan> plans{plan(6), plan(6)};
  plans[0].b.label = "slower";
  plans[1].b.label = "nothing";
  Hooks h = simulation::hooks(device, {});
  int processes = 0;
  h.make_arm = [&](const ArmSpec& spec) {
    ++processes;
    return std::make_unique<simulation::SimulatedArm>(device, spec.label == "slower" ? slower : nothing);
  };
  const std::vector<std::string> names{"x", "y"};
  const std::vector<RunLog> logs = run_alone(plans, names, h);
  EXPECT_EQ(logs[0].decision.verdict, Verdict::slower);
  EXPECT_EQ(logs[1].decision.verdict, Verdict::same);
  EXPECT_NEAR(logs[0].decision.log_ratio->mean, std::log1p(.02), 0.003);
  EXPECT_EQ(processes, 3 + 3 + 3 * 8) << "three that heat, three that only start, and three in each of eight rounds";
  EXPECT_TRUE(logs[0].shared_baseline);
  EXPECT_EQ(logs[0].shared_with, "y");
  int before = 0;
  for (size_t i = 0; i < 8; ++i) {
    const AloneRun *a = nullptr, *b = nullptr;
    for (const AloneRun& r : logs[0].runs)
      if (r.pair == static_cast<int>(i)) (r.arm == 'A' ? a : b) = &r;
    ASSERT_TRUE(a && b);
    before += a->position < b->position;
    for (const AloneRun& r : logs[1].runs) {
      if (r.pair == a->pair && r.arm == 'A') {
        EXPECT_DOUBLE_EQ(r.total_ns, a->total_ns);
      }
    }
  }
  EXPECT_EQ(before, 4) << "in every two rounds a change runs before the baseline once";
}

// A round that was drawn anew because a change had left behind its third one: A began both, in half of all runs.
TEST(sustained, of_two_rounds_a_begins_one_also_where_a_change_leaves_between_them) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<PairPlan> plans(2, plan(seed));
    for (PairPlan& p : plans) p.alone.settle_s = p.alone.measure_s = 0.1;
    plans[0].thresholds.looks = extended_looks(3, 3);
    plans[1].thresholds.looks = extended_looks(8, 8);
    const std::vector<std::string> names{"x", "y"};
    Device device({}, seed);
    const std::vector<RunLog> logs = run_alone(plans, names, simulation::hooks(device, {}));
    ASSERT_EQ(logs[0].runs.size(), 6u);
    const std::vector<AloneRun>& runs = logs[1].runs;
    ASSERT_EQ(runs.size(), 16u);
    for (size_t round = 0; round < 8; round += 2) EXPECT_NE(runs[2 * round].arm, runs[2 * round + 2].arm) << seed << ", round " << round;
  }
}

}  // namespace
}  // namespace experiments
