// Ops with answers known in closed form, and the float approximations against the C library.
#include "gpt2/reference/layers.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "gpt2/reference/attention.h"
#include "gpt2/reference/elementary.h"

namespace reference_test {
namespace {

using namespace gpt2::reference;

TEST(Elementary, FloatExponentialIsWithinTwoUnitsOfTheLastPlace) {
  double worst = 0;
  for (float x = -87.2f; x < 88.2f; x += 0.00317f) {
    const double expected = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exponential(x)) - expected) / expected);
  }
  EXPECT_LE(worst, 2.4e-7);
  EXPECT_EQ(exponential(0.0f), 1.0f);
  EXPECT_LE(exponential(-1000.0f), 2e-38f);
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

// Also that the sigmoid form is the tanh form.
TEST(Elementary, GeluIsTheTanhFormAndItsDerivative) {
  const auto tanh_form = [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); };
  for (double x = -6; x < 6; x += 0.0137) {
    EXPECT_LE(std::abs(gelu(x) - tanh_form(x)), 1e-15 * (1 + std::abs(x)));
    EXPECT_LE(std::abs(static_cast<double>(gelu(static_cast<float>(x))) - tanh_form(static_cast<float>(x))), 3e-7 * (0.3 + std::abs(x)));
    const double h = 1e-5, slope = (tanh_form(x + h) - tanh_form(x - h)) / (2 * h);
    EXPECT_LE(std::abs(gelu_derivative(x) - slope), 1e-9);
    EXPECT_LE(
        std::abs(static_cast<double>(gelu_derivative(static_cast<float>(x))) - gelu_derivative(static_cast<double>(static_cast<float>(x)))),
        1e-6);
  }
}

// x = (1, 3): mean 2, variance 1, so the normalized values are -+1 / sqrt(1 + 1e-5).
TEST(Layers, LayernormHasItsEpsilonInsideTheRoot) {
  const std::vector<double> x{1, 3}, weight{2, 5}, bias{10, 20};
  std::vector<double> out(2), mean(1), rstd(1);
  layernorm_forward(out.data(), mean.data(), rstd.data(), x.data(), weight.data(), bias.data(), 1, 2);
  const double n = 1 / std::sqrt(1.00001);
  EXPECT_DOUBLE_EQ(out[0], 10 - 2 * n);
  EXPECT_DOUBLE_EQ(out[1], 20 + 5 * n);
}

// One position sees itself alone: the output is its value row, whatever the scores.
TEST(Layers, AttentionOfTheFirstPositionIsItsValue) {
  const AttentionShape shape{1, 2, 1, 2};
  std::vector<AttentionScratch<double>> scratch;
  scratch.emplace_back(shape);
  // rows: q k v of position 0, then of position 1; scores of row 1: q1·k0 = 2, q1·k1 = 0, over sqrt(2)
  const std::vector<double> qkv{9, 9, 1, 1, 3, 4, /**/ 2, 0, 0, 7, 5, 6};
  std::vector<double> out(4), lse(2);
  attention_forward(shape, out.data(), lse.data(), qkv.data(), scratch);
  EXPECT_DOUBLE_EQ(out[0], 3);
  EXPECT_DOUBLE_EQ(out[1], 4);
  const double p0 = 1 / (1 + std::exp(-2 / std::sqrt(2.0)));
  EXPECT_NEAR(out[2], p0 * 3 + (1 - p0) * 5, 1e-15);
  EXPECT_NEAR(out[3], p0 * 4 + (1 - p0) * 6, 1e-15);
}

TEST(Layers, EqualLogitsCostTheLogarithmOfTheVocabulary) {
  constexpr int64_t V = 5, Vp = 8;
  std::vector<double> logits(Vp, 700.0);
  for (int64_t i = V; i < Vp; ++i) logits[static_cast<size_t>(i)] = 1e308;  // padding takes no part
  const std::vector<int32_t> target{3};
  EXPECT_DOUBLE_EQ(softmax_cross_entropy<double>(logits.data(), target, V, Vp, 0), std::log(5.0));
  EXPECT_DOUBLE_EQ(softmax_cross_entropy<double>(logits.data(), target, V, Vp, 0.5), std::log(5.0));
  for (int64_t i = 0; i < V; ++i) EXPECT_DOUBLE_EQ(logits[static_cast<size_t>(i)], 0.5 * (0.2 - (i == 3 ? 1 : 0)));
  EXPECT_EQ(logits[V], 1e308);
}

// At t = 1 both bias corrections cancel their decay rates: the update is lr * g / (|g| + eps).
TEST(Layers, FirstAdamWUpdateIsTheSignOfTheGradient) {
  std::vector<double> p{1, 1, 1}, m(3), v(3);
  const std::vector<double> g{0.5, -2e-8, 0};
  adamw<double>(p, m, v, g, {.learning_rate = 0.1, .weight_decay = 0.25, .gradient_scale = 1, .t = 1}, true);
  EXPECT_NEAR(p[0], 1 - 0.1 * (0.5 / (0.5 + 1e-8) + 0.25), 1e-15);
  EXPECT_NEAR(p[1], 1 - 0.1 * (-2e-8 / (2e-8 + 1e-8) + 0.25), 1e-15);
  EXPECT_NEAR(p[2], 1 - 0.1 * 0.25, 1e-15);
  EXPECT_NEAR(m[0], 0.05, 1e-16);
  EXPECT_NEAR(v[0], 0.25 * 0.001, 1e-16);
}

TEST(Layers, ClippingScalesTheGradientBeforeTheMoments) {
  std::vector<double> p{1}, m{0.2}, v{0.3};
  adamw<double>(p, m, v, std::vector<double>{4}, {.learning_rate = 0.1, .gradient_scale = 0.25, .t = 3}, false);
  EXPECT_NEAR(m[0], 0.9 * 0.2 + 0.1 * 1, 1e-15);
  EXPECT_NEAR(v[0], 0.999 * 0.3 + 0.001 * 1, 1e-15);
  const double update = (m[0] / (1 - 0.9 * 0.9 * 0.9)) / (std::sqrt(v[0] / (1 - 0.999 * 0.999 * 0.999)) + 1e-8);
  EXPECT_NEAR(p[0], 1 - 0.1 * update, 1e-14);
}

}  // namespace
}  // namespace reference_test
