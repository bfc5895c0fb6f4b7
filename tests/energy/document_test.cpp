#include "experiments/energy/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "tests/golden.h"

namespace {

using energy::Document;
using ::testing::HasSubstr;

energy::OpEnergy op(const char* pass, const char* what, double joules, double floor) {
  energy::OpEnergy o;
  o.pass = pass, o.op = what;
  o.instances = 12, o.launches = 24, o.copies = 7;
  o.slope = {0.9 * joules, 0.002, 1e-3, joules, 1790, 1};
  o.resolved = true;
  o.has_work = true;
  o.flops = 1e12, o.min_bytes = 2e9;
  o.floor = energy::Floor{0.4e-3, 0.5e-3, floor};
  o.bound = energy::Bound::power;
  o.sustained_s = joules / 700;
  return o;
}

Document document() {
  Document d;
  d.run = {"mixed",
           "NVIDIA H200",
           "d12",
           "bf16",
           "none",
           "nearest",
           "580.1",
           "abc",
           "stepscope energy",
           "2026-11-22T09:00:00Z",
           4,
           1024,
           1,
           {{"gelu_backward", "kernel"}}};
  d.method = {0.6, 1.03, 0.5, 33, 0.0012, false, false, true};
  d.step.joules = 6.2, d.step.seconds = 0.009, d.step.power_w = 689, d.step.power_limit_w = 700, d.step.clock_limited = true;
  d.step.sm_clock_mhz = 1800, d.step.max_sm_clock_mhz = 1980, d.step.clock_exponent = 0.55;
  d.probes = {{"spin", {120, 0, 0, 1980}}, {"copy", {420, 4e12, 0, 1980}}};
  d.coefficients = energy::Coefficients{120, 75e-12, 0.7e-12, 4e12, 8e14};
  d.ops = {op("forward", "qkv", 0.30, 0.25), op("backward", "attention", 0.60, 0.2), op("optimizer", "adamw", 0.5, 0.46)};
  d.ops.push_back({"other", "copy", -1, 2, 2, 900, {0.001, 0.0005, 1e-6, 0.001, {}, 1}, true, 0, 0, false, {}, {}, {}, {}, {}, {}});
  d.closure = {6.2, 1.401, 0.003};
  d.closure_at_step_clock = {6.2, 1.43, 0.003};
  return d;
}

TEST(EnergyDocument, ReadsWhatItWrote) {
  const auto json = energy::to_json(document());
  EXPECT_EQ(json.at("schema"), "stepscope.energy/1");
  const Document again = energy::from_json(json, "energy.json");
  EXPECT_EQ(energy::to_json(again).dump(), json.dump());
  EXPECT_EQ(again.run.variants.at("gelu_backward"), "kernel");
  EXPECT_EQ(again.ops.at(1).bound, energy::Bound::power);
  EXPECT_DOUBLE_EQ(again.ops.at(1).floor->joules, 0.2);
  EXPECT_FALSE(again.ops.at(3).floor);
  EXPECT_FALSE(again.step.twice_over_two);
  EXPECT_FALSE(again.method.full_clock);
}

// A field that is neither written nor read any more makes no difference to the test above.
TEST(EnergyDocument, EveryFieldAsAFile) {
  Document d = document();
  d.step.graph_joules = 6.1, d.step.graph_seconds = 0.0091, d.step.twice_over_two = 1.004;
  d.step.full_clock_joules = 6.9, d.step.full_clock_mhz = 1975, d.step.loss_before = 4.5, d.step.loss_after = 4.5;
  d.ops[0].alone_joules = 0.31, d.ops[0].alone_seconds = 5e-4, d.ops[0].alone_sm_clock_mhz = 1700;
  expect_golden("energy/data/document.json", energy::to_json(d).dump(1) + "\n");
}

TEST(EnergyDocument, AnotherFileIsRefusedWithItsName) {
  const auto refused = [](nlohmann::ordered_json json) -> std::string {
    try {
      energy::from_json(json, "x.json");
    } catch (const stepscope::InputError& e) {
      return e.what();
    }
    return "";
  };
  auto json = energy::to_json(document());
  json["schema"] = "stepscope.profile/3";
  EXPECT_THAT(refused(json), HasSubstr("x.json: schema 'stepscope.profile/3', expected 'stepscope.energy/1'"));
  json = energy::to_json(document());
  json["step"].erase("joules");
  EXPECT_THAT(refused(json), HasSubstr("x.json: the field 'joules' is missing"));
  json = energy::to_json(document());
  json["step"]["joules"] = "six";
  EXPECT_THAT(refused(json), HasSubstr("'joules' is \"six\""));
  json = energy::to_json(document());
  json["ops"][0]["bound"] = "wind";
  EXPECT_THAT(refused(json), HasSubstr("unknown bound 'wind'"));
  EXPECT_THAT(refused(nlohmann::ordered_json::array()), HasSubstr("'schema' is missing"));
}

TEST(MostAboveFloor, IsByJoulesAboveTheFloorAndNotByJoules) {
  const Document d = document();
  const auto most = energy::most_above_floor(d, 2);
  ASSERT_EQ(most.size(), 2u);
  EXPECT_EQ(most[0]->op, "attention");                   // 0.40 J above
  EXPECT_EQ(most[1]->op, "qkv");                         // 0.05 J above; adamw has more joules and 0.04 J above
  EXPECT_EQ(energy::most_above_floor(d, 9).size(), 3u);  // without a floor nothing is above it
}

TEST(SharesOf, AddUpToTheStepAndAreAbsentWhereTheyCannotBeTold) {
  Document d = document();
  const auto s = energy::shares_of(d);
  ASSERT_TRUE(s);
  EXPECT_NEAR(s->awake_joules, 120 * 0.009, 1e-12);
  EXPECT_NEAR(s->dram_joules, 3 * 2e9 * 75e-12, 1e-12);
  EXPECT_NEAR(s->math_joules, 3 * 1e12 * 0.7e-12, 1e-12);
  EXPECT_NEAR(s->awake_joules + s->dram_joules + s->math_joules + s->rest_joules, 6.2, 1e-12);
  EXPECT_THAT(energy::table(d), HasSubstr("of the step, at the probes' prices: awake 1080 mJ (17%), DRAM at the fewest bytes 450 mJ (7%), "
                                          "arithmetic 2100 mJ (34%), the rest 2570 mJ (41%)\n"));
  d.method.all_ops = false;
  EXPECT_FALSE(energy::shares_of(d));
  d = document();
  d.method.by_launch = true;  // the work model knows ops, not their launches
  EXPECT_FALSE(energy::shares_of(d));
  d = document();
  d.coefficients.reset();
  EXPECT_FALSE(energy::shares_of(d));
  EXPECT_THAT(energy::table(d), ::testing::Not(HasSubstr("at the probes' prices")));
}

TEST(EnergyTable, NamesTheStepTheOpsTheSumAndWhatIsMost) {
  Document d = document();
  d.ops[2].resolved = false;
  std::string text = energy::table(d);
  EXPECT_THAT(text, HasSubstr("step 6.2 J in 9.000 ms: 689 W of 700 W allowed, SM clock 1800 MHz of 1980. Power limits the clock.\n"));
  // attention at the step's clock: 600 mJ, 9.7% of the step, adds 1000 us, floor 200, above 400
  EXPECT_THAT(
      text, HasSubstr("backward/attention                 24     600.00    2.00     9.7    1000.0       -    200.00    400.00    power\n"));
  EXPECT_LT(text.find("backward/attention"), text.find("forward/qkv"));  // the most joules first
  EXPECT_THAT(text, HasSubstr("   2.00?"));
  EXPECT_THAT(text, HasSubstr("? joules not known to 1% of themselves"));
  EXPECT_THAT(text, HasSubstr("all ops, at the step's clock             1430.00    3.00    23.1\n"));
  EXPECT_THAT(text, HasSubstr("not placed                               4770.00            76.9\n"));
  EXPECT_THAT(text, HasSubstr("all ops, as a copy adds                  1401.00"));
  EXPECT_THAT(text, HasSubstr("copy: 420 W, 4.00 TB/s at 1980 MHz"));
  EXPECT_THAT(text, HasSubstr("75.0 pJ/byte, 0.700 pJ/FLOP, 120 W static"));
  EXPECT_THAT(text, HasSubstr("backward/attention             400.00 mJ above 200.00 mJ: 571 us of a sustained step"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("alone, back to back")));
  d.ops[0].alone_joules = 0.33;
  EXPECT_THAT(energy::table(d), HasSubstr("330.00 mJ at - MHz, 300.00 mJ at 1800 MHz: +10.0%"));
  // With pauses no clock gives way, and joules over seconds are the op's own power.
  d.method.full_clock = true;
  text = energy::table(d);
  EXPECT_THAT(text, HasSubstr("     9.7    1000.0     540    200.00"));
  EXPECT_THAT(text, HasSubstr("all ops, at the highest clock"));
  // Some ops do not add up to the step.
  d.method.all_ops = false;
  EXPECT_THAT(energy::table(d), ::testing::Not(HasSubstr("not placed")));
}

}  // namespace
