// A run whose ranks leave the loop together because a user asked for the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/read_file.h"
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

}  // namespace
}  // namespace gpt2
