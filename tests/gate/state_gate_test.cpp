// Golden states were computed by an independent implementation in double precision and stored in fp32
// (tests/data/golden).
#include "experiments/gate/state_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <vector>

#include "base/errors.h"
#include "experiments/gate/budgets.h"
#include "gpt2/checkpoint.h"
#include "gpt2/reference/reference_trainer.h"
#include "tests/temporary_folder.h"

namespace gate {
namespace {

namespace fs = std::filesystem;

const StateFiles kTiny{fs::path(TEST_DATA) / "golden/tiny.bin", fs::path(TEST_DATA) / "golden/tiny_debug_state.bin"};

class StateGate : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fresh_test_folder();
    config_ = gpt2::load_checkpoint(kTiny.checkpoint).config;
    state_ = gpt2::load_reference_state(kTiny.state, config_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::set<std::string> failing() {
    const StateFiles files{kTiny.checkpoint, folder_ / "state.bin"};
    gpt2::save_reference_state(files.state, config_, state_);
    std::set<std::string> names;
    const GateReport report = check_oracle_against_state(files);
    for (const CheckResult& r : report.results)
      if (!r.passed) names.insert(r.tensor);
    EXPECT_EQ(report.passed(), names.empty());
    return names;
  }

  fs::path folder_;
  gpt2::ModelConfig config_;
  gpt2::ReferenceState state_;
};

TEST_F(StateGate, TheOraclePassesOnTheGoldenState) {
  const GateReport report = check_oracle_against_state(kTiny);
  EXPECT_TRUE(report.passed()) << to_table(report, true);
  EXPECT_EQ(report.results.size(), 18u) << "logits, loss and 16 gradients";
  for (const CheckResult& r : report.results)
    for (const Measure& m : r.measures)
      if (m.unit == "norm") {
        EXPECT_LE(m.error, 2e-7) << r.tensor;
      }
}

TEST_F(StateGate, EachTensorOffByATwentiethOfAPercentIsNamedAlone) {
  const auto right = state_;
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    state_ = right;
    const auto span = gpt2::tensor_layout(config_)[row.id];
    for (int64_t i = span.offset; i < span.offset + span.size; ++i) state_.gradients[static_cast<size_t>(i)] *= 1.0005f;
    EXPECT_EQ(failing(), std::set<std::string>{std::string(row.name)});
  }
  state_ = right;
  for (float& x : state_.logits) x *= 1.0005f;
  EXPECT_EQ(failing(), std::set<std::string>{"logits"});
  state_ = right;
  state_.loss *= 1.0005f;
  EXPECT_EQ(failing(), std::set<std::string>{"loss"});
}

// The limit is 2e-7: five units in the last place of a float, 6e-7, are beyond it.
TEST_F(StateGate, FiveUnitsInTheLastPlaceAreTooMuch) {
  constexpr float kOff = 1 + 5 * 0x1p-23f;
  for (float& x : state_.gradients) x *= kOff;
  for (float& x : state_.logits) x *= kOff;
  state_.loss *= kOff;
  EXPECT_EQ(failing().size(), 18u) << "logits, loss and 16 gradients";
}

// The reference in float has a budget of 2e-6 for gradients and logits and of 1e-6 for the loss.
struct SlightlyOff final : gpt2::Trainer {
  SlightlyOff(const gpt2::TrainerOptions& o, float gradients, float logits, double loss)
      : right(gpt2::make_reference_trainer(o)), gradients_by(gradients), logits_by(logits), loss_by(loss) {}
  const gpt2::TrainerOptions& options() const override { return right->options(); }
  std::string_view name() const override { return right->name(); }
  std::string device() const override { return right->device(); }
  std::vector<gpt2::MemoryItem> memory() const override { return right->memory(); }
  void read(gpt2::State which, std::span<float> values) override {
    right->read(which, values);
    if (which == gpt2::State::gradients)
      for (float& x : values) x *= gradients_by;
  }
  void write(gpt2::State which, std::span<const float> values) override { right->write(which, values); }
  void enqueue_step(const gpt2::StepPlan& plan) override { right->enqueue_step(plan); }
  gpt2::StepOutcome finish_step() override { return right->finish_step(); }
  double evaluate(const gpt2::Batch& b, std::span<float> l) override { return right->evaluate(b, l); }
  double forward_backward(const gpt2::Batch& b, std::span<float> l) override {
    const double loss = right->forward_backward(b, l);
    for (float& x : l) x *= logits_by;
    return loss * loss_by;
  }
  std::unique_ptr<gpt2::Trainer> right;
  float gradients_by, logits_by;
  double loss_by;
};

TEST_F(StateGate, ATrainerIsHeldToItsOwnBudgets) {
  const auto failing_with = [](float gradients, float logits, double loss) {
    std::set<std::string> names;
    const TrainerFactory factory = [&](const gpt2::TrainerOptions& o) { return std::make_unique<SlightlyOff>(o, gradients, logits, loss); };
    for (const CheckResult& r : check_trainer_against_state(factory, kTiny, "reference", "fp32", {}).results)
      if (!r.passed) names.insert(r.tensor);
    return names;
  };
  EXPECT_EQ(failing_with(1, 1, 1), std::set<std::string>{});
  EXPECT_EQ(failing_with(1 + 1e-5f, 1, 1).size(), 16u);
  EXPECT_EQ(failing_with(1, 1 + 1e-5f, 1), std::set<std::string>{"logits"});
  EXPECT_EQ(failing_with(1, 1, 1 + 3e-6), std::set<std::string>{"loss"});
}

TEST_F(StateGate, TheCosineTellsLengthFromDirection) {
  const auto cosines_with = [](float gradients) {
    const TrainerFactory factory = [&](const gpt2::TrainerOptions& o) { return std::make_unique<SlightlyOff>(o, gradients, 1, 1); };
    std::vector<double> cosines;
    for (const CheckResult& r : check_trainer_against_state(factory, kTiny, "reference", "fp32", {}).results)
      if (r.tensor != "loss" && r.tensor != "logits") cosines.push_back(r.cosine.value());
    return cosines;
  };
  EXPECT_THAT(cosines_with(2), ::testing::AllOf(::testing::SizeIs(16), ::testing::Each(::testing::DoubleNear(1, 1e-9))));
  EXPECT_THAT(cosines_with(-1), ::testing::Each(::testing::DoubleNear(-1, 1e-9)));
}

TEST_F(StateGate, ANotANumberInTheStateFails) {
  state_.gradients[12345] = NAN;
  EXPECT_EQ(failing().size(), 1u);
}

TEST_F(StateGate, AStateOfOtherTokensFails) {
  state_.inputs[5] = (state_.inputs[5] + 1) % static_cast<int32_t>(config_.vocab_size);
  EXPECT_GT(failing().size(), 10u);
}

TEST_F(StateGate, ATrainerIsHeldAgainstTheSameState) {
  const TrainerFactory factory = [](const gpt2::TrainerOptions& o) { return gpt2::make_reference_trainer(o); };
  const GateReport report = check_trainer_against_state(factory, kTiny, "reference", "fp32", {});
  EXPECT_TRUE(report.passed()) << to_table(report, true);
}

TEST_F(StateGate, AStateOfAnotherModelIsBadInput) {
  EXPECT_THROW(check_oracle_against_state({kTiny.checkpoint, kTiny.checkpoint}), stepscope::InputError);
  EXPECT_THROW(check_oracle_against_state({kTiny.state, kTiny.state}), stepscope::InputError);
  EXPECT_THROW(check_oracle_against_state({folder_ / "absent", kTiny.state}), stepscope::InputError);
}

}  // namespace
}  // namespace gate
