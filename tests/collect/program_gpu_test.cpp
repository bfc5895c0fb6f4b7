// Other people's programs under the collector on a real device, through the command that a user types. Skipped without a device.
//
// The known bytes: buffers of 1 GiB, many times the L2 cache, so a kernel moves what its arithmetic says but for what the cache holds of the
// kernel before: at most the size of the L2 per buffer, by which reads may fall short and writes may move to the next kernel. That
// size is the tolerance, with 1% for everything else; both are far below one buffer more or less.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "gpt2/cuda/device_info.h"
#include "tests/cli/run_stepscope.h"

namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr double kBuffer_bytes = 4.0 * (1u << 28);

class OtherPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
    folder_ = fresh_folder();
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  json profile(const std::string& flags, const std::string& program) {
    const std::string file = (folder_ / "p.json").string();
    outcome_ = stepscope("profile " + flags + " --out " + file + " -- " + program, "");
    EXPECT_EQ(outcome_.exit_code, 0) << outcome_.out << outcome_.err;
    return json::parse(slurp(file), nullptr, false);
  }
  static std::vector<json> kernels(const json& d, const std::string& name) {
    std::vector<json> some;
    for (const json& k : d.at("kernels"))
      if (k.at("name").get<std::string>().starts_with(name)) some.push_back(k);
    return some;
  }
  static bool counters_forbidden(const json& d) { return missing(d, "counters_unavailable"); }
  static bool missing(const json& d, const std::string& name) {
    for (const json& m : d.at("missing"))
      if (m.at("name") == name) return true;
    return false;
  }
  static std::string detail(const json& d, const std::string& name) {
    for (const json& m : d.at("missing"))
      if (m.at("name") == name) return m.value("detail", "");
    return "";
  }
  // `buffers` read and written by each of the launches of one row.
  static void expect_bytes(const json& d, const json& kernel, double read, double written) {
    ASSERT_TRUE(d.at("environment").contains("l2_bytes")) << d.at("environment");
    const double l2 = d.at("environment").at("l2_bytes").get<double>();
    ASSERT_GT(kBuffer_bytes, 8 * l2) << "the buffers are too small for this device's L2 cache";
    const double launches = kernel.at("launches").get<double>();
    const auto check = [&](const char* field, double buffers) {
      ASSERT_TRUE(kernel.contains(field)) << kernel;
      const double expected = buffers * kBuffer_bytes * launches;
      EXPECT_NEAR(kernel.at(field).get<double>(), expected, launches * (std::max(buffers, 1.0) * l2) + expected * 0.01)
          << kernel.at("name") << " " << field;
    };
    check("dram_read_bytes", read);
    check("dram_write_bytes", written);
  }

  std::filesystem::path folder_;
  Outcome outcome_;
};

// The probe's exception was all that it said, and the lines that it had were lost.
TEST(Doctor, SaysWhatItKnowsWhereItsProbeFails) {
  if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  const Outcome o = stepscope("doctor", "TMPDIR=/no/such");
  EXPECT_EQ(o.exit_code, 3) << o.err;
  EXPECT_THAT(o.out, HasSubstr("ok    GPU "));
  EXPECT_THAT(o.out, HasSubstr("FAIL  collector            the probe (a tiny training step) failed: cannot make a temporary folder: the "
                               "variable TMPDIR names '/no/such'"));
  EXPECT_THAT(o.out, HasSubstr(" disk "));
}

