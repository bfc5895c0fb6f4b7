#include "experiments/energy/into_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "profiler/document/json.h"
#include "profiler/report/table.h"

namespace {

using testing::HasSubstr;
using testing::Not;

profiler::ProfileDocument profile() {
  profiler::ProfileDocument p;
  p.run.trainer = "mixed", p.run.device = "NVIDIA H200", p.run.model = "d12", p.run.matmul = "bf16";
  p.run.batch_size = 4, p.run.seq_len = 1024, p.run.accumulation = 1;
  p.totals.time_ns = 9e6, p.totals.headroom_ns = 4e6;
  for (const char* op : {"qkv", "gelu"}) {
    profiler::OpRow row;
    row.pass = "forward", row.op = op, row.time_ns = 1e6, row.share_pct = 100 * 1e6 / 9e6;
    p.ops.push_back(row);
  }
  return p;
}

energy::Document measured_document() {
  energy::Document d;
  d.run.trainer = "mixed", d.run.device = "NVIDIA H200", d.run.model = "d12", d.run.matmul = "bf16";
  d.run.recompute = "none", d.run.weight_rounding = "nearest";
  d.run.batch_size = 4, d.run.seq_len = 1024, d.run.accumulation = 1;
  energy::OpEnergy op;
  op.pass = "forward", op.op = "qkv";
  op.slope = {0.29, 0.002, 4e-4, 0.3125, 1790, 1};
  op.floor = energy::Floor{1e-4, 2e-4, 0.25};
  op.bound = energy::Bound::power;
  op.sustained_s = 0.41e-3;
  d.ops.push_back(op);
  return d;
}

TEST(IntoProfile, RowsOfTheSameOpGetTheirJoules) {
  auto p = profile();
  EXPECT_THAT(profiler::table_text(p, {profiler::TableBy::op, 50, 400, false}), Not(HasSubstr("mJ")));
  energy::add_to_profile(measured_document(), p);
  EXPECT_DOUBLE_EQ(p.ops[0].energy_j.value(), 0.3125);  // at the step's clock
  EXPECT_DOUBLE_EQ(p.ops[0].energy_error_j.value(), 0.002);
  EXPECT_DOUBLE_EQ(p.ops[0].sustained_ns.value(), 0.41e6);
  EXPECT_DOUBLE_EQ(p.ops[0].energy_floor_j.value(), 0.25);
  EXPECT_DOUBLE_EQ(p.ops[0].energy_above_floor_j.value(), 0.0625);
  EXPECT_EQ(p.ops[0].energy_bound, "power");
  EXPECT_FALSE(p.ops[1].energy_j);  // not measured: absent, not 0
  const std::string table = profiler::table_text(p, {profiler::TableBy::op, 50, 400, false});
  EXPECT_THAT(table, HasSubstr("mJ"));
  EXPECT_THAT(table, HasSubstr(" 312.5 "));
  EXPECT_THAT(table, HasSubstr(" 62.5 "));
  const auto again = profiler::profile_from_json(profiler::to_json(p), "p.json");
  EXPECT_DOUBLE_EQ(again.ops.at(0).energy_j.value(), 0.3125);
  EXPECT_EQ(again.ops.at(0).energy_bound, "power");
}

// A document of one op (`--only`) left the others' joules of before, and took away the notice that they are of other code.
TEST(IntoProfile, JoulesOfBeforeDoNotStayBesideOthers) {
  auto p = profile();
  auto d = measured_document();
  d.ops.push_back(d.ops[0]);
  d.ops[1].op = "gelu";
  d.run.git_revision = "abc", p.run.git_revision = "def";
  energy::add_to_profile(d, p);
  ASSERT_TRUE(p.ops[1].energy_j && p.ops[1].energy_bound);
  ASSERT_EQ(p.missing.size(), 1u);
  d.ops.pop_back();
  d.ops[0].floor.reset(), d.ops[0].bound.reset(), d.ops[0].sustained_s.reset();
  d.run.git_revision = "def";
  energy::add_to_profile(d, p);
  EXPECT_TRUE(p.missing.empty());
  EXPECT_TRUE(p.ops[0].energy_j);
  EXPECT_FALSE(p.ops[0].sustained_ns || p.ops[0].energy_floor_j || p.ops[0].energy_above_floor_j || p.ops[0].energy_bound);
  const profiler::OpRow& gelu = p.ops[1];
  EXPECT_FALSE(gelu.energy_j || gelu.energy_error_j || gelu.sustained_ns || gelu.energy_floor_j || gelu.energy_above_floor_j ||
               gelu.energy_bound);
}

// What the reader refuses must not replace the user's file, wherever the numbers come from.
TEST(IntoProfile, AProfileThatNobodyCouldReadIsNotMade) {
  auto d = measured_document();
  const auto again = profiler::profile_from_json(energy::profile_with_joules(d, profile(), "p.json"), "p.json");
  EXPECT_DOUBLE_EQ(again.ops.at(0).energy_j.value(), 0.3125);
  d.ops[0].slope.joules_error = -1;
  try {
    energy::profile_with_joules(d, profile(), "p.json");
    FAIL();
  } catch (const stepscope::InputError& e) {
    EXPECT_EQ(std::string(e.what()),
              "p.json with these joules, which is not written: ops[0].energy_error_j: found -1.0, expected 0 or more");
  }
}

TEST(IntoProfile, AnotherRunIsRefusedWithAllThatDiffers) {
  auto p = profile();
  p.run.batch_size = 64;
  p.run.accumulation = 2;
  p.run.variants = {{"gelu_backward", "kernel"}};
  try {
    energy::add_to_profile(measured_document(), p);
    FAIL();
  } catch (const stepscope::InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("batch size 4 here, 64 in the profile"));
    EXPECT_THAT(e.what(), HasSubstr("micro-batches 1 here, 2 in the profile"));
    EXPECT_THAT(e.what(), HasSubstr("variants default variants here, gelu_backward=kernel in the profile"));
    EXPECT_THAT(e.what(), Not(HasSubstr("trainer")));
  }
  EXPECT_FALSE(p.ops[0].energy_j);
  auto by_launch = measured_document();
  by_launch.method.by_launch = true;
  p = profile();
  EXPECT_THROW(energy::add_to_profile(by_launch, p), stepscope::InputError);
}

