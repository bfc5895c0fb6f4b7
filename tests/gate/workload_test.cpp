// The gate's inputs must be such that bugs show in them.
#include "experiments/gate/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "experiments/gate/model_gate.h"
#include "experiments/gate/oracle.h"

namespace gate {
namespace {

const Case& find_case(const std::vector<Case>& cases, Stress stress) {
  return *std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return c.stress == stress; });
}

TEST(Workload, NoParameterIsZeroOrOneButPadding) {
  for (const Case& c : small_cases()) {
    const Stress zeros_on_purpose[] = {Stress::low_logits, Stress::one_high_logit, Stress::equal_logits, Stress::flat_attention,
                                       Stress::offset_gradient};
    if (std::ranges::find(zeros_on_purpose, c.stress) != std::end(zeros_on_purpose)) continue;
    const auto p = trained_like_parameters(c, 5);
    const auto layout = gpt2::tensor_layout(c.config);
    const int64_t begin = c.config.vocab_size * c.config.channels, end = c.config.padded_vocab * c.config.channels;
    for (int64_t i = 0; i < layout.total; ++i) {
      const float x = p[static_cast<size_t>(i)];
      if (i >= begin && i < end) {
        ASSERT_EQ(x, 0) << c.name;
      } else {
        ASSERT_NE(x, 0) << c.name << " element " << i;
        ASSERT_NE(x, 1) << c.name << " element " << i;
      }
    }
  }
}

// Who reads `gate --list-checks` chooses by the sentence: 26 models and 8 parts of a step had the same one.
TEST(ModelChecks, EachHasASentenceOfItsOwn) {
  std::set<std::string> sentences;
  for (const ModelCheck& c : model_checks()) {
    EXPECT_NE(c.what, "") << c.name;
    EXPECT_TRUE(sentences.insert(c.what).second) << c.name << ": " << c.what;
  }
}

// Drawn weights are kept for whoever asks next: only for the same model, stress and seed.
TEST(Workload, WeightsThatWereKeptAreThoseOfTheCaseThatAsks) {
  const Case c = small_cases().front();
  Case stressed = c, deeper = c;
  stressed.stress = Stress::gelu_tail;
  deeper.config.layers += 1;
  const std::vector<float> own = trained_like_parameters(c, 11);
  EXPECT_NE(trained_like_parameters(stressed, 11), own);
  EXPECT_GT(trained_like_parameters(deeper, 11).size(), own.size());
  EXPECT_NE(trained_like_parameters(c, 12), own);
  // These follow from the logits of a batch.
  Case loud = c, longer = c;
  loud.stress = longer.stress = Stress::large_logits;
  longer.seq_len = c.seq_len / 2;
  EXPECT_NE(trained_like_parameters(loud, 11), trained_like_parameters(longer, 11));
  for (uint64_t seed = 100; seed < 200; ++seed) trained_like_parameters(c, seed);  // more than are kept
  EXPECT_EQ(trained_like_parameters(c, 11), own);
}

TEST(Workload, SeedsGiveDifferentInputsAndTheSameSeedTheSame) {
  const Case c = small_cases().front();
  EXPECT_EQ(trained_like_parameters(c, 5), trained_like_parameters(c, 5));
  EXPECT_NE(trained_like_parameters(c, 5), trained_like_parameters(c, 6));
  EXPECT_EQ(random_tokens(c, 5, 0).inputs, random_tokens(c, 5, 0).inputs);
  EXPECT_NE(random_tokens(c, 5, 0).inputs, random_tokens(c, 6, 0).inputs);
  EXPECT_NE(random_tokens(c, 5, 0).inputs, random_tokens(c, 5, 1).inputs);
}

TEST(Workload, TokensLieInTheVocabularyAndTheStressesAreWhatTheySay) {
  const auto cases = small_cases();
  for (const Case& c : cases) {
    const Tokens t = random_tokens(c, 5, 0);
    ASSERT_EQ(static_cast<int64_t>(t.inputs.size()), c.batch_size * c.seq_len);
    for (const auto& list : {t.inputs, t.targets})
      for (int32_t x : list) ASSERT_TRUE(x >= 0 && x < c.config.vocab_size);
  }
  const Case& repeated = find_case(cases, Stress::repeated_tokens);
  const Tokens r = random_tokens(repeated, 5, 0);
  EXPECT_LE(std::set(r.inputs.begin(), r.inputs.end()).size(), 2u);
  const Case& edges = find_case(cases, Stress::edge_targets);
  const Tokens e = random_tokens(edges, 5, 0);
  EXPECT_EQ(std::set(e.targets.begin(), e.targets.end()), (std::set<int32_t>{0, static_cast<int32_t>(edges.config.vocab_size - 1)}));
}

TEST(Workload, LargeLogitsReachAHundredWhereExpOverflows) {
  const auto cases = small_cases();
  const Case& c = find_case(cases, Stress::large_logits);
  Oracle oracle(c.config, c.batch_size, c.seq_len);
  oracle.set(gpt2::State::parameters, trained_like_parameters(c, 5));
  const Tokens t = random_tokens(c, 5, 0);
  const gpt2::Batch batch = t.batch();
  EXPECT_TRUE(std::isfinite(oracle.forward_backward({&batch, 1})));
  double largest = 0;
  for (double x : oracle.logits()) largest = std::max(largest, std::abs(x));
  EXPECT_NEAR(largest, 100, 0.01);
}

std::vector<double> logits_of(Stress stress) {
  const auto cases = small_cases();
  const Case& c = find_case(cases, stress);
  Oracle oracle(c.config, c.batch_size, c.seq_len);
  oracle.set(gpt2::State::parameters, trained_like_parameters(c, 5));
  const Tokens t = random_tokens(c, 5, 0);
  const gpt2::Batch batch = t.batch();
  oracle.forward({&batch, 1});
  return {oracle.logits().begin(), oracle.logits().end()};
}

TEST(Workload, LogitsAreAsLowAsHighAndAsEqualAsTheirCasesSay) {
  for (const double x : logits_of(Stress::low_logits)) ASSERT_LT(x, -100);
  const std::vector<double> high = logits_of(Stress::one_high_logit);
  for (size_t i = 0; i < high.size(); ++i) {
    if (i % 509 == 7)
      ASSERT_NEAR(high[i], 80, 1e-9);
    else
      ASSERT_LT(std::abs(high[i]), 40);
  }
  for (const double x : logits_of(Stress::equal_logits)) ASSERT_EQ(x, 0);
}

TEST(Workload, DistinctTokensAreDistinctAndReachBothEdges) {
  const auto cases = small_cases();
  const Case& c = find_case(cases, Stress::distinct_tokens);
  const Tokens t = random_tokens(c, 5, 0);
  for (const auto& list : {t.inputs, t.targets}) {
    const std::set<int32_t> ids(list.begin(), list.end());
    EXPECT_EQ(ids.size(), list.size());
    EXPECT_EQ(*ids.begin(), 0);
    EXPECT_EQ(*ids.rbegin(), c.config.vocab_size - 1);
  }
}

}  // namespace
}  // namespace gate