TEST_F(OtherPrograms, WithoutRangesShowTheirKernelsWithKnownLaunchesAndBytes) {
  const json d = profile("", VECTOR_PROGRAM " --rounds 3 --n 268435456");
  ASSERT_TRUE(d.is_object());
  EXPECT_EQ(d.at("collection").at("producer"), "cupti");
  const auto scale = kernels(d, "scale("), add = kernels(d, "add("), fill = kernels(d, "fill(");
  ASSERT_EQ(scale.size(), 1u);
  ASSERT_EQ(add.size(), 1u);
  ASSERT_EQ(fill.size(), 1u);
  EXPECT_EQ(scale[0].at("launches"), 6);
  EXPECT_EQ(add[0].at("launches"), 3);
  EXPECT_EQ(fill[0].at("launches"), 2);
  EXPECT_EQ(d.at("totals").at("launches"), 11);
  EXPECT_EQ(d.at("totals").at("copies"), 7) << "a memset and a device copy per round, one copy to the host";
  EXPECT_THAT(outcome_.out, HasSubstr("11 kernel launches"));
  EXPECT_FALSE(missing(d, "unattributed_kernels"));
  if (counters_forbidden(d)) GTEST_SKIP() << "no counters here: " << detail(d, "counters_unavailable");
  expect_bytes(d, scale[0], 1, 1);
  expect_bytes(d, add[0], 2, 1);
  expect_bytes(d, fill[0], 0, 1);
}

struct Steps {
  int steps;
  bool shortened, timed, counted;
};
class StepPrograms : public OtherPrograms, public ::testing::WithParamInterface<Steps> {};

TEST_P(StepPrograms, ShowTheirKernelsWhateverTheNumberOfTheirSteps) {
  const Steps p = GetParam();
  const json d = profile("--step-range step", STEP_PROGRAM " --n 268435456 --steps " + std::to_string(p.steps));
  ASSERT_TRUE(d.is_object());
  EXPECT_GE(d.at("collection").at("traced_steps").get<int>(), 1);
  const auto scale = kernels(d, "scale("), add = kernels(d, "add(");
  ASSERT_EQ(scale.size(), 1u);
  ASSERT_EQ(add.size(), 1u);
  EXPECT_EQ(scale[0].at("launches"), 1) << "per step";
  EXPECT_EQ(add[0].at("launches"), 1);
  EXPECT_EQ(d.at("timing").at("step_time_ns").contains("median"), p.timed);
  EXPECT_EQ(missing(d, "plan_shortened"), p.shortened);
  if (p.shortened) {
    EXPECT_THAT(detail(d, "plan_shortened"),
                HasSubstr("had " + std::to_string(p.steps) + (p.steps == 1 ? " step" : " steps") + ", the plan needs 69"));
  }
  EXPECT_FALSE(missing(d, "unattributed_kernels"));
  EXPECT_THAT(outcome_.out, HasSubstr("On the device one step took"));
  if (!p.counted || counters_forbidden(d)) return;
  expect_bytes(d, scale[0], 1, 1);
  expect_bytes(d, add[0], 2, 1);
}
INSTANTIATE_TEST_SUITE_P(OnDevice, StepPrograms,
                         ::testing::Values(Steps{3, true, true, false}, Steps{20, true, true, true}, Steps{100, false, true, true}),
                         [](const auto& p) { return "steps_" + std::to_string(p.param.steps); });

TEST_F(OtherPrograms, WhoseStepsVaryShowOneStepAndDoNotFail) {
  const json d = profile("--step-range step", STEP_PROGRAM " --steps 69 --vary");
  ASSERT_TRUE(d.is_object());
  EXPECT_TRUE(missing(d, "steps_differ"));
  EXPECT_EQ(d.at("collection").at("time_basis"), "one_traced_step");
}

// Their first step is open before their first CUDA call.
TEST_F(OtherPrograms, WhoseStepsAreOpenedByAThreadThatLaunchesNothingAreCounted) {
  const json d = profile("--step-range step", STEP_PROGRAM " --steps 69 --thread --n 268435456");
  ASSERT_TRUE(d.is_object());
  EXPECT_TRUE(d.at("environment").contains("l2_bytes")) << d.at("environment");
  EXPECT_FALSE(missing(d, "no_environment")) << detail(d, "no_environment");
  const auto scale = kernels(d, "scale(");
  ASSERT_EQ(scale.size(), 1u);
  if (counters_forbidden(d)) GTEST_SKIP() << "no counters here: " << detail(d, "counters_unavailable");
  expect_bytes(d, scale[0], 1, 1);
}

}  // namespace
