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
  o.sustained_s = 0.9 * joules / 700;
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
           {{"gelu_backward", "kernel"}},
           "GPU-1"};
  d.method = {0.6, 1.03, 0.5, 33, 0.0012, false, false, true};
  d.step.joules = 6.2, d.step.seconds = 0.009, d.step.power_w = 6.2 / 0.009, d.step.power_limit_w = 700, d.step.clock_limited = true;
  d.step.graph_joules = 6.1, d.step.graph_seconds = 0.0091;
  d.step.sm_clock_mhz = 1800, d.step.max_sm_clock_mhz = 1980, d.step.clock_exponent = 0.55;
  d.step.full_clock_joules = 6.6, d.step.full_clock_mhz = 1975;
  d.step.limited_joules = 6.6 * std::pow(1810.0 / 1975, 0.55), d.step.limited_mhz = 1810;
  d.probes = {{"spin", {120, 0, 0, 1980}}, {"copy", {420, 4e12, 0, 1980}}, {"product", {680, 0, 8e14, 1500}}};
  d.coefficients = energy::Coefficients{120, 75e-12, 0.7e-12, 4e12, 8e14};
  d.ops = {op("forward", "qkv", 0.30, 0.25), op("backward", "attention", 0.60, 0.2), op("optimizer", "adamw", 0.5, 0.46)};
  d.ops.push_back({"other", "copy", -1, 2, 2, 900, {0.001, 0.0005, 1e-6, 0.001, {}, 1}, true, 0, 0, false, {}, {}, {}, {}, {}, {}});
  d.closure = {6.2, 1.261, 0.0035};
  d.closure_at_step_clock = {6.2, 1.401, 0.0035};
  return d;
}

// As measured: the floors are those of the work, not round numbers.
Document measured() {
  Document d = document();
  for (energy::OpEnergy& o : d.ops)
    if (o.floor) o.floor = energy::floor_of(o.flops, o.min_bytes, *d.coefficients);
  return d;
}