std::string refused(const energy::Document& document, profiler::ProfileDocument p) {
  try {
    energy::add_to_profile(document, p);
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(IntoProfile, AnotherDriverIsAnotherRun) {
  auto d = measured_document();
  auto p = profile();
  d.run.driver = "580.159.04";
  EXPECT_EQ(refused(d, p), "") << "the profile does not say";
  p.environment.versions["driver"] = "570.1";
  EXPECT_EQ(refused(d, p), "energy and profile are of two runs: driver 580.159.04 here, 570.1 in the profile");
  p.environment.versions["driver"] = "580.159.04";
  EXPECT_EQ(refused(d, p), "");
  p.run.device.reset();
  p.environment.gpu = "NVIDIA H100";
  EXPECT_EQ(refused(d, p), "energy and profile are of two runs: device NVIDIA H200 here, NVIDIA H100 in the profile");
}

// One GPU's joules stood beside the time of a rank, which updates a part of the weights.
TEST(IntoProfile, AProfileOfSeveralRanksIsAnotherRun) {
  auto p = profile();
  p.world.size = 2, p.world.ranks = 2, p.world.main_rank = 0;
  p.ranks.resize(2), p.ranks[1].rank = 1;
  EXPECT_EQ(refused(measured_document(), p), "energy and profile are of two runs: ranks 1 here, 2 in the profile");
}

// Joules of one build stood beside the times of another, and nothing said so.
TEST(IntoProfile, JoulesOfOtherCodeAreSaidInTheDocument) {
  const auto words = [](const char* here, const char* there, profiler::ProfileDocument p = profile()) {
    auto d = measured_document();
    d.run.git_revision = here;
    p.run.git_revision = there;
    p = profiler::profile_from_json(energy::profile_with_joules(d, p, "p.json"), "p.json");
    std::string all;
    for (const auto& m : p.missing) all += m.severity + " " + m.name + ": " + m.detail + ";";
    return all;
  };
  EXPECT_EQ(words("abc", "abc"), "");
  EXPECT_EQ(words("", "abc"), "");
  EXPECT_EQ(words("abc", "def-dirty"), "notice energy_of_other_code: joules of abc, times of def-dirty;");
  EXPECT_EQ(words("abc-dirty", "abc-dirty"), "notice energy_of_other_code: both of abc-dirty, whose uncommitted changes may differ;");
  auto before = profile();
  before.missing.push_back({"energy_of_other_code", "notice", "document", 1, "joules of xyz, times of abc", "a"});
  EXPECT_EQ(words("abc", "abc", before), "") << "those joules are replaced";
}

TEST(IntoProfile, JoulesOfAStepOfAnotherLengthAreSaidInTheDocument) {
  auto d = measured_document();
  d.step.seconds = 9e-3;
  const auto words = [&](profiler::Number median_ns) {
    auto p = profile();
    p.timing.step_time_ns.median = median_ns;
    energy::add_to_profile(d, p);
    return p.missing.empty() ? "" : p.missing[0].name + ": " + p.missing[0].detail;
  };
  EXPECT_EQ(words({}), "");
  EXPECT_EQ(words(8.2e6), "") << "cool steps beside warm ones";
  EXPECT_EQ(words(26.9e6), "energy_of_other_times: a step of 9 ms with the joules, of 26.9 ms with the times");
  EXPECT_EQ(words(4e6), "energy_of_other_times: a step of 9 ms with the joules, of 4 ms with the times");
}

TEST(IntoProfile, JoulesOfAnotherGpuOfThatNameAreSaidInTheDocument) {
  auto d = measured_document();
  const auto words = [&](const char* there, profiler::ProfileDocument p = profile()) {
    p.environment.uuid = there;
    energy::add_to_profile(d, p);
    std::string all;
    for (const auto& m : p.missing) all += m.severity + " " + m.name + ": " + m.detail + ";";
    return all;
  };
  EXPECT_EQ(words("GPU-2"), "") << "documents of before say no GPU";
  d.run.uuid = "GPU-1";
  EXPECT_EQ(words("GPU-2"), "notice energy_of_other_gpu: joules of GPU-1, times of GPU-2;");
  auto before = profile();
  before.missing.push_back({"energy_of_other_gpu", "notice", "document", 1, "joules of GPU-3, times of GPU-1", "a"});
  EXPECT_EQ(words("GPU-1", before), "") << "those joules are replaced";
}

}  // namespace
