// The answers of the op cases against the plain loops of op_oracle.h, which know nothing of chunks, tiles or
// views; inputs and tokens against what is said of them; results on the device against those on the host.
#include "experiments/gate/op_answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <set>

#include "experiments/gate/op_compare.h"
#include "experiments/gate/op_inputs.h"
#include "experiments/gate/op_oracle.h"
#include "gpt2/cuda/device_info.h"

namespace gate {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

class Answers : public ::testing::TestWithParam<Space> {
 protected:
  void SetUp() override {
    if (GetParam() == Space::device)
      if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  }
  Space space() const { return GetParam(); }
  // Drawn on the host, so that both sides have the same bits.
  Floats drawn(int64_t n, double deviation = 1) {
    Memory m(Space::host, n * 4);
    fill(m, Element::f32, Values{.seed = ++seed_, .deviation = deviation});
    return values_of<float>(m);
  }
  Memory there(const Floats& x) const { return memory_of(space(), x); }
  View at(const Memory& m) const { return view(m, Element::f32); }
  static void expect_same(const Memory& got, const Doubles& want, double limit = 1e-12) {
    const Doubles values = values_of<double>(got);
    ASSERT_EQ(values.size(), want.size());
    const auto n = static_cast<int64_t>(want.size());
    EXPECT_LE((compare<double, double>(values, want, 1, n).norm), limit);
  }
  uint64_t seed_ = 40;
};

TEST_P(Answers, EmbeddingIsThePlainLoops) {
  constexpr int64_t B = 3, T = 91, C = 7, V = 53, Vp = 60, kMax = 95;
  const std::vector<int32_t> tokens = tokens_of(TokenKind::skewed, B * T, V, 9);
  const Floats wte = drawn(Vp * C), wpe = drawn(kMax * C), dout = drawn(B * T * C), before = drawn(Vp * C);
  const Memory words = memory_of(space(), tokens), wte_m = there(wte), wpe_m = there(wpe), dout_m = there(dout), before_m = there(before);
  expect_same(answer::embedding_forward(space(), words.as<int32_t>(), at(wte_m), at(wpe_m), B * T, T, C),
              oracle::embedding_forward(tokens, wte, wpe, T, C));
  const auto g = answer::embedding_backward(space(), at(before_m), at(dout_m), words, B, T, C, Vp, kMax);
  const auto want = oracle::embedding_backward(before, Floats(static_cast<size_t>(kMax * C)), dout, tokens, T, C);
  expect_same(g.dwte, want.dwte);
  expect_same(g.dwpe, want.dwpe);
}

TEST_P(Answers, LayernormIsThePlainLoops) {
  constexpr int64_t kRows = 601, C = 37;  // more rows than a chunk of a sum
  const Floats x = drawn(kRows * C), w = drawn(C), b = drawn(C), dout = drawn(kRows * C);
  const Memory x_m = there(x), w_m = there(w), b_m = there(b), dout_m = there(dout);
  const auto n = answer::layernorm_forward(space(), at(x_m), at(w_m), at(b_m), kRows, C);
  const auto want = oracle::layernorm_forward(x, w, b, kRows, C);
  expect_same(n.out, want.out);
  expect_same(n.mean, want.mean);
  expect_same(n.rstd, want.rstd);
  const Floats mean(want.mean.begin(), want.mean.end()), rstd(want.rstd.begin(), want.rstd.end());
  const Memory mean_m = there(mean), rstd_m = there(rstd);
  const auto g = answer::layernorm_backward(space(), at(dout_m), at(x_m), at(mean_m), at(rstd_m), at(w_m), kRows, C);
  const auto want_g = oracle::layernorm_backward(dout, x, mean, rstd, w, kRows, C);
  expect_same(g.dx, want_g.dx);
  expect_same(g.dweight, want_g.dweight);
  expect_same(g.dbias, want_g.dbias);
}

TEST_P(Answers, ProductsAreThePlainLoops) {
  for (const auto& [rows, in, out] : {std::array<int64_t, 3>{1, 5, 9}, {17, 31, 23}, {300, 8, 16}}) {
    const Floats x = drawn(rows * in), w = drawn(out * in), b = drawn(out), dout = drawn(rows * out);
    const Memory x_m = there(x), w_m = there(w), b_m = there(b), dout_m = there(dout);
    expect_same(answer::linear_forward(space(), at(x_m), at(w_m), at(b_m), rows, in, out), oracle::linear_forward(x, w, b, rows, in, out));
    expect_same(answer::linear_forward(space(), at(x_m), at(w_m), {}, rows, in, out), oracle::linear_forward(x, w, {}, rows, in, out));
    const auto want = oracle::linear_backward(dout, x, w, rows, in, out);
    expect_same(answer::linear_backward_input(space(), at(dout_m), at(w_m), rows, in, out), want.dx);
    expect_same(answer::linear_backward_weight(space(), at(dout_m), at(x_m), rows, in, out), want.dweight);
    expect_same(answer::column_sums(space(), at(dout_m), rows, out), want.dbias);
  }
}

TEST_P(Answers, AttentionIsThePlainLoops) {
  constexpr int64_t B = 2, T = 21, NH = 5, HS = 8, C = NH * HS;
  for (const Qkv& kind :
       {Qkv{3, T, C, HS}, Qkv{.seed = 3, .T = T, .C = C, .HS = HS, .hurt = true}, Qkv{.seed = 3, .T = T, .C = C, .HS = HS, .low = true}}) {
    Memory drawn_qkv(Space::host, B * T * 3 * C * 4);
    fill(drawn_qkv, Element::f32, kind);
    const Floats qkv = values_of<float>(drawn_qkv), dout = drawn(B * T * C);
    const Memory qkv_m = there(qkv), dout_m = there(dout);
    const auto a = answer::attention_forward(space(), at(qkv_m), B, T, C, NH);
    const auto want = oracle::attention_forward(qkv, B, T, C, NH);
    expect_same(a.out, want.out, 1e-11);
    expect_same(a.lse, want.lse);
    const Floats out(want.out.begin(), want.out.end()), lse(want.lse.begin(), want.lse.end());
    const Memory out_m = there(out), lse_m = there(lse);
    expect_same(answer::attention_backward(space(), at(dout_m), at(qkv_m), at(out_m), at(lse_m), B, T, C, NH),
                oracle::attention_backward(dout, qkv, out, lse, B, T, C, NH), 1e-11);
  }
}

TEST_P(Answers, GeluAndClassifierAreThePlainLoops) {
  const Floats x = drawn(1000, 2), dout = drawn(1000);
  const Memory x_m = there(x), dout_m = there(dout);
  expect_same(answer::gelu_forward(space(), at(x_m), 1000), oracle::gelu_forward(x));
  expect_same(answer::gelu_backward(space(), at(dout_m), at(x_m), 1000), oracle::gelu_backward(dout, x));
  constexpr int64_t kRows = 11, V = 603, Vp = 640;
  Memory drawn_logits(Space::host, kRows * Vp * 4);
  fill(drawn_logits, Element::f32, Logits{5, V, Vp, true});
  const Floats logits = values_of<float>(drawn_logits);
  const std::vector<int32_t> targets = tokens_of(TokenKind::repeated, kRows, V, 3);
  const Memory logits_m = there(logits), targets_m = memory_of(space(), targets);
  const auto got = answer::classifier(space(), at(logits_m), targets_m.as<int32_t>(), kRows, V, Vp, 0.25);
  const auto want = oracle::classifier(logits, targets, V, Vp, 0.25);
  expect_same(got.losses, want.losses);
  expect_same(got.dlogits, want.dlogits);
}

TEST_P(Answers, AdamWIsThePlainLoopsAndKnowsByItselfWhatDecays) {
  const gpt2::TensorLayout layout = gpt2::tensor_layout({4, 8, 8, 2, 1, 4});
  const gpt2::AdamW settings{.learning_rate = 1e-2f, .weight_decay = 0.1f};
  const Floats p = drawn(layout.total), m = drawn(layout.total), g = drawn(layout.total);
  Floats v = drawn(layout.total);
  for (float& y : v) y = std::abs(y);
  const Memory p_m = there(p), m_m = there(m), v_m = there(v), g_m = there(g);
  for (const int64_t step : {1, 100'000}) {
    const auto got = answer::adamw(space(), at(p_m), at(m_m), at(v_m), at(g_m), layout, settings, step, 0.5);
    const auto want = oracle::adamw(p, m, v, g, layout, settings, step, 0.5f);
    expect_same(got.parameters, want.parameters);
    expect_same(got.m, want.m);
    expect_same(got.v, want.v);
  }
}

TEST_P(Answers, SumsAndNormsAreThoseOfAllElements) {
  const Floats x = drawn(70'001);
  const Memory x_m = there(x);
  double sum = 0, squares = 0;
  for (float y : x) sum += static_cast<double>(y), squares += static_cast<double>(y) * static_cast<double>(y);
  EXPECT_NEAR(answer::total(space(), at(x_m), 70'001), sum, 1e-9);
  EXPECT_NEAR(answer::norm(space(), at(x_m), 70'001), std::sqrt(squares), 1e-9);
}

// The metrics that judge large tensors are those of metrics.h and op_judge.h.
TEST_P(Answers, ComparisonIsTheOneOfTheHost) {
  constexpr int64_t kRows = 523, kColumns = 401;
  const Floats want = drawn(kRows * kColumns);
  Floats got = want;
  const Floats noise = drawn(kRows * kColumns, 1e-3);
  for (size_t i = 0; i < got.size(); ++i) got[i] += noise[i];
  for (int64_t c = 0; c < kColumns; ++c) got[static_cast<size_t>(77 * kColumns + c)] *= 1.5f;
  for (const bool nan : {false, true}) {
    if (nan) got[1234] = std::nanf("");
    const Memory got_m = there(got), want_m = memory_of(space(), Doubles(want.begin(), want.end()));
    const ErrorMetrics mine = compare(space(), at(got_m), view(want_m), kRows, kColumns);
    const ErrorMetrics host = compare<double, double>(Doubles(got.begin(), got.end()), Doubles(want.begin(), want.end()), kRows, kColumns);
    EXPECT_EQ(std::isnan(mine.norm), nan);
    EXPECT_EQ(std::isnan(mine.worst_row), nan);
    EXPECT_EQ(std::isnan(mine.worst_column), nan);
    EXPECT_EQ(std::isnan(mine.max_abs), std::isnan(host.max_abs));
    EXPECT_EQ(mine.worst_row_at, host.worst_row_at);
    EXPECT_EQ(mine.worst_column_at, host.worst_column_at);
    EXPECT_EQ(std::isnan(worst_element(space(), at(got_m), view(want_m), kRows * kColumns)), nan);
    if (nan) continue;
    EXPECT_NEAR(mine.norm, host.norm, 1e-12);
    EXPECT_NEAR(mine.cosine, host.cosine, 1e-12);
    EXPECT_NEAR(mine.worst_row, host.worst_row, 1e-12);
    EXPECT_NEAR(mine.worst_column, host.worst_column, 1e-12);
    EXPECT_NEAR(mine.max_abs, host.max_abs, 1e-12);
    EXPECT_NEAR(worst_element(space(), at(got_m), view(want_m), kRows * kColumns),
                worst_element(Doubles(got.begin(), got.end()), Doubles(want.begin(), want.end())), 1e-9);
  }
}

TEST_P(Answers, CountsAndRoundingAreThoseOfTheHost) {
  Floats a = drawn(5000);
  Floats b = a;
  b[0] += 1;
  b[4999] += 1;
  const Memory a_m = there(a), b_m = there(b);
  EXPECT_EQ(count_different(space(), a_m.data(), b_m.data(), a_m.bytes(), 4), 2);
  EXPECT_EQ(count_all_ones(space(), a_m.data(), a_m.bytes(), 4), 0);
  set_bytes(a_m.data() + 4 * 4997, space(), std::byte{0xff}, 12);
  EXPECT_EQ(count_all_ones(space(), a_m.data(), a_m.bytes(), 4), 3);
  std::vector<uint16_t> rounded(b.size());
  Floats as_floats(b.size());
  for (size_t i = 0; i < b.size(); ++i) {
    rounded[i] = static_cast<uint16_t>(bf16_bits(b[i]) + (i % 3 == 0));
    const uint32_t bits = static_cast<uint32_t>(rounded[i]) << 16;
    as_floats[i] = std::bit_cast<float>(bits);
  }
  const Memory rounded_m = memory_of(space(), rounded);
  EXPECT_EQ(count_not_rounded(b_m, rounded_m), 1667);
  const auto mine = judge_stochastic(b_m, rounded_m);
  const auto host = judge_stochastic(b, as_floats);
  EXPECT_EQ(mine.not_a_neighbour, host.not_a_neighbour);
  EXPECT_NEAR(mine.bias_sigmas, host.bias_sigmas, 1e-6);
  EXPECT_NEAR(mine.together.excess(), host.together.excess(), 1e-9);
  EXPECT_NEAR(mine.together.limit(0), host.together.limit(0), 1e-9);
}

// Of 90 rows of 300, of which every third element is one bf16 too far from zero, every ninth too near, and some are nearly zero.
TEST_P(Answers, ALeanIsWhatThePlainLoopsCount) {
  constexpr int64_t kRows = 90, kColumns = 300, kCount = kRows * kColumns;
  const Floats want = drawn(kCount);
  std::vector<double> exact(want.begin(), want.end());
  std::vector<uint16_t> got(want.size());
  double further = 0, asked = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    got[i] = static_cast<uint16_t>(bf16_bits(want[i]) + (i % 3 == 0 ? 1 : i % 9 == 1 ? -1 : 0));
    if (i % 50 == 0) {
      exact[i] = 1e-9;
      got[i] = 0;
      continue;
    }
    if (std::abs(exact[i]) < 0x1p-9) continue;  // near where an answer counts
    asked += 1;
    further += i % 3 == 0 ? 1 : i % 9 == 1 ? -1 : 0;
  }
  const Memory got_m = memory_of(space(), got), want_m = memory_of(space(), exact);
  const View result{got_m.data(), Element::bf16, kCount};
  const std::optional<Lean> lean = lean_of(space(), result, view(want_m), kRows, kColumns, kBf16Bits);
  ASSERT_TRUE(lean.has_value());
  EXPECT_NEAR(lean->share, further / asked, 2e-3);
  EXPECT_LT(lean->deviation, 0.6 / std::sqrt(static_cast<double>(kCount)) + 1e-3);
  EXPECT_TRUE(lean_of(space(), result, view(want_m), 1, kCount, kBf16Bits).has_value()) << "a list is cut into pieces";
  EXPECT_FALSE(lean_of(space(), result, view(want_m), 63, kColumns, kBf16Bits).has_value()) << "too few rows";
  // All elements of one eighth lie too far.
  std::vector<uint16_t> off(want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    exact[i] = static_cast<double>(want[i]);
    off[i] = static_cast<uint16_t>(bf16_bits(want[i]) + (want[i] >= 0.5f && want[i] < 0.625f ? 1 : 0));
  }
  const Memory off_m = memory_of(space(), off), along_m = memory_of(space(), exact);
  const WorstLean worst =
      worst_lean_along(space(), View{off_m.data(), Element::bf16, kCount}, view(along_m), view(along_m), kCount, kBf16Bits);
  EXPECT_EQ(worst.eighth, 33 + 4);
  EXPECT_GT(worst.of_limit, 3);
}

// Sixteen bytes are looked at together before anything is counted: one that differs is found at each place of them, and behind the last.
TEST_P(Answers, ASingleByteThatDiffersIsCountedWhereverItStands) {
  const std::vector<uint8_t> a(53, 0x5a);
  const Memory a_m = memory_of(space(), a);
  EXPECT_EQ(count_different(space(), a_m.data(), copy_of(a_m).data(), a_m.bytes(), 1), 0);
  for (size_t at = 0; at < a.size(); ++at) {
    std::vector<uint8_t> b = a;
    b[at] ^= 1;
    const Memory b_m = memory_of(space(), b);
    EXPECT_EQ(count_different(space(), a_m.data(), b_m.data(), a_m.bytes(), 1), 1) << at;
    EXPECT_EQ(count_different(space(), a_m.data() + 1, b_m.data() + 1, a_m.bytes() - 1, 1), at > 0) << at << ", not aligned";
  }
}

TEST_P(Answers, ADifferenceInAnyOfManyPairsIsFoundAndForgottenAfterTheAnswer) {
  const Memory a = memory_of(space(), std::vector<uint8_t>(53, 0x5a)), same = copy_of(a), other = copy_of(a);
  set_bytes(other.data() + 52, space(), std::byte{0x5b}, 1);
  AnyDifferent any(space());
  EXPECT_FALSE(any.found());
  for (const Memory* b : {&same, &other, &same}) any.look(a.data(), b->data(), a.bytes());
  EXPECT_TRUE(any.found());
  any.look(a.data(), same.data(), a.bytes());
  EXPECT_FALSE(any.found());
  any.look(a.data() + 1, same.data() + 1, a.bytes() - 1);  // not aligned: not looked at
  EXPECT_TRUE(any.found());
}

TEST_P(Answers, AnElementOfAllOnesIsCountedWhereverItStands) {
  constexpr int64_t kBytes = 56;
  for (const int64_t width : {2, 4, 8})
    for (int64_t at = 0; at + width <= kBytes; ++at) {
      const Memory m = memory_of(space(), std::vector<uint8_t>(kBytes, 0x5a));
      set_bytes(m.data() + at, space(), std::byte{0xff}, width);
      EXPECT_EQ(count_all_ones(space(), m.data(), kBytes, width), at % width == 0) << width << " bytes at " << at;
    }
}

// Inputs may differ by the last bit of a logarithm between host and device, not by more.
TEST_P(Answers, InputsAreThoseOfTheHost) {
  const Values values{
      .seed = 3, .deviation = 2, .mean = 1, .columns = 10, .rows = {Values::Row{4, 0, 300}}, .spikes = {Values::Spike{7, -60}}};
  for (const Element e : {Element::f32, Element::bf16}) {
    const Memory here(Space::host, 1003 * bytes_of_element(e)), other(space(), 1003 * bytes_of_element(e));
    fill(here, e, values);
    fill(other, e, values);
    Memory back(Space::host, other.bytes());
    copy(back, other);
    for (int64_t i = 0; i < 1003; ++i) ASSERT_NEAR(view(back, e)[i], view(here, e)[i], 1e-2 * std::abs(view(here, e)[i]) + 1e-9) << i;
    EXPECT_EQ(view(back, e)[45], 300);
    EXPECT_EQ(view(back, e)[7], -60);
  }
}

#ifdef GATE_ON_DEVICE
INSTANTIATE_TEST_SUITE_P(OnTheDevice, Answers, ::testing::Values(Space::device));
#else
INSTANTIATE_TEST_SUITE_P(OnTheHost, Answers, ::testing::Values(Space::host));
#endif

TEST(Inputs, AreNormalAndOtherForEachSeed) {
  const Memory a(Space::host, 100'000 * 4), b(Space::host, 100'000 * 4);
  fill(a, Element::f32, Values{.seed = 1});
  fill(b, Element::f32, Values{.seed = 2});
  double sum = 0, squares = 0, dot = 0;
  for (int64_t i = 0; i < 100'000; ++i) {
    const double x = view(a, Element::f32)[i], y = view(b, Element::f32)[i];
    sum += x, squares += x * x, dot += x * y;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
  EXPECT_NEAR(dot / 1e5, 0, 0.02);
}

TEST(Inputs, TokensAreWhatTheirKindSays) {
  constexpr int64_t V = 50257;
  const auto different = tokens_of(TokenKind::different, 16'399, V, 1);
  EXPECT_EQ(std::set<int32_t>(different.begin(), different.end()).size(), different.size());
  EXPECT_THROW(tokens_of(TokenKind::different, 10, 9, 1), std::logic_error);
  for (const int32_t t : tokens_of(TokenKind::one, 100, V, 1)) EXPECT_EQ(t, V - 1);
  const auto skewed = tokens_of(TokenKind::skewed, 16'399, V, 1);
  EXPECT_EQ(skewed.back(), V - 1);
  EXPECT_EQ(skewed.front(), 0);
  EXPECT_GT(std::count(skewed.begin(), skewed.end(), 0), 1000) << "one token makes up much of the text";
  EXPECT_GT(std::set<int32_t>(skewed.begin(), skewed.end()).size(), 3000u);
  for (const auto kind : {TokenKind::skewed, TokenKind::repeated, TokenKind::different})
    for (const int32_t t : tokens_of(kind, 5000, V, 7)) ASSERT_TRUE(t >= 0 && t < V);
}

TEST(Inputs, ScoresOfAHurtAttentionGoFrom200To200) {
  constexpr int64_t T = 33, HS = 64, C = 5 * HS;
  for (const Element e : {Element::f32, Element::bf16}) {
    const Memory m(Space::host, T * 3 * C * bytes_of_element(e));
    fill(m, e, Qkv{1, T, C, HS, true});
    const auto score = [&](int64_t head, int64_t t, int64_t past) {
      double s = 0;
      for (int64_t i = 0; i < HS; ++i) s += view(m, e)[t * 3 * C + head * HS + i] * view(m, e)[past * 3 * C + C + head * HS + i];
      return s / 8;
    };
    // Queries vary by a quarter, their mean over 64 channels by a thirty-second.
    EXPECT_NEAR(score(0, T - 1, 3), 150, 15);
    EXPECT_NEAR(score(1, T - 1, 0), -200, 20);
    EXPECT_NEAR(score(1, T - 1, T - 1), 200, 20);
    EXPECT_NEAR(score(2, T - 1, 0), 200, 20);
    EXPECT_EQ(score(2, T - 1, 23), score(2, T - 1, 0)) << "the first keys share";
    EXPECT_LT(score(2, T - 1, 24), score(2, T - 1, 23) - 100);
    EXPECT_NEAR(score(2, T - 1, T - 1), -200, 20);
    EXPECT_EQ(score(3, T - 1, 5), 0);
  }
}

}  // namespace
}  // namespace gate
