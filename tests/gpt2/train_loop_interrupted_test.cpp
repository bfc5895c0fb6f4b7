// A run whose ranks leave the loop together because a user asked for the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/read_file.h"
#include "gpt2/data/eval_set.h"
#include "gpt2/distributed/communicator.h"
#include "gpt2/train_loop.h"
#include "gpt2/training_state.h"
#include "tests/gpt2/files.h"
#include "tests/gpt2/loop_options.h"
#include "tests/gpt2/toy_trainer.h"

namespace gpt2 {
namespace {

using ::testing::ElementsAre;

// One rank, told to leave after step 3. It hears of it before the step behind `heard_behind`.
class LeavesAfterThree final : public distributed::ControlChannel {
 public:
  explicit LeavesAfterThree(int64_t heard_behind = 0) : heard_behind_(heard_behind) {}
  const distributed::World& world() const override { return world_; }
  std::vector<distributed::Bytes> all_gather(const distributed::Bytes& mine) override { return {mine}; }
  std::optional<int64_t> last_step(int64_t enqueued) override {
    return enqueued < heard_behind_ ? std::nullopt : std::optional<int64_t>(3);
  }
  void now(distributed::Phase phase, int64_t) override { phase_ = phase; }
  distributed::Phase phase() const { return phase_; }

 private:
  distributed::World world_;
  int64_t heard_behind_;
  distributed::Phase phase_ = distributed::Phase::start;
};

TEST(TrainLoop, AnInterruptedRunIsSavedAtItsLastStep) {
  testing::TemporaryFolder folder;
  testing::ToyTrainer trainer(testing::toy_options());
  LeavesAfterThree channel;
  LoopOptions o = testing::loop_options(10);
  o.checkpoint_dir = (folder / "c").string();
  o.channel = &channel;
  o.val_batches = 0;  // asked of nobody without --val-every
  o.run_json = (folder / "run.json").string();
  const RunResult r = train(trainer, o, {});
  EXPECT_TRUE(r.interrupted);
  EXPECT_THAT(stepscope::read_file(o.run_json), ::testing::HasSubstr("\"stopped\": \"interrupted after step 3\""));
  EXPECT_EQ(r.steps.size(), 3u);
  EXPECT_THAT(CheckpointStore(o.checkpoint_dir, 1).steps(), ElementsAre(3));
  EXPECT_EQ(channel.phase(), distributed::Phase::end) << "what is written behind the last step is no step that stalls";
}

// As ranks that exchange nothing may be: nothing keeps them together.
TEST(TrainLoop, ARankThatIsFurtherThanTheStepToLeaveAfterLeavesAtOnce) {
  testing::ToyTrainer trainer(testing::toy_options());
  LeavesAfterThree channel(5);
  LoopOptions o = testing::loop_options(10);
  o.channel = &channel;
  o.val_batches = 0;
  const RunResult r = train(trainer, o, {});
  EXPECT_TRUE(r.interrupted);
  EXPECT_EQ(r.steps.size(), 6u);
}

// A disk that is full under the log ended the run without a checkpoint: what it had done since the last one was lost.
TEST(TrainLoop, ARunWhoseStepsNobodyTakesIsSavedWithThoseThatAreQueued) {
  testing::TemporaryFolder folder;
  testing::ToyTrainer trainer(testing::toy_options());
  LoopOptions o = testing::loop_options(10);
  o.checkpoint_dir = (folder / "c").string();
  o.run_json = (folder / "run.json").string();
  const auto full = [](const StepLog& s) {
    if (s.outcome.step == 3) throw stepscope::InputError("the disk is full");
  };
  EXPECT_THAT([&] { train(trainer, o, full); }, ::testing::ThrowsMessage<stepscope::InputError>("the disk is full"));
  EXPECT_THAT(stepscope::read_file(o.run_json), ::testing::HasSubstr("\"stopped\": \"ended after step 4: the disk is full\""));
  EXPECT_THAT(CheckpointStore(o.checkpoint_dir, 1).steps(), ElementsAre(4));
  // It goes on as one that was never stopped.
  o.resume = true;
  testing::ToyTrainer resumed(testing::toy_options()), whole(testing::toy_options());
  train(resumed, o, {});
  train(whole, testing::loop_options(10), {});
  std::vector<int32_t> seen = trainer.seen;
  seen.insert(seen.end(), resumed.seen.begin(), resumed.seen.end());
  EXPECT_EQ(seen, whole.seen);
}

TEST(TrainLoop, ARunWhoseValidationNobodyTakesIsSaved) {
  testing::TemporaryFolder folder;
  testing::ToyTrainer trainer(testing::toy_options());
  LoopOptions o = testing::loop_options(10);
  o.checkpoint_dir = (folder / "c").string();
  o.val_every = 2;
  o.on_validation = [](int64_t, double) { throw stepscope::InputError("the disk is full"); };
  EXPECT_THROW(train(trainer, o, {}), stepscope::InputError);
  EXPECT_THAT(CheckpointStore(o.checkpoint_dir, 1).steps(), ElementsAre(2));
}

// Weights that are no numbers any more are no checkpoint to go on from.
TEST(TrainLoop, ARunWhoseStepsNobodyTakesIsNotSavedWhereItDiverged) {
  testing::TemporaryFolder folder;
  testing::ToyTrainer trainer(testing::toy_options());
  trainer.diverge_at = 4;
  LoopOptions o = testing::loop_options(10);
  o.checkpoint_dir = (folder / "c").string();
  EXPECT_THROW(train(trainer, o,
                     [](const StepLog& s) {
                       if (s.outcome.step == 3) throw stepscope::InputError("the disk is full");
                     }),
               stepscope::InputError);
  EXPECT_THAT(CheckpointStore(o.checkpoint_dir, 1).steps(), ElementsAre());
}

// A batch system that has sent SIGTERM kills half a minute later; an evaluation may take longer.
TEST(TrainLoop, AnEvaluationIsLeftOffWhereTheEndIsAskedFor) {
  testing::TemporaryFolder folder;
  write_eval_set(folder / "set.bin", std::vector(9, EvalExample{1, {10}, {{30}, {11, 30, 20}}}));
  for (const int64_t last : {10, 2}) {
    testing::ToyTrainer trainer(testing::toy_options());
    std::atomic<bool> stop = false;
    LoopOptions o = testing::loop_options(last);
    o.checkpoint_dir = (folder / ("c" + std::to_string(last))).string();
    o.run_json = (folder / ("run" + std::to_string(last) + ".json")).string();
    o.eval_set = (folder / "set.bin").string();
    o.eval_every = 2;
    o.stop = &stop;
    o.on_eval_progress = [&](int64_t, int64_t, int64_t) { stop = true; };
    o.on_eval = [](int64_t, const EvalOutcome&) { ADD_FAILURE() << "an accuracy of some of the examples"; };
    const RunResult r = train(trainer, o, {});
    EXPECT_TRUE(r.interrupted);
    EXPECT_EQ(r.steps.size(), 2u);
    EXPECT_THAT(r.accuracies, ElementsAre());
    EXPECT_EQ(trainer.evaluated.size(), 1u) << "batches";
    EXPECT_THAT(stepscope::read_file(o.run_json), ::testing::HasSubstr("\"stopped\": \"interrupted after step 2\""));
    EXPECT_THAT(CheckpointStore(o.checkpoint_dir, 1).steps(), ElementsAre(2));
  }
}

}  // namespace
}  // namespace gpt2
