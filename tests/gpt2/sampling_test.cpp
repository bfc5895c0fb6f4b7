#include "gpt2/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/gpt2/toy_trainer.h"

namespace gpt2 {
namespace {
using ::testing::Each;
using ::testing::ElementsAre;

TEST(Sampling, GreedyTakesTheMostLikelyAndTheLowestOfEquals) {
  CounterRng rng(1);
  const std::vector<float> logits{0, 3, -1, 3};
  EXPECT_EQ(sample_token(logits, {0.0f, 0}, rng), 1);
}

TEST(Sampling, FrequenciesFollowTheSoftmaxOfTheKMostLikely) {
  const std::vector<float> logits{1, -2, 0.5f, 2, 0};
  CounterRng rng(42);
  std::vector<double> count(5, 0);
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) count[static_cast<size_t>(sample_token(logits, {0.5f, 3}, rng))] += 1;
  // temperature 0.5 doubles the logits; the three most likely are 3, 0, 2
  const double sum = std::exp(4.0) + std::exp(2.0) + std::exp(1.0);
  EXPECT_NEAR(count[3] / kDraws, std::exp(4.0) / sum, 0.005);
  EXPECT_NEAR(count[0] / kDraws, std::exp(2.0) / sum, 0.005);
  EXPECT_NEAR(count[2] / kDraws, std::exp(1.0) / sum, 0.005);
  EXPECT_EQ(count[1] + count[4], 0);
}

TEST(Sampling, WithoutALimitEveryTokenIsDrawn) {
  const std::vector<float> logits{0, 1, 2};
  for (const int top_k : {0, 3, 99}) {
    CounterRng rng(7);
    std::vector<double> count(3, 0);
    constexpr int kDraws = 100000;
    for (int i = 0; i < kDraws; ++i) count[static_cast<size_t>(sample_token(logits, {1.0f, top_k}, rng))] += 1;
    const double sum = 1 + std::exp(1.0) + std::exp(2.0);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(count[i] / kDraws, std::exp(logits[i]) / sum, 0.01) << top_k;
  }
}

TEST(Sampling, HugeLogitsDoNotOverflowAndNonFiniteOnesAreRefused) {
  CounterRng rng(1);
  EXPECT_EQ(sample_token(std::vector<float>{-3e38f, 3e38f}, {1.0f, 0}, rng), 1);
  EXPECT_THROW(sample_token(std::vector<float>{0, std::numeric_limits<float>::quiet_NaN()}, {1.0f, 0}, rng), std::runtime_error);
}

// exp(a low temperature's logits) is 0 or infinite wherever the maximum is not subtracted first: then the least likely is drawn.
TEST(Sampling, AShiftOfAllLogitsChangesNoDrawAtAnyTemperature) {
  const std::vector<float> logits{0, 0.25f, -1, 0.125f};
  const auto draws = [&](float shift, float temperature) {
    std::vector<float> shifted = logits;
    for (float& x : shifted) x += shift;
    CounterRng rng(3);
    std::vector<int32_t> out;
    for (int i = 0; i < 50; ++i) out.push_back(sample_token(shifted, {temperature, 0}, rng));
    return out;
  };
  for (const float temperature : {1.0f, 0.1f, 0.01f})
    for (const float shift : {-1000.0f, -100.0f, 16.0f, 1000.0f})
      EXPECT_EQ(draws(shift, temperature), draws(0, temperature)) << temperature << ' ' << shift;
  EXPECT_THAT(draws(-100, 0.01f), Each(1));
}

TEST(Sampling, GenerationReadsTheRowOfTheLastTokenAndSlidesItsContext) {
  testing::ToyTrainer trainer(testing::toy_options(2, 8));
  CounterRng rng(1);
  const int32_t first = 45;
  EXPECT_THAT(generate(trainer, {&first, 1}, 10, {0.0f, 0}, rng), ElementsAre(45, 46, 47, 48, 49, 0, 1, 2, 3, 4, 5));
  const std::atomic<bool> stop{true};
  EXPECT_THAT(generate(trainer, {&first, 1}, 10, {0.0f, 0, &stop}, rng), ElementsAre(45));
}

}  // namespace
}  // namespace gpt2
