// The gate of the fp32 trainer and the op checks of the mixed one, as `stepscope gate` runs them. Skipped without a device.
#include <gtest/gtest.h>

#include <random>

#include "experiments/gate/expected.h"
#include "experiments/gate/model_gate.h"
#include "experiments/gate/op_gate.h"
#include "fp32/trainer.h"
#include "gpt2/cuda/device_info.h"

namespace gate {
namespace {

class GateOnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  }
  // With `answers`, the oracle's about the small models, as a receipt asks about variants: loop and times once are enough, which are not what
  // variants differ by.
  void expect_model_passes(const std::string& matmul, std::map<std::string, std::string> variants, ExpectedCache* answers = nullptr) const {
    ModelGateOptions o;
    o.matmul = matmul;
    o.variants = std::move(variants);
    o.seed = seed_;
    o.small_answers = answers;
    o.with_timed_steps = o.with_loop = answers == nullptr;
    const GateReport report = check_model([](const gpt2::TrainerOptions& t) { return fp32::make_fp32_trainer(t); }, o);
    EXPECT_TRUE(report.passed()) << to_table(report, false);
  }
  const uint64_t seed_ = 20261122;  // fixed: other seeds are the business of whoever measures false alarms
};

TEST_F(GateOnDevice, EveryOpVariantPasses) {
  OpGateOptions o;
  o.seed = seed_;
  const GateReport report = check_ops(o);
  EXPECT_TRUE(report.passed()) << to_table(report, false);
}

TEST_F(GateOnDevice, EveryOpVariantOfTheMixedTrainerPasses) {
  OpGateOptions o;
  o.trainer = "mixed";
  o.seed = seed_;
  const GateReport report = check_ops(o);
  EXPECT_TRUE(report.passed()) << to_table(report, false);
}

TEST_F(GateOnDevice, TheWholeModelPassesInFp32) { expect_model_passes("fp32", {}); }
TEST_F(GateOnDevice, TheWholeModelPassesInTf32) { expect_model_passes("tf32", {}); }

TEST_F(GateOnDevice, TheWholeModelPassesWithEachVariant) {
  ExpectedCache answers;
  for (const gpt2::VariantInfo& slot : fp32::fp32_variants())
    for (size_t i = 1; i < slot.names.size(); ++i) {
      SCOPED_TRACE(slot.slot + "=" + slot.names[i]);
      expect_model_passes("fp32", slot.choices[i], &answers);
    }
}

}  // namespace
}  // namespace gate
