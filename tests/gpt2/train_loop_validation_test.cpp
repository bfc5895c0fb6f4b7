// What a run is judged by while it trains: batches that it did not train on, and questions with answers.
#include <algorithm>

#include "gpt2/data/eval_set.h"
#include "gpt2/data/token_shards.h"
#include "gpt2/train_loop.h"
#include "tests/gpt2/files.h"
#include "tests/gpt2/loop_options.h"
#include "tests/gpt2/toy_trainer.h"

namespace gpt2 {
namespace {
using ::testing::ElementsAre;
using testing::loop_options;
using testing::TemporaryFolder;
using testing::toy_options;
using testing::ToyTrainer;

TEST(TrainLoop, ValidationOnSyntheticTokensSeesNoBatchThatTrainingSaw) {
  ToyTrainer trainer(toy_options());
  LoopOptions o = loop_options(4);
  o.val_every = 4;
  o.val_batches = 3;
  train(trainer, o, {});
  ASSERT_EQ(trainer.evaluated.size(), 3u);
  ASSERT_EQ(trainer.seen.size(), 4 * 16u);
  for (size_t at = 0; at < trainer.seen.size(); at += 16) {
    const std::vector<int32_t> batch(trainer.seen.begin() + static_cast<ptrdiff_t>(at),
                                     trainer.seen.begin() + static_cast<ptrdiff_t>(at + 16));
    for (const auto& validated : trainer.evaluated) EXPECT_NE(validated, batch);
  }
}

// Else a run with --shuffle and one without are judged by other batches of the same files.
TEST(TrainLoop, ValidationReadsItsFilesInOrderHoweverTrainingIsShuffled) {
  TemporaryFolder folder;
  std::vector<uint16_t> tokens(8 * 16 + 1);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i % 50);
  write_token_shard(folder / "val.bin", tokens);
  ToyTrainer trainer(toy_options());
  LoopOptions o = loop_options(1);
  o.shuffle = true;
  o.val_every = o.val_batches = 1;
  o.val_data = {(folder / "val.bin").string()};
  train(trainer, o, {});
  ASSERT_EQ(trainer.evaluated.size(), 1u);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.begin() + 16, trainer.evaluated[0].begin()));
}

// The toy is sure that each token is followed by the next number: one wrong token has a smaller sum of losses than two wrong ones beside
// a right one, and a larger mean.
TEST(TrainLoop, AccuracyGoesByTheMeanLossOfACompletion) {
  TemporaryFolder folder;
  EvalExample e;
  e.label = 1;
  e.context = {10};
  e.completions = {{30}, {11, 30, 20}};
  write_eval_set(folder / "set.bin", std::vector{e});
  ToyTrainer trainer(toy_options());
  LoopOptions o = loop_options(1);
  o.eval_set = (folder / "set.bin").string();
  EXPECT_THAT(train(trainer, o, {}).accuracies, ElementsAre(1.0));
}

}  // namespace
}  // namespace gpt2
