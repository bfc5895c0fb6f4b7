// The accuracy on an evaluation set, on a model made up here whose logits hang on everything before a position and on nothing behind it.
#include "gpt2/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/counter_rng.h"
#include "tests/gpt2/files.h"
#include "tests/gpt2/toy_trainer.h"

namespace gpt2 {
namespace {
using ::testing::ElementsAre;
using ::testing::Pair;

float logit_after(std::span<const int32_t> before, size_t word) {
  uint64_t hash = 17;
  for (const int32_t t : before) hash = (hash * 31 + static_cast<uint64_t>(t)) * 0x9e3779b97f4a7c15ull;
  hash = (hash ^ (hash >> 29) ^ (word * 0xbf58476d1ce4e5b9ull)) * 0x94d049bb133111ebull;
  return static_cast<float>(hash >> 40) / static_cast<float>(1 << 24) * 8 - 4;
}

class HashModel : public testing::ToyTrainer {
 public:
  using ToyTrainer::ToyTrainer;
  double evaluate(const Batch& batch, std::span<float> logits) override {
    const size_t T = static_cast<size_t>(options().seq_len), V = static_cast<size_t>(options().model.vocab_size);
    EXPECT_EQ(batch.inputs.size(), static_cast<size_t>(options().batch_size) * T);
    EXPECT_EQ(batch.targets.size(), batch.inputs.size());
    EXPECT_EQ(logits.size(), batch.inputs.size() * V);
    for (size_t i = 0; i < batch.inputs.size(); ++i)
      for (size_t w = 0; w < V; ++w) logits[i * V + w] = logit_after(batch.inputs.subspan(i / T * T, i % T + 1), w);
    if (poison >= 0) logits[static_cast<size_t>(poison)] = std::numeric_limits<float>::quiet_NaN();
    ++batches;
    return 0;
  }
  int64_t poison = -1;
  int batches = 0;
};

// By hand and otherwise than the code: no maximum is taken out, in long double, token by token.
std::vector<double> losses_of(const EvalExample& e, const std::vector<uint16_t>& completion) {
  std::vector<int32_t> before(e.context.begin(), e.context.end());
  std::vector<double> out;
  for (const uint16_t token : completion) {
    long double sum = 0;
    for (size_t w = 0; w < 50; ++w) sum += std::exp(static_cast<long double>(logit_after(before, w)));
    out.push_back(static_cast<double>(-std::log(std::exp(static_cast<long double>(logit_after(before, token))) / sum)));
    before.push_back(token);
  }
  return out;
}

// Rows of 2 to 8 positions; completions of different lengths, two to five of them.
std::vector<EvalExample> random_set(size_t count) {
  CounterRng rng(11);
  const auto below = [&](int n) { return static_cast<size_t>(rng.uniform() * n); };
  const auto tokens = [&](size_t n) {
    std::vector<uint16_t> out(n);
    for (auto& t : out) t = static_cast<uint16_t>(below(50));
    return out;
  };
  std::vector<EvalExample> set(count);
  for (EvalExample& e : set) {
    e.context = tokens(1 + below(4));
    e.completions.resize(2 + below(4));
    for (auto& c : e.completions) c = tokens(1 + below(5));
    e.label = static_cast<int64_t>(below(static_cast<int>(e.completions.size())));
  }
  return set;
}

TEST(Evaluation, LossesAndAccuracyAreThoseComputedByHand) {
  const std::vector<EvalExample> set = random_set(200);
  HashModel model(testing::toy_options(3, 8));
  const EvalOutcome outcome = evaluate_examples(model, set);
  ASSERT_EQ(outcome.items.size(), 200u);
  int64_t correct = 0, by_sum = 0, differ = 0;
  for (size_t i = 0; i < set.size(); ++i) {
    const EvalItem& item = outcome.items[i];
    EXPECT_EQ(item.index, static_cast<int64_t>(i));
    EXPECT_EQ(item.label, set[i].label);
    ASSERT_EQ(item.loss.size(), set[i].completions.size());
    size_t best = 0, best_sum = 0;
    std::vector<double> means, sums;
    for (size_t c = 0; c < set[i].completions.size(); ++c) {
      double sum = 0;
      for (const double loss : losses_of(set[i], set[i].completions[c])) sum += loss;
      sums.push_back(sum);
      means.push_back(sum / static_cast<double>(set[i].completions[c].size()));
      EXPECT_NEAR(item.sum[c], sum, 1e-12 * sum) << i << " " << c;
      EXPECT_NEAR(item.loss[c], means[c], 1e-12 * means[c]) << i << " " << c;
      if (means[c] < means[best]) best = c;
      if (sums[c] < sums[best_sum]) best_sum = c;
    }
    EXPECT_EQ(item.answer, static_cast<int64_t>(best)) << i;
    EXPECT_EQ(item.answer_by_sum, static_cast<int64_t>(best_sum)) << i;
    correct += static_cast<int64_t>(best) == set[i].label;
    by_sum += static_cast<int64_t>(best_sum) == set[i].label;
    differ += best != best_sum;
  }
  EXPECT_EQ(outcome.correct, correct);
  EXPECT_EQ(outcome.correct_by_sum, by_sum);
  EXPECT_GT(differ, 10) << "the set must tell the two ways of counting apart";
  EXPECT_GT(correct, 10);
}

TEST(Evaluation, BatchSizeAndLengthChangeNothing) {
  const std::vector<EvalExample> set = random_set(23);
  size_t rows = 0;
  for (const EvalExample& e : set) rows += e.completions.size();
  HashModel one(testing::toy_options(1, 8));
  const EvalOutcome expected = evaluate_examples(one, set);
  EXPECT_EQ(one.batches, static_cast<int>(rows));
  for (const int64_t B : {2, 3, 5, 7, 64, 1000}) {
    for (const int64_t T : {8, 13}) {
      HashModel model(testing::toy_options(B, T));
      const EvalOutcome outcome = evaluate_examples(model, set);
      EXPECT_EQ(model.batches, static_cast<int>((static_cast<int64_t>(rows) + B - 1) / B));
      EXPECT_EQ(outcome.correct, expected.correct);
      for (size_t i = 0; i < set.size(); ++i)
        EXPECT_EQ(outcome.items[i].loss, expected.items[i].loss) << "B " << B << " T " << T << " example " << i;
    }
  }
}

TEST(Evaluation, LabelsMadeByTheModelAreAllRightAndRotatedOnesAllWrong) {
  std::vector<EvalExample> set = random_set(31);
  HashModel model(testing::toy_options(4, 8));
  const EvalOutcome first = evaluate_examples(model, set);
  for (size_t i = 0; i < set.size(); ++i) set[i].label = first.items[i].answer;
  std::vector<std::pair<int64_t, int64_t>> seen;
  EXPECT_EQ(evaluate_examples(model, set, [&](int64_t done, int64_t correct) { seen.emplace_back(done, correct); }).correct, 31);
  ASSERT_FALSE(seen.empty());
  EXPECT_THAT(seen.back(), Pair(31, 31)) << "the last example is counted too";
  for (const auto& [done, correct] : seen) EXPECT_EQ(done, correct);
  for (EvalExample& e : set) e.label = (e.label + 1) % static_cast<int64_t>(e.completions.size());
  EXPECT_EQ(evaluate_examples(model, set).correct, 0);
}

TEST(Evaluation, ThePositionOfACompletionIsItsAnswerAndTheFirstOfEqualsWins) {
  std::vector<EvalExample> set{{0, {1, 2}, {{3, 4}, {3, 4}, {3, 4}}}};
  HashModel model(testing::toy_options(2, 8));
  EXPECT_EQ(evaluate_examples(model, set).items[0].answer, 0);
  set = random_set(1);
  const std::vector<double> before = evaluate_examples(model, set).items[0].loss;
  std::reverse(set[0].completions.begin(), set[0].completions.end());
  EXPECT_THAT(evaluate_examples(model, set).items[0].loss, ::testing::ElementsAreArray(before.rbegin(), before.rend()));
}

TEST(Evaluation, ARowMayFillAllPositionsAndNoMore) {
  // Nine tokens take eight positions: nothing follows the last.
  std::vector<EvalExample> set{{0, {1, 2, 3}, {{4}, {4, 5, 6, 7, 8, 9}}}};
  EXPECT_EQ(longest_row(set), 8);
  HashModel model(testing::toy_options(2, 8));
  const EvalOutcome outcome = evaluate_examples(model, set);
  double sum = 0;
  for (const double loss : losses_of(set[0], set[0].completions[1])) sum += loss;
  EXPECT_NEAR(outcome.items[0].sum[1], sum, 1e-12 * sum);
  set.push_back({0, {1, 2, 3, 4}, {{4}, {4, 5, 6, 7, 8, 9}}});
  EXPECT_INPUT_ERROR(check_rows_fit(set, 8, "set.bin"), "set.bin: example 1 takes 9 positions, expected at most 8");
  EXPECT_INPUT_ERROR(evaluate_examples(model, set), "example 1 takes 9 positions");
}

TEST(Evaluation, TokensOutsideTheVocabularyAreRefusedEvenWhereOnlyALossReadsThem) {
  HashModel model(testing::toy_options(2, 8));
  EXPECT_INPUT_ERROR(evaluate_examples(model, std::vector<EvalExample>{{0, {1}, {{2}, {50}}}}), "example 0 has token 50, expected 0 to 49");
  EXPECT_INPUT_ERROR(evaluate_examples(model, std::vector<EvalExample>{{0, {50}, {{2}, {3}}}}), "example 0 has token 50");
}

TEST(Evaluation, ALossThatIsNotFiniteIsNoAnswer) {
  HashModel model(testing::toy_options(2, 8));
  const std::vector<EvalExample> set{{0, {1}, {{2}, {3}}}};
  model.poison = 8 * 50 + 7;  // the first position of the second row
  try {
    evaluate_examples(model, set);
    ADD_FAILURE() << "an accuracy was made of NaN";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("example 0, completion 1: the loss is nan"));
  }
  model.poison = 50;  // behind what counts
  EXPECT_EQ(evaluate_examples(model, set).items.size(), 1u);
}

TEST(Evaluation, WilsonsInterval) {
  // The roots q of |k/n - q| = z sqrt(q (1 - q) / n), found by bisection outside this program.
  const auto near = [](double a, double b) { return Pair(::testing::DoubleNear(a, 1e-6), ::testing::DoubleNear(b, 1e-6)); };
  EXPECT_THAT(wilson_interval(1, 10), near(0.01787621, 0.40415002));
  EXPECT_THAT(wilson_interval(0, 4), near(0, 0.48989084));
  EXPECT_THAT(wilson_interval(4, 4), near(0.51010916, 1));
}

}  // namespace
}  // namespace gpt2
