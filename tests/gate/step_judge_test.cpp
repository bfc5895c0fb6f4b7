// Limits that no calibration gave but a derivation: they must be what sums in fp32 really lose.
#include "experiments/gate/step_judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "experiments/gate/budgets.h"
#include "experiments/gate/known_model.h"
#include "experiments/gate/metrics.h"
#include "experiments/gate/oracle.h"
#include "experiments/gate/workload.h"

namespace gate {
namespace {

// The root mean square over `sums` sums of `terms` terms, relative to that of the sums.
double lost_by_sums(int64_t terms, int64_t sums) {
  std::mt19937 engine(7);
  double lost = 0;
  for (int64_t s = 0; s < sums; ++s) {
    float sum = 0;
    double want = 0;
    for (int64_t i = 0; i < terms; ++i) {
      const float term = static_cast<float>(static_cast<int32_t>(engine())) * 0x1p-31f;  // between -1 and 1: a variance of 1/3
      sum += term;
      want += static_cast<double>(term);
    }
    lost += (static_cast<double>(sum) - want) * (static_cast<double>(sum) - want);
  }
  return std::sqrt(lost / static_cast<double>(sums) / (static_cast<double>(terms) / 3));
}

TEST(LostBySum, IsWhatSumsInFp32Lose) {
  constexpr int64_t kTerms = 8'000'000;
  for (const int64_t terms : {64, 768, 50257}) EXPECT_NEAR(lost_by_sums(terms, kTerms / terms) / lost_by_sum(terms), 1, 0.2) << terms;
}

// A step of a model with so large a vocabulary whose gradients are all off by `error`, and the verdict of those of wpe.
bool gradients_pass(int64_t vocab_size, double error) {
  StepTaken s;
  s.c.config = {
      .max_seq_len = 4, .vocab_size = vocab_size, .padded_vocab = (vocab_size + 127) / 128 * 128, .layers = 1, .heads = 1, .channels = 4};
  s.c.batch_size = 1;
  s.c.seq_len = 4;
  s.tokens = {{{1, 2, 3, 4}, {2, 3, 4, 5}}};
  Expected e;
  const std::vector<KnownTensor> tensors = known_tensors(s.c.config);
  e.gradients.assign(static_cast<size_t>(tensors.back().offset + tensors.back().size()), 1);
  e.gradients_noise.resize(tensors.size());
  for (size_t i = 0; i < e.gradients.size(); ++i) s.gradients.push_back(static_cast<float>(1 + (i % 2 == 0 ? error : -error)));
  StepNames names;
  names.gradients = "gradients";
  const std::vector<CheckResult> results = judge_against_oracle(s, names, e, budgets_of("fp32", "fp32"));
  return std::ranges::find(results, std::string("wpe"), &CheckResult::tensor)->passed;
}

// An H100 had 2.09e-6 for wpe of d12 (seed 2706370, 2026-11-27), where the library adds over the vocabulary in one go.
TEST(LostBySum, IsAllowedToGradientsBehindALargeVocabularyAndNotMore) {
  EXPECT_TRUE(gradients_pass(50257, 2.1e-6));
  EXPECT_FALSE(gradients_pass(50257, 5e-6));
  EXPECT_FALSE(gradients_pass(509, 2.6e-6));
}

// One softmax over saturated scores carries all of a gradient, so that bf16 leaves noise. The worst three of 4,000 seeds.
TEST(SharpAttention, LeavesRoomForTheNoiseOfBf16WithHeadsOf64) {
  const ModelBudgets budgets = budgets_of("mixed", "bf16");
  const std::vector<Case> cases = small_cases();
  Case c = *std::ranges::find(cases, Stress::sharp_attention, &Case::stress);
  c.config.heads = 1;
  const double allowed = gradient_floor(c.config, c.batch_size * c.seq_len, budgets.gradients) * budgets.sharp_attention_gradient_factor;
  double worst = 0;
  for (const uint64_t seed : {2440, 2929, 1167}) {
    std::vector<float> weights = trained_like_parameters(c, seed);
    for (float& w : weights) w = nearest_bf16(w);
    const Tokens tokens = random_tokens(c, seed, 0);
    const gpt2::Batch batch = tokens.batch();
    Oracle oracle(c.config, c.batch_size, c.seq_len);
    oracle.set(gpt2::State::parameters, weights);
    oracle.forward_backward({&batch, 1});
    const std::vector<double> want(oracle.gradients().begin(), oracle.gradients().end());
    oracle.set_rounding(storage_of("mixed", "bf16", {}), 3);
    oracle.forward_backward({&batch, 1});
    for (const KnownTensor& t : known_tensors(c.config)) {
      const auto offset = static_cast<size_t>(t.offset), size = static_cast<size_t>(t.size());
      worst = std::max(worst, compare<double, double>(oracle.gradients().subspan(offset, size), std::span(want).subspan(offset, size),
                                                      t.layers * t.rows, t.columns)
                                  .norm);
    }
  }
  EXPECT_GT(worst, 10) << "other inputs: look for the worst of many seeds again";
  EXPECT_LT(worst, allowed / 2);
  EXPECT_LT(allowed, 50) << "a gradient of another size must not pass";
}

// In a wide model, or of many tokens, other sums are the longest.
TEST(GradientFloor, FollowsTheLongestSum) {
  const gpt2::ModelConfig gate = gate_model();
  constexpr double kBudget = 2e-6;
  EXPECT_EQ(gradient_floor(gate, 1280, kBudget), kBudget);
  EXPECT_EQ(gradient_floor(gate, 50257, kBudget), lost_by_sum(50257));
  gpt2::ModelConfig other = gate;
  other.vocab_size = 50257;
  EXPECT_EQ(gradient_floor(other, 64, kBudget), lost_by_sum(50257));
  EXPECT_EQ(gradient_floor(other, 65536, kBudget), lost_by_sum(65536));
  other.vocab_size = 509;
  other.channels = 12288;
  EXPECT_EQ(gradient_floor(other, 64, kBudget), lost_by_sum(49152));
  EXPECT_EQ(gradient_floor(other, 64, 2e-2), 2e-2);  // bf16 loses far more than sums
}

}  // namespace
}  // namespace gate