std::string refused(const nlohmann::ordered_json& json) {
  try {
    energy::from_json(json, "x.json");
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(EnergyDocument, ReadsWhatItWrote) {
  const auto json = energy::to_json(measured());
  EXPECT_EQ(json.at("schema"), "stepscope.energy/1");
  const Document again = energy::from_json(json, "energy.json");
  EXPECT_EQ(energy::to_json(again).dump(), json.dump());
  EXPECT_EQ(again.run.variants.at("gelu_backward"), "kernel");
  EXPECT_EQ(again.ops.at(1).bound, energy::Bound::power);
  EXPECT_DOUBLE_EQ(again.ops.at(1).floor->joules, 2e9 * 75e-12 + 1e12 * 0.7e-12 + 120 * 1e12 / 8e14);
  EXPECT_FALSE(again.ops.at(3).floor);
  EXPECT_FALSE(again.step.twice_over_two);
  EXPECT_FALSE(again.method.full_clock);
}

// A field that is neither written nor read any more makes no difference to the test above.
TEST(EnergyDocument, EveryFieldAsAFile) {
  Document d = measured();
  d.step.twice_over_two = 1.004, d.step.loss_before = 4.5, d.step.loss_after = 4.5;
  d.ops[0].alone_joules = 0.31, d.ops[0].alone_seconds = 5e-4, d.ops[0].alone_sm_clock_mhz = 1700;
  expect_golden("energy/data/document.json", energy::to_json(d).dump(1) + "\n");
  EXPECT_EQ(refused(energy::to_json(d)), "");
}

TEST(EnergyDocument, AnotherFileIsRefusedWithItsName) {
  auto json = energy::to_json(document());
  json["schema"] = "stepscope.profile/3";
  EXPECT_THAT(refused(json),
              HasSubstr("x.json: schema 'stepscope.profile/3', expected 'stepscope.energy/1'; a profile document goes behind --profile"));
  json = energy::to_json(document());
  json["step"].erase("joules");
  EXPECT_THAT(refused(json), HasSubstr("x.json: step.joules: is missing"));
  json = energy::to_json(document());
  json["step"]["joules"] = "six";
  EXPECT_THAT(refused(json), HasSubstr("x.json: step.joules: expected a number"));
  json = energy::to_json(document());
  json["ops"][0]["bound"] = "wind";
  EXPECT_THAT(refused(json), HasSubstr("x.json: ops[0].bound: unknown bound 'wind'"));
  EXPECT_THAT(refused(nlohmann::ordered_json::array()), HasSubstr("x.json: expected an object"));
}

// A document with a negative error was taken, went into the user's profile, and made that a file that no command reads.
TEST(EnergyDocument, NumbersThatNoMeasurementHasAreRefused) {
  const auto with = [](const char* place, const nlohmann::ordered_json& value) {
    auto json = energy::to_json(measured());
    json[nlohmann::ordered_json::json_pointer(place)] = value;
    return refused(json);
  };
  EXPECT_EQ(with("/ops/1/added/joules_error", -1), "x.json: ops[1].added.joules_error: found -1, expected 0 or more");
  EXPECT_EQ(with("/step/joules", -1), "x.json: step.joules: found -1, expected more than 0");
  EXPECT_EQ(with("/step/joules", 0), "x.json: step.joules: found 0, expected more than 0");
  EXPECT_EQ(with("/step/joules", 1e300),
            "x.json: step.power_w: found 688.8888888888889, expected 1.1111111111111112e+302: step.joules / step.seconds");
  EXPECT_EQ(with("/step/seconds", -0.1), "x.json: step.seconds: found -0.1, expected more than 0");
  EXPECT_EQ(with("/step/power_limit_w", 0), "x.json: step.power_limit_w: found 0, expected more than 0");
  EXPECT_EQ(with("/step/graph_joules", -1), "x.json: step.graph_joules: found -1, expected more than 0");
  EXPECT_EQ(with("/step/sm_clock_mhz", 0), "x.json: step.sm_clock_mhz: found 0, expected more than 0");
  EXPECT_THAT(with("/step/clock_exponent", 99), HasSubstr("x.json: step.clock_exponent: found 99, by which 6.6 J at 1975 MHz are "));
  EXPECT_THAT(with("/step/clock_exponent", 0.56), HasSubstr("step.clock_exponent: found 0.56, expected 0.5"));
  EXPECT_THAT(with("/step/clock_exponent", -9), HasSubstr(" J at 1800 MHz, expected the step's 6.1 J within a factor of 2"));
  EXPECT_EQ(with("/method/window_noise", -1), "x.json: method.window_noise: found -1, expected 0 or more");
  EXPECT_EQ(with("/run/batch_size", 0), "x.json: run.batch_size: found 0, expected more than 0");
  EXPECT_EQ(with("/probes/0/power_w", -120), "x.json: probes[0].power_w: found -120, expected 0 or more");
  EXPECT_EQ(with("/coefficients/joules_per_flop", -1), "x.json: coefficients.joules_per_flop: found -1, expected 0 or more");
  EXPECT_EQ(with("/coefficients/joules_per_flop", 1),
            "x.json: coefficients.joules_per_flop: found 1, expected 7e-13: what the probes give");
  EXPECT_EQ(with("/ops/0/floor/joules", 99),
            "x.json: ops[0].floor.joules: found 99, expected 1: what flops, min_bytes and the coefficients give");
  EXPECT_EQ(with("/ops/0/copies", 0), "x.json: ops[0].copies: found 0, expected more than 0");
  EXPECT_EQ(with("/ops/0/alone_joules", 0), "x.json: ops[0].alone_joules: found 0, expected more than 0");
  EXPECT_EQ(with("/step/twice_over_two", 0), "x.json: step.twice_over_two: found 0, expected more than 0");
  EXPECT_EQ(with("/method/window_s", 0), "x.json: method.window_s: found 0, expected more than 0");
  EXPECT_EQ(with("/probes/0/sm_clock_mhz", 0), "x.json: probes[0].sm_clock_mhz: found 0, expected more than 0");
  EXPECT_THAT(with("/ops/0/added/seconds", 1e300), HasSubstr("x.json: ops[0].added.seconds: found 1e+300, expected at most step.seconds"));
  EXPECT_THAT(with("/step/max_sm_clock_mhz", 100), HasSubstr("x.json: step.max_sm_clock_mhz: found 100, expected 1800 or more"));
  EXPECT_EQ(with("/ops/0/launch", -2), "x.json: ops[0].launch: found -2, expected -1 or more");
  EXPECT_THAT(with("/ops/0/sustained_s", 9), HasSubstr("x.json: ops[0].sustained_s: found 9, expected 0.00038571"));
  EXPECT_THAT(with("/ops/0/added/seconds", -1), HasSubstr("x.json: ops[0].added.seconds: found -1, expected "));
  EXPECT_EQ(with("/ops/1/op", "qkv"), "");
  EXPECT_EQ(with("/ops/1", energy::to_json(measured())["ops"][0]),
            "x.json: ops[1]: the same op as ops[0], forward/qkv, expected each once");
}

// 64.9 became 64, 4294967295 became -1, the whole op, and 1e30 was "found -9223372036854775808".
TEST(EnergyDocument, ValuesOfAnotherTypeAndFieldsThatNobodyKnowsAreRefused) {
  const auto with = [](const char* place, const nlohmann::ordered_json& value) {
    auto json = energy::to_json(measured());
    json[nlohmann::ordered_json::json_pointer(place)] = value;
    return refused(json);
  };
  EXPECT_EQ(with("/run/batch_size", 64.9), "x.json: run.batch_size: expected an integer below 2^63");
  EXPECT_EQ(with("/run/batch_size", 1e30), "x.json: run.batch_size: expected an integer below 2^63");
  EXPECT_EQ(with("/run/batch_size", true), "x.json: run.batch_size: expected an integer below 2^63");
  EXPECT_EQ(with("/ops/0/launches", 2.7), "x.json: ops[0].launches: expected an integer below 2^63");
  EXPECT_EQ(with("/ops/3/launch", 4294967295), "x.json: ops[3].launch: expected an integer below 2^31");
  EXPECT_EQ(with("/ops/1/added/windows", 1.5), "x.json: ops[1].added.windows: expected an integer below 2^63");
  EXPECT_EQ(with("/ops/1/resolved", 1), "x.json: ops[1].resolved: expected true or false");
  EXPECT_EQ(with("/step/joules", true), "x.json: step.joules: expected a number");
  EXPECT_EQ(with("/run/variants/gelu_backward", 3), "x.json: run.variants.gelu_backward: expected a string");
  EXPECT_EQ(with("/ops", 3), "x.json: ops: expected a list");
  EXPECT_EQ(with("/ops/2", 3), "x.json: ops[2]: expected an object");
  EXPECT_EQ(with("/more", 3), "x.json: unknown field 'more'");
  EXPECT_EQ(with("/ops/2/added/more", 3), "x.json: ops[2].added: unknown field 'more'");
  Document d = measured();
  d.ops[0].slope.joules_error = 1e300;
  d.closure.placed_error = d.closure_at_step_clock.placed_error = 1e300;
  EXPECT_EQ(refused(energy::to_json(d)),
            "x.json: ops[0].added.joules_error: found 1e+300, expected at most 0.8857142857142858: "
            "step.joules / copies");
}

TEST(EnergyDocument, SumsThatAreNotThoseOfTheRowsAreRefused) {
  auto json = energy::to_json(measured());
  json["ops"].erase(0);
  EXPECT_EQ(refused(json), "x.json: closure.placed_joules: found 1.261, expected 0.991: the sum of ops[].added.joules");
  json["ops"] = nlohmann::ordered_json::array();
  EXPECT_EQ(refused(json), "x.json: ops: found none, expected the ops that the sums are of");
  json = energy::to_json(measured());
  json["ops"][0]["added"]["joules_at_step_clock"] = 0.4;
  EXPECT_THAT(refused(json), HasSubstr("x.json: closure_at_step_clock.placed_joules: found 1.401, expected 1.501"));
  json = energy::to_json(measured());
  json["closure"]["placed_error"] = 0;
  EXPECT_THAT(refused(json), HasSubstr("x.json: closure.placed_error: found 0, expected 0.0035"));
  json = energy::to_json(measured());
  json["closure"]["step_joules"] = 1.3;
  EXPECT_THAT(refused(json), HasSubstr("x.json: closure.step_joules: found 1.3, expected 6.2: step.joules"));
}

// A window is known to so many joules, and an op that takes next to nothing may come out below nothing. Not by five joules.
TEST(EnergyDocument, AnOpIsBelowNothingByItsNoiseOnly) {
  const auto with = [](double joules, double at_step_clock) {
    Document d = measured();
    energy::Slope& s = d.ops[3].slope;  // error 0.5 mJ, 900 copies
    s.joules = joules, s.joules_at_step_clock = at_step_clock;
    std::vector<energy::Slope> slopes;
    for (const auto& o : d.ops) slopes.push_back(o.slope);
    d.closure = energy::close_over(slopes, d.step.joules, false);
    d.closure_at_step_clock = energy::close_over(slopes, d.step.joules, true);
    return refused(energy::to_json(d));
  };
  EXPECT_EQ(with(-0.001, -0.001), "");
  EXPECT_EQ(with(0.001, -0.0026), "");  // the exponent is not known to the last digit: 5% of the clock are 0.2 mJ here
  EXPECT_EQ(with(-0.003, 0.001), "x.json: ops[3].added.joules: found -0.003, expected -0.0025 or more: its noise below 0");
  EXPECT_THAT(with(0.001, -0.003), HasSubstr("x.json: ops[3].added.joules_at_step_clock: found -0.003, expected -0.00268"));
  EXPECT_EQ(with(-0.002, -0.002), "");
  EXPECT_THAT(with(0.001, -5), HasSubstr("x.json: ops[3].added.joules_at_step_clock: found -5, expected -0.0026"));
}

TEST(MostAboveFloor, IsByJoulesAboveTheFloorAndNotByJoules) {
  const Document d = document();
  const auto most = energy::most_above_floor(d, 2);
  ASSERT_EQ(most.size(), 2u);
  EXPECT_EQ(most[0]->op, "attention");                   // 0.40 J above
  EXPECT_EQ(most[1]->op, "qkv");                         // 0.05 J above; adamw has more joules and 0.04 J above
  EXPECT_EQ(energy::most_above_floor(d, 9).size(), 3u);  // without a floor nothing is above it
  Document below = d;
  for (energy::OpEnergy& op : below.ops)
    if (op.floor && op.op == "attention") op.floor->joules = op.joules() + 0.1;
  EXPECT_EQ(energy::most_above_floor(below, 9).size(), 2u) << "an op below its floor is not above it";
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
  EXPECT_THAT(text, HasSubstr("all ops, at the step's clock             1401.00    3.50    22.6\n"));
  EXPECT_THAT(text, HasSubstr("not placed                               4799.00            77.4\n"));
  EXPECT_THAT(text, HasSubstr("all ops, as a copy adds                  1261.00"));
  EXPECT_THAT(text, HasSubstr("copy: 420 W, 4.00 TB/s at 1980 MHz"));
  EXPECT_THAT(text, HasSubstr("75.0 pJ/byte, 0.700 pJ/FLOP, 120 W static"));
  EXPECT_THAT(text, HasSubstr("backward/attention             400.00 mJ above 200.00 mJ: 571 us of a sustained step"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("alone, back to back")));
  d.ops[0].alone_joules = 0.33;
  EXPECT_THAT(energy::table(d), HasSubstr("330.00 mJ at - MHz, 300.00 mJ at 1800 MHz: +10.0%"));
  // Below nothing by its noise: no share of that says anything.
  d.ops[0].slope.joules_at_step_clock = -0.001;
  EXPECT_THAT(energy::table(d), HasSubstr("330.00 mJ at - MHz, -1.00 mJ at 1800 MHz: -\n"));
  // With pauses no clock gives way, and joules over seconds are the op's own power.
  d.method.full_clock = true;
  text = energy::table(d);
  EXPECT_THAT(text, HasSubstr("     9.7    1000.0     540    200.00"));
  EXPECT_THAT(text, HasSubstr("all ops, at the highest clock"));
  // Some ops do not add up to the step.
  d.method.all_ops = false;
  EXPECT_THAT(energy::table(d), ::testing::Not(HasSubstr("not placed")));
}

// "Power does not limit the clock" was said of a GPU that tells no limit.
TEST(EnergyTable, SaysOfPowerWhatIsKnown) {
  Document d = document();
  d.step.clock_limited = false;
  d.step.power_limit_w = 900;
  EXPECT_THAT(energy::table(d), HasSubstr("SM clock 1800 MHz of 1980. Power does not limit the clock.\n"));
  d.step.power_limit_w.reset();
  EXPECT_THAT(energy::table(d), HasSubstr("689 W, SM clock 1800 MHz of 1980. Whether power limits the clock is not known.\n"));
}

}  // namespace
