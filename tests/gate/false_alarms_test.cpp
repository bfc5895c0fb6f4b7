#include "experiments/gate/false_alarms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/gate/model_gate.h"
#include "gpt2/reference/reference_trainer.h"
#include "tests/gate/broken_trainer.h"
#include "tests/gate/rounded_trainer.h"
#include "tests/gate/shared_answers.h"

namespace gate {
namespace {

GateReport report_of(uint64_t seed, double error) {
  GateReport r;
  r.seed = seed;
  r.device = "CPU";
  r.add(make_result("adam m t=1 clip 0.2", "wte", {{"norm", error, 2, -1}}));
  r.add(make_result("adam m t=2 clip 0.2", "qkvw", {{"norm", error / 2, 2, -1}}));
  return r;
}

TEST(FalseAlarms, TheWorstShareOfABudgetAndItsSeedAreNamed) {
  const std::vector<GateReport> reports{report_of(1, 0.5), report_of(2, 1.8), report_of(3, 0.7), report_of(4, 0.6), report_of(5, 2.2)};
  const SeedsReport s = over_seeds("fp32", reports);
  ASSERT_EQ(s.checks.size(), 1u);  // both steps are one check
  EXPECT_EQ(s.checks[0].name, "adam m");
  EXPECT_DOUBLE_EQ(s.checks[0].worst, 1.1);
  EXPECT_EQ(s.checks[0].worst_seed, 5u);
  EXPECT_EQ(s.checks[0].worst_tensor, "wte");
  EXPECT_EQ(s.checks[0].refusals, 1);
  EXPECT_EQ(s.refused, 1);
  EXPECT_GT(s.checks[0].false_alarm_rate, 0.05);
}

TEST(FalseAlarms, TheRateFallsWithTheMargin) {
  std::vector<GateReport> near, far;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const double wobble = 0.05 * std::sin(static_cast<double>(seed));
    near.push_back(report_of(seed, 2 * (0.8 + wobble)));
    far.push_back(report_of(seed, 2 * (0.3 + wobble)));
  }
  const double a = over_seeds("x", near).false_alarm_rate(), b = over_seeds("x", far).false_alarm_rate();
  EXPECT_GT(a, 1e-4);
  EXPECT_LT(a, 0.05);
  EXPECT_LT(b, 1e-6);
}

TEST(FalseAlarms, NotANumberIsARefusalOfWhateverBudget) {
  std::vector<GateReport> reports{report_of(1, NAN)};
  const SeedsReport s = over_seeds("x", reports);
  EXPECT_EQ(s.refused, 1);
  EXPECT_TRUE(std::isinf(s.checks[0].worst));
  EXPECT_TRUE(to_json(s)["checks"][0]["worst_share_of_budget"].is_null());
}

// A machine that refuses every variant that was asked for looked as if all had passed.
TEST(FalseAlarms, WhereNothingCouldBeCheckedNothingPassed) {
  const SeedsReport good = over_seeds("x", std::vector<GateReport>{report_of(1, 0.5)});
  const SeedsReport bad = over_seeds("y", std::vector<GateReport>{report_of(1, 0.5), report_of(2, 2.2)});
  EXPECT_EQ(exit_code_of({}), 2);
  EXPECT_EQ(exit_code_of(std::vector{good}), 0);
  EXPECT_EQ(exit_code_of(std::vector{bad, good}), 1);
}

std::vector<uint64_t> first_seeds(uint64_t n) {
  std::vector<uint64_t> seeds;
  for (uint64_t s = 1; s <= n; ++s) seeds.push_back(s);
  return seeds;
}

TEST(FalseAlarms, TheReferenceIsRefusedForNoSeed) {
  ModelGateOptions o;
  o.trainer = "reference";
  o.small_answers = &gate_test::shared_answers();
  const auto make = [](const gpt2::TrainerOptions& t) { return gpt2::make_reference_trainer(t); };
  const SeedsReport s = over_seeds("reference", check_seeds(make, o, first_seeds(2)));
  EXPECT_EQ(s.seeds, 2);
  EXPECT_EQ(s.refused, 0) << to_table(s);
  EXPECT_GT(s.checks.size(), 30u);
}

TEST(FalseAlarms, ATrainerThatRoundsAsTheMixedOneIsRefusedForNoSeed) {
  ModelGateOptions o;
  o.trainer = "mixed";
  o.matmul = "bf16";
  for (const std::string rounding : {"nearest", "stochastic"}) {
    o.weight_rounding = rounding;
    const std::vector<uint64_t> seed{11};  // it refused a right trainer before; Wiring asks with another
    const SeedsReport s = over_seeds(rounding, check_seeds(gate_test::rounded(), o, seed));
    EXPECT_EQ(s.refused, 0) << to_table(s);
  }
}

TEST(FalseAlarms, AWrongTrainerIsRefusedForEverySeed) {
  ModelGateOptions o;
  o.trainer = "reference";
  o.small_answers = &gate_test::shared_answers();
  const auto seeds = first_seeds(2);
  const SeedsReport s =
      over_seeds("wrong", check_seeds(gate_test::broken({.plan = [](gpt2::StepPlan& p) { p.adamw.weight_decay = 0; }}), o, seeds));
  EXPECT_EQ(s.refused, 2);
}

}  // namespace
}  // namespace gate
