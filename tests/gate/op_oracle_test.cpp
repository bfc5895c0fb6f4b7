// Two implementations that share no code: the op oracle's plain loops and the double-precision reference
// model's layers.
#include "experiments/gate/op_oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "experiments/gate/metrics.h"
#include "experiments/gate/random.h"
#include "gpt2/reference/attention.h"
#include "gpt2/reference/layers.h"

namespace gate {
namespace {

namespace ref = gpt2::reference;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

Floats normal(int64_t n, uint64_t seed) {
  Random random(seed);
  Floats x(static_cast<size_t>(n));
  for (float& v : x) v = random.normal();
  return x;
}
Doubles wide(const Floats& x) { return Doubles(x.begin(), x.end()); }
void expect_same(const Doubles& a, const Doubles& b) {
  ASSERT_EQ(a.size(), b.size());
  const auto n = static_cast<int64_t>(a.size());
  EXPECT_LE((compare<double, double>(a, b, 1, n).norm), 1e-12);
}

TEST(OpOracle, Layernorm) {
  constexpr int64_t kRows = 9, C = 30;
  const Floats x = normal(kRows * C, 1), w = normal(C, 2), b = normal(C, 3), dout = normal(kRows * C, 4);
  Doubles out(x.size()), mean(kRows), rstd(kRows);
  ref::layernorm_forward<double>(out.data(), mean.data(), rstd.data(), wide(x).data(), wide(w).data(), wide(b).data(), kRows, C);
  const auto mine = oracle::layernorm_forward(x, w, b, kRows, C);
  expect_same(mine.out, out);
  expect_same(mine.mean, mean);
  expect_same(mine.rstd, rstd);
  const Floats mean_f(mean.begin(), mean.end()), rstd_f(rstd.begin(), rstd.end());
  Doubles dx(x.size()), dw(C), db(C);
  ref::layernorm_backward<double>(dx.data(), false, dw.data(), db.data(), false, wide(dout).data(), wide(x).data(), wide(mean_f).data(),
                                  wide(rstd_f).data(), wide(w).data(), kRows, C);
  const auto g = oracle::layernorm_backward(dout, x, mean_f, rstd_f, w, kRows, C);
  expect_same(g.dx, dx);
  expect_same(g.dweight, dw);
  expect_same(g.dbias, db);
}

TEST(OpOracle, Gelu) {
  const Floats x = normal(1000, 5), dout = normal(1000, 6);
  Doubles out(1000), grad = wide(dout);
  ref::gelu_forward<double>(out.data(), wide(x).data(), 1000);
  ref::gelu_backward<double>(grad.data(), wide(x).data(), 1000);
  expect_same(oracle::gelu_forward(x), out);
  expect_same(oracle::gelu_backward(dout, x), grad);
}

TEST(OpOracle, Attention) {
  constexpr int64_t B = 2, T = 7, NH = 3, HS = 8, C = NH * HS;
  const Floats qkv = normal(B * T * 3 * C, 7), dout = normal(B * T * C, 8);
  const ref::AttentionShape shape{B, T, NH, HS};
  std::vector<ref::AttentionScratch<double>> scratch;
  scratch.emplace_back(shape);
  Doubles out(B * T * C), lse(B * NH * T), dqkv(qkv.size());
  ref::attention_forward<double>(shape, out.data(), lse.data(), wide(qkv).data(), scratch);
  const auto mine = oracle::attention_forward(qkv, B, T, C, NH);
  expect_same(mine.out, out);
  expect_same(mine.lse, lse);
  const Floats out_f(out.begin(), out.end()), lse_f(lse.begin(), lse.end());
  ref::attention_backward<double>(shape, dqkv.data(), wide(dout).data(), wide(out_f).data(), wide(lse_f).data(), wide(qkv).data(), scratch);
  expect_same(oracle::attention_backward(dout, qkv, out_f, lse_f, B, T, C, NH), dqkv);
}

TEST(OpOracle, Classifier) {
  constexpr int64_t kRows = 3, V = 13, Vp = 16;
  const Floats logits = normal(kRows * Vp, 9);
  const std::vector<int32_t> targets{0, V - 1, 5};
  Doubles theirs = wide(logits);
  const double loss = ref::softmax_cross_entropy<double>(theirs.data(), targets, V, Vp, 0.25);
  const auto mine = oracle::classifier(logits, targets, V, Vp, 0.25);
  EXPECT_NEAR((mine.losses[0] + mine.losses[1] + mine.losses[2]) / 3, loss, 1e-12);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t v = 0; v < Vp; ++v) {
      const auto i = static_cast<size_t>(r * Vp + v);
      EXPECT_NEAR(mine.dlogits[i], v < V ? theirs[i] : 0, 1e-14);
    }
}

TEST(OpOracle, LinearGradientsAreThoseOfTheForwardPass) {
  // d(sum(dout * out)) by central differences; the forward pass is linear, so they are exact but for
  // rounding.
  constexpr int64_t kRows = 3, kIn = 5, kOut = 4;
  Floats x = normal(kRows * kIn, 10), w = normal(kOut * kIn, 11), b = normal(kOut, 12);
  const Floats dout = normal(kRows * kOut, 13);
  const auto g = oracle::linear_backward(dout, x, w, kRows, kIn, kOut);
  const auto objective = [&] {
    const auto out = oracle::linear_forward(x, w, b, kRows, kIn, kOut);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * static_cast<double>(dout[i]);
    return sum;
  };
  const auto check = [&](Floats& values, const Doubles& gradient) {
    for (size_t i = 0; i < values.size(); ++i) {
      const float old = values[i];
      values[i] = old + 0.5f;
      const double up = objective(), high = static_cast<double>(values[i]);
      values[i] = old - 0.5f;
      const double slope = (up - objective()) / (high - static_cast<double>(values[i]));
      values[i] = old;
      EXPECT_NEAR(slope, gradient[i], 1e-12);
    }
  };
  check(x, g.dx);
  check(w, g.dweight);
  check(b, g.dbias);
}

TEST(OpOracle, EmbeddingGradientsCountRepeatedTokens) {
  const std::vector<int32_t> tokens{2, 2, 0, 2};  // B=2, T=2
  const Floats dout{1, 10, 100, 1000}, dwte{5, 0, 0}, dwpe{0, 0};
  const auto g = oracle::embedding_backward(dwte, dwpe, dout, tokens, 2, 1);
  EXPECT_EQ(g.dwte, (Doubles{105, 0, 1011}));
  EXPECT_EQ(g.dwpe, (Doubles{101, 1010}));
}

TEST(OpOracle, AdamWFirstStepIsTheLearningRateTimesTheSignAndTheDecay) {
  // With moments of zero the corrected moments are g and g * g.
  const gpt2::TensorLayout layout = gpt2::tensor_layout({4, 8, 8, 1, 1, 4});
  const auto n = static_cast<size_t>(layout.total);
  const gpt2::AdamW settings{.learning_rate = 0.5f, .eps = 0.0f, .weight_decay = 0.25f};
  const Floats p(n, 2), g(n, -3), zero(n, 0);
  const auto u = oracle::adamw(p, zero, zero, g, layout, settings, 1, 0.5f);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const auto i = static_cast<size_t>(layout[row.id].offset + layout[row.id].size - 1);
    EXPECT_NEAR(u.parameters[i], row.decayed ? 2 + 0.5 - 0.5 * 0.25 * 2 : 2 + 0.5, 1e-12) << row.name;
    EXPECT_NEAR(u.m[i], -1.5 * (1 - static_cast<double>(settings.beta1)), 1e-12);
    EXPECT_NEAR(u.v[i], 2.25 * (1 - static_cast<double>(settings.beta2)), 1e-12);
  }
}

}  // namespace
}  // namespace gate
