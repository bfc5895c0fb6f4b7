// The reference against an independent implementation (Hugging Face GPT-2 in fp64): stored logits, loss and
// gradients of one batch, and ten AdamW steps on it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/reference/reference_support.h"

namespace reference_test {
namespace {

constexpr double kStoredAsFloat = 2e-7;  // what storing the expected values in fp32 costs, with room for the loss

template <typename Real>
void expect_state(double budget) {
  const Golden g = load_golden(TEST_DATA "/golden");
  gpt2::reference::ReferenceModel<Real> model(g.config, g.B, g.T);
  model.set_parameters(g.parameters);
  const double loss = model.forward(g.tokens.batch());
  EXPECT_LE(std::abs(loss - g.loss) / g.loss, budget);
  std::vector<Real> logits;
  for (int64_t row = 0; row < g.B * g.T; ++row) {
    const auto begin = model.logits().begin() + row * g.config.padded_vocab;
    logits.insert(logits.end(), begin, begin + g.config.vocab_size);
  }
  EXPECT_LE(relative_l2(std::span<const Real>(logits), std::span<const float>(g.logits)), budget);
  model.backward();
  const gpt2::TensorLayout layout = gpt2::tensor_layout(g.config);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable)
    EXPECT_LE(relative_l2(part(std::span<const Real>(model.gradients()), layout[row.id]),
                          part(std::span<const float>(g.gradients), layout[row.id])),
              budget)
        << row.name;
}

TEST(Golden, DoubleMatchesLogitsLossAndEveryGradientTensor) { expect_state<double>(kStoredAsFloat); }
TEST(Golden, FloatIsWithinItsOwnRoundingOfTheState) { expect_state<float>(2e-6); }

TEST(Golden, TenAdamWStepsInDoubleFollowTheIndependentLossesAndNorms) {
  const Golden g = load_golden(TEST_DATA "/golden");
  std::ifstream file(TEST_DATA "/golden/tiny.json");
  const nlohmann::json expected = nlohmann::json::parse(file);
  gpt2::reference::ReferenceModel<double> model(g.config, g.B, g.T);
  model.set_parameters(g.parameters);
  ASSERT_EQ(expected["losses"].size(), 10u);
  for (int64_t t = 1; t <= 10; ++t) {
    const double loss = model.forward_backward(g.tokens.batch()), norm = model.gradient_norm();
    const double want_loss = expected["losses"][static_cast<size_t>(t - 1)];
    const double want_norm = expected["grad_norms"][static_cast<size_t>(t - 1)];
    EXPECT_LE(std::abs(loss - want_loss) / want_loss, 1e-8) << "step " << t;
    EXPECT_LE(std::abs(norm - want_norm) / want_norm, 1e-8) << "step " << t;
    model.update({.learning_rate = expected["lr"],
                  .beta1 = expected["beta1"],
                  .beta2 = expected["beta2"],
                  .eps = expected["eps"],
                  .weight_decay = expected["weight_decay"],
                  .gradient_scale = 1,
                  .t = t});
  }
}

}  // namespace
}  // namespace reference_test
