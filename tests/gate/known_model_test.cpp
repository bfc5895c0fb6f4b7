#include "experiments/gate/known_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gpt2/tensor_table.h"
#include "gpt2/train_loop.h"

namespace gate {
namespace {

TEST(KnownModel, HasTheTensorsOfGpt2) {
  const gpt2::ModelConfig d12 = gpt2::model_from_name("d12");
  EXPECT_EQ(known_parameter_count(d12), 124475904);  // of the paper's 124M, with the padded vocabulary
  int64_t decayed = 0;
  for (const KnownTensor& t : known_tensors(d12)) decayed += t.decayed ? t.size() : 0;
  // Two embeddings and, per layer, 12 C^2.
  EXPECT_EQ(decayed, (50304 + 1024) * 768 + 12 * 12 * 768 * 768);
}

TEST(KnownModel, AgreesWithTheTableThatTrainersWalk) {
  for (const std::string& name : {std::string("d12"), std::string("tiny"), std::string("d48")}) {
    const gpt2::ModelConfig c = gpt2::model_from_name(name);
    const gpt2::TensorLayout layout = gpt2::tensor_layout(c);
    const std::vector<KnownTensor> known = known_tensors(c);
    ASSERT_EQ(known.size(), static_cast<size_t>(gpt2::kTensorCount));
    for (size_t i = 0; i < known.size(); ++i) {
      const gpt2::TensorRow& row = gpt2::kTensorTable[i];
      EXPECT_EQ(known[i].name, row.name);
      EXPECT_EQ(known[i].decayed, row.decayed) << row.name;
      EXPECT_EQ(known[i].offset, layout[row.id].offset) << row.name;
      EXPECT_EQ(known[i].size(), layout[row.id].size) << row.name;
    }
    EXPECT_EQ(known_parameter_count(c), layout.total);
  }
}

TEST(KnownModel, SchedulesAreThoseOfTheLoop) {
  for (const std::string name : {"cosine", "linear", "constant", "wsd"})
    for (const int64_t warmup : {0, 1, 7})
      for (const int64_t total : {20, 21, 100}) {
        const gpt2::LearningRate rate{name, 3e-4f, warmup, 0.1f, total};
        for (int64_t step = 1; step <= total; ++step)
          EXPECT_NEAR(static_cast<double>(rate.at(step - 1)),
                      known_learning_rate({name, static_cast<double>(3e-4f), static_cast<double>(0.1f), warmup, total}, step), 1e-10)
              << name << " warmup " << warmup << " step " << step << " of " << total;
      }
}

TEST(KnownModel, ScheduleValuesByHand) {
  EXPECT_DOUBLE_EQ(known_learning_rate({"cosine", 1, 0, 2, 10}, 1), 0.5);
  EXPECT_DOUBLE_EQ(known_learning_rate({"cosine", 1, 0, 2, 10}, 3), 1);
  EXPECT_NEAR(known_learning_rate({"cosine", 1, 0.2, 2, 10}, 7), 0.6, 1e-15);  // half way
  EXPECT_DOUBLE_EQ(known_learning_rate({"linear", 1, 0, 0, 4}, 4), 0.25);
  EXPECT_DOUBLE_EQ(known_learning_rate({"wsd", 1, 0, 0, 10}, 9), 1);
  EXPECT_DOUBLE_EQ(known_learning_rate({"wsd", 1, 0, 0, 10}, 10), 0.5);
}

TEST(KnownModel, TheLossOfLogitsFarBelowZeroIsFinite) {
  const std::vector<float> logits{-200, -200, -200, -200};
  const std::vector<int32_t> target{2};
  EXPECT_NEAR(token_losses(std::span<const float>(logits), target, 4)[0], std::log(4.0), 1e-12);
}

}  // namespace
}  // namespace gate
