// Does the harness fall for a cheat? Each of the twelve of tests/gate/cheating_trainer.h goes through the
// gate, and counts as caught when the check that is there for it fails. The score of all of them is printed
// for tests/bugs/run_bugs.sh, and it must drop when one of those checks is taken away.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "tests/gate/cheating_trainer.h"
#include "tests/gate/shared_answers.h"

namespace gate {
namespace {

using gate_test::CheatCase;
using gate_test::FakeDevice;

ModelGateOptions small(const FakeDevice& device) {
  ModelGateOptions o;
  o.trainer = "reference";
  o.seed = 11;
  o.config.layers = 1;
  o.batch_size = 2;
  o.seq_len = 32;
  o.trajectory_steps = 5;
  o.with_small_cases = o.with_steps = o.with_loop = false;
  o.device = &device.hooks;
  o.small_answers = &gate_test::shared_answers();
  return o;
}

GateReport judge(const CheatCase& cheat) {
  FakeDevice device;
  return check_model(cheat.make(device), small(device));
}

// Once for all tests: what the gate said of each cheat.
const std::map<std::string, GateReport>& reports() {
  static const auto all = [] {
    std::map<std::string, GateReport> out;
    for (const CheatCase& c : gate_test::cheats()) out[c.name] = judge(c);
    return out;
  }();
  return all;
}

bool fails(const GateReport& report, const std::string& check) {
  for (const CheckResult& r : report.results)
    if (r.name == check && !r.passed) return true;
  return false;
}

std::set<std::string> failing_checks(const GateReport& report) {
  std::set<std::string> names;
  for (const CheckResult& r : report.results)
    if (!r.passed) names.insert(r.name.substr(0, r.name.find(" t=")));
  return names;
}

GateReport judge_without(const CheatCase& cheat, const std::set<std::string>& without) {
  FakeDevice device;
  ModelGateOptions o = small(device);
  o.without = without;
  return check_model(cheat.make(device), o);
}

TEST(Cheats, each_of_the_twelve_is_caught_by_the_check_that_is_there_for_it) {
  EXPECT_EQ(gate_test::cheats().size(), 12u);
  for (const CheatCase& c : gate_test::cheats()) {
    const bool yes = fails(reports().at(c.name), c.check);
    EXPECT_TRUE(yes) << c.name << ": expected `" << c.check << "` to fail\n" << to_table(reports().at(c.name), false);
    std::printf("cheat\t%s\t%s\t%s\n", c.name.c_str(), c.check.c_str(), yes ? "caught" : "MISSED");
  }
}

// The gate is run again, each time without one check: not skipped where results are read, but never run. What no other
// check sees then passes the whole gate, and the score falls.
TEST(Cheats, the_score_falls_when_a_check_is_not_run) {
  for (const CheatCase& c : gate_test::cheats()) {
    const std::set<std::string> seen_by = failing_checks(reports().at(c.name));
    const GateReport without = judge_without(c, {c.check});
    for (const CheckResult& r : without.results) EXPECT_NE(r.name.substr(0, r.name.find(" t=")), c.check);
    EXPECT_EQ(without.passed(), seen_by == std::set<std::string>{c.check}) << c.name << "\n" << to_table(without, false);
    // And without every check that saw it, it is not seen.
    EXPECT_TRUE(judge_without(c, seen_by).passed()) << c.name;
  }
}

// Checks that alone stand between a cheat and the verdict "passed": each costs a point when it goes.
TEST(Cheats, these_checks_are_the_only_ones_to_see_their_cheat) {
  std::set<std::string> alone;
  for (const CheatCase& c : gate_test::cheats())
    if (failing_checks(reports().at(c.name)).size() == 1) alone.insert(c.check);
  EXPECT_EQ(alone, (std::set<std::string>{"late work", "timed steps", "persisting L2", "launch error"}));
}

TEST(Cheats, a_check_that_does_not_exist_cannot_be_left_out) {
  FakeDevice device;
  ModelGateOptions o = small(device);
  o.without = {"gradient"};
  EXPECT_THROW(check_model(gate_test::cheating<gate_test::Cheat>(device), o), stepscope::InputError);
}

// Not only by name: without their check these pass the whole gate.
TEST(Cheats, nothing_else_in_the_gate_sees_what_these_checks_see) {
  const std::set<std::string> unseen{"side stream without sync", "persisting L2", "launch error ignored",
                                     "shorter run when warm-up is detected"};
  for (const CheatCase& c : gate_test::cheats()) {
    if (!unseen.contains(c.name)) continue;
    for (const CheckResult& r : reports().at(c.name).results)
      EXPECT_TRUE(r.passed || r.name == c.check) << c.name << " also fails " << r.name << " " << r.tensor << " " << r.detail;
  }
}

TEST(Cheats, the_right_trainer_on_the_same_device_passes) {
  FakeDevice device;
  const GateReport report = check_model(gate_test::cheating<gate_test::Cheat>(device), small(device));
  EXPECT_TRUE(report.passed()) << to_table(report, false);
  std::set<std::string> names;
  for (const CheckResult& r : report.results) names.insert(r.name);
  for (const CheatCase& c : gate_test::cheats()) EXPECT_TRUE(names.contains(c.check)) << c.check << " was not checked";
}

TEST(Cheats, a_trainer_that_reports_a_third_of_its_time_disagrees_with_the_clock) {
  FakeDevice device;
  const GateReport report = check_model(gate_test::cheating<gate_test::TimerEdited>(device), small(device));
  int64_t failed = 0;
  for (const CheckResult& r : report.results) failed += r.name == "clock" && !r.passed;
  EXPECT_EQ(failed, 1) << to_table(report, false);
}

// Whoever samples reads them again for the next token.
struct ContextOverwrite : gate_test::Cheat {
  using Cheat::Cheat;
  std::vector<float> next_token_logits(std::span<const int32_t> context) override {
    std::vector<float> logits = Cheat::next_token_logits(context);
    if (static_cast<int64_t>(context.size()) == options().seq_len) *const_cast<int32_t*>(&context.back()) ^= 1;
    return logits;
  }
};

TEST(Cheats, a_trainer_that_changes_the_tokens_that_it_samples_behind_is_caught) {
  FakeDevice device;
  EXPECT_EQ(failing_checks(check_model(gate_test::cheating<ContextOverwrite>(device), small(device))), std::set<std::string>{"inputs"});
}

// As only a look behind this very call can tell.
struct LaunchErrorOfSampling : gate_test::Cheat {
  using Cheat::Cheat;
  std::vector<float> next_token_logits(std::span<const int32_t> context) override {
    std::vector<float> logits = Cheat::next_token_logits(context);
    device_.launch_error = "invalid argument";
    return logits;
  }
};

TEST(Cheats, a_launch_error_of_sampling_is_named_by_the_call) {
  FakeDevice device;
  const GateReport report = check_model(gate_test::cheating<LaunchErrorOfSampling>(device), small(device));
  EXPECT_TRUE(std::ranges::any_of(report.results, [](const CheckResult& r) {
    return r.name == "launch error" && r.detail == "invalid argument, found after next_token_logits";
  })) << to_table(report, false);
}

TEST(Cheats, steps_that_do_not_repeat_bit_for_bit_are_still_told_from_steps_left_out) {
  FakeDevice device;
  ModelGateOptions o = small(device);
  o.deterministic = false;
  const auto fails_timed_steps = [&](const TrainerFactory& factory) {
    int64_t n = 0;
    for (const CheckResult& r : check_model(factory, o).results) n += r.name == "timed steps" && !r.passed;
    return n > 0;
  };
  EXPECT_FALSE(fails_timed_steps(gate_test::cheating<gate_test::Cheat>(device)));
  EXPECT_TRUE(fails_timed_steps(gate_test::cheating<gate_test::ShorterRun>(device)));
}

// Weights rounded with the same random bits in every step, and with others: played by a trainer that rounds
// not at all.
struct Rounding : gate_test::Cheat {
  Rounding(gpt2::TrainerOptions o, FakeDevice& device, bool constant)
      : Cheat((o.weight_rounding = "nearest", o), device), constant_(constant) {}
  void enqueue_step(const gpt2::StepPlan& plan) override {
    step_ = plan.step;
    Cheat::enqueue_step(plan);
  }
  double evaluate(const gpt2::Batch& b, std::span<float> logits) override {
    const double loss = Cheat::evaluate(b, logits);
    if (!constant_ && !logits.empty()) logits[0] += static_cast<float>(step_);
    return loss;
  }
  bool constant_;
  int64_t step_ = 0;
};

TEST(Cheats, stochastic_rounding_with_a_constant_seed_is_caught) {
  FakeDevice device;
  ModelGateOptions o = small(device);
  o.weight_rounding = "stochastic";
  for (const bool constant : {true, false}) {
    const TrainerFactory factory = [&](const gpt2::TrainerOptions& t) { return std::make_unique<Rounding>(t, device, constant); };
    int64_t asked = 0, failed = 0;
    for (const CheckResult& r : check_model(factory, o).results)
      if (r.name == "rounding") {
        ++asked;
        failed += !r.passed;
      }
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(failed, constant ? 1 : 0);
  }
}

}  // namespace
}  // namespace gate
