// What the trainer promises besides right gradients: repeatable bits however steps are queued, resuming,
// accumulation, refusals that change nothing, ranges around everything, and no allocation inside a step.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "base/errors.h"
#include "gpt2/cuda/check.h"
#include "gpt2/op_range.h"
#include "gpt2/work_model.h"
#include "tests/trainers/device_fixture.h"

namespace trainers {
namespace {

using gpt2::Batch;
using gpt2::State;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr gpt2::AdamW kAdamW{.learning_rate = 1e-3f, .weight_decay = 0.1f};

class AnyTrainer : public OnDevice {
 protected:
  const gpt2::TrainerOptions options_ = small(3, 65);

  void queue(gpt2::Trainer& trainer, int64_t step, const std::vector<reference_test::Tokens>& micro) const {
    std::vector<Batch> batches;
    for (const reference_test::Tokens& tokens : micro) batches.push_back(tokens.batch());
    trainer.enqueue_step({step, batches, kAdamW});
  }
  // Steps first … last, each waited for before the next is queued; their losses.
  std::vector<double> train(gpt2::Trainer& trainer, int64_t first, int64_t last) const {
    std::vector<double> losses;
    for (int64_t step = first; step <= last; ++step) {
      queue(trainer, step, {tokens_of(options_, static_cast<uint32_t>(step))});
      losses.push_back(trainer.finish_step().loss);
    }
    return losses;
  }
  static void expect_same_state(gpt2::Trainer& a, gpt2::Trainer& b) {
    for (const State which : {State::parameters, State::gradients, State::adam_m, State::adam_v})
      EXPECT_TRUE(same_bits(read_state(a, which), read_state(b, which))) << "state " << static_cast<int>(which);
  }
};

TEST_P(AnyTrainer, TwoRunsHaveTheSameBits) {
  for (const std::string& matmul : kind().rates) {
    gpt2::TrainerOptions o = options_;
    o.matmul = matmul;
    const auto a = lively_trainer(kind(), o);
    const auto b = lively_trainer(kind(), o);
    EXPECT_EQ(train(*a, 1, 4), train(*b, 1, 4)) << matmul;
    expect_same_state(*a, *b);
  }
}

// With two steps in flight the second reuses device tokens and statistics while the first may still run.
TEST_P(AnyTrainer, QueueingAheadChangesNoBit) {
  const auto waiting = lively_trainer(kind(), options_);
  const std::vector<double> losses = train(*waiting, 1, 7);
  const auto ahead = lively_trainer(kind(), options_);
  std::vector<double> found;
  for (int64_t step = 1; step <= 7; ++step) {
    queue(*ahead, step, {tokens_of(options_, static_cast<uint32_t>(step))});
    if (step > 1) found.push_back(ahead->finish_step().loss);
  }
  found.push_back(ahead->finish_step().loss);
  EXPECT_EQ(found, losses);
  expect_same_state(*ahead, *waiting);
}

TEST_P(AnyTrainer, OutcomesCarryTheirStepAndATimeThatPassed) {
  const auto trainer = lively_trainer(kind(), options_);
  for (int64_t step = 1; step <= 5; ++step) {
    queue(*trainer, step, {tokens_of(options_, 1)});
    if (step == 1) continue;
    const gpt2::StepOutcome outcome = trainer->finish_step();
    EXPECT_EQ(outcome.step, step - 1);
    EXPECT_GT(outcome.time_ns, 0);
    EXPECT_GT(outcome.grad_norm, 0);
  }
  EXPECT_EQ(trainer->finish_step().step, 5);
}

TEST_P(AnyTrainer, AResumedRunHasTheBitsOfOneThatNeverStopped) {
  const auto whole = lively_trainer(kind(), options_);
  const std::vector<double> losses = train(*whole, 1, 6);
  const auto first = lively_trainer(kind(), options_);
  train(*first, 1, 3);
  const auto second = kind().make(options_);
  for (const State which : {State::parameters, State::adam_m, State::adam_v}) second->write(which, read_state(*first, which));
  EXPECT_EQ(train(*second, 4, 6), std::vector<double>(losses.begin() + 3, losses.end()));
  expect_same_state(*second, *whole);
}

TEST_P(AnyTrainer, MicroBatchesAverageToTheGradientOfTheWholeBatch) {
  const gpt2::TrainerOptions whole = small(6, 65);
  const reference_test::Tokens all = tokens_of(whole, 5);
  std::vector<reference_test::Tokens> halves(2);
  const auto middle = static_cast<ptrdiff_t>(all.inputs.size() / 2);
  halves[0] = {{all.inputs.begin(), all.inputs.begin() + middle}, {all.targets.begin(), all.targets.begin() + middle}};
  halves[1] = {{all.inputs.begin() + middle, all.inputs.end()}, {all.targets.begin() + middle, all.targets.end()}};

  const auto expected = lively_trainer(kind(), whole);
  queue(*expected, 1, {all});
  const double loss = expected->finish_step().loss;
  for (const std::string zero_grad : {"overwrite", "memset"}) {
    gpt2::TrainerOptions half = options_;
    half.variants = {{"zero_grad", zero_grad}};
    half.micro_batches = 2;
    const auto found = lively_trainer(kind(), half);
    train(*found, 1, 1);  // gradients of an earlier step must not leak into the next
    found->write(State::parameters, reference_test::lively_parameters(half.model, 3));
    queue(*found, 2, halves);
    EXPECT_NEAR(found->finish_step().loss, loss, kind().loss_error * loss) << zero_grad;
    const std::vector<float> want = read_state(*expected, State::gradients);
    const std::vector<float> got = read_state(*found, State::gradients);
    EXPECT_LE(reference_test::relative_l2(std::span<const float>(got), std::span<const float>(want)), kind().reshaped_error) << zero_grad;
  }
}

TEST_P(AnyTrainer, EvaluateGivesTheLossAndLogitsOfForwardBackward) {
  const auto trainer = lively_trainer(kind(), options_);
  const reference_test::Tokens tokens = tokens_of(options_, 9);
  const size_t count = tokens.inputs.size() * static_cast<size_t>(options_.model.vocab_size);
  std::vector<float> evaluated(count);
  std::vector<float> trained(count);
  const double loss = trainer->evaluate(tokens.batch(), evaluated);
  // A trainer whose steps take the loss from logits that are not rounded yet evaluates by rounded ones.
  const double error = trainer->logits_rounded_after_loss() > 0 ? kind().loss_error / 20 : 1e-6;
  EXPECT_NEAR(trainer->forward_backward(tokens.batch(), trained), loss, error * loss);
  EXPECT_TRUE(same_bits(evaluated, trained));
}

TEST_P(AnyTrainer, EvaluateBetweenStepsChangesNoBitOfTheRun) {
  const auto plain = lively_trainer(kind(), options_);
  const std::vector<double> losses = train(*plain, 1, 4);
  const auto looking = lively_trainer(kind(), options_);
  std::vector<double> found;
  for (int64_t step = 1; step <= 4; ++step) {
    found.push_back(train(*looking, step, step)[0]);
    looking->evaluate(tokens_of(options_, 99).batch());
  }
  EXPECT_EQ(found, losses);
  expect_same_state(*looking, *plain);
}

TEST_P(AnyTrainer, PaddedVocabularyRowsStayZero) {
  const auto trainer = lively_trainer(kind(), options_);
  train(*trainer, 1, 5);
  const gpt2::TensorSpan wte = gpt2::tensor_layout(options_.model)[gpt2::Tensor::wte];
  const int64_t real = options_.model.vocab_size * options_.model.channels;
  for (const State which : {State::parameters, State::gradients, State::adam_m, State::adam_v}) {
    const std::vector<float> values = read_state(*trainer, which);
    const auto begin = values.begin() + wte.offset + real;
    const auto end = values.begin() + wte.offset + wte.size;
    EXPECT_TRUE(std::all_of(begin, end, [](float x) { return x == 0.0f; })) << "state " << static_cast<int>(which);
  }
}

TEST_P(AnyTrainer, AThirdUnfinishedStepIsRefused) {
  const auto trainer = lively_trainer(kind(), options_);
  queue(*trainer, 1, {tokens_of(options_, 1)});
  queue(*trainer, 2, {tokens_of(options_, 2)});
  EXPECT_THROW(queue(*trainer, 3, {tokens_of(options_, 3)}), std::logic_error);
  EXPECT_EQ(trainer->finish_step().step, 1);
  EXPECT_EQ(trainer->finish_step().step, 2);
  EXPECT_THROW(trainer->finish_step(), std::logic_error);
}

TEST_P(AnyTrainer, TokensOutsideTheVocabularyAreNamedAndChangeNothing) {
  gpt2::TrainerOptions two = options_;
  two.micro_batches = 2;
  const auto trainer = lively_trainer(kind(), two);
  const std::vector<float> before = read_state(*trainer, State::parameters);
  // 509 to 511 are padding: inside the table, outside the vocabulary.
  for (const int32_t bad : {-1, 509, 511, 1 << 30}) {
    reference_test::Tokens inputs = tokens_of(options_, 1);
    reference_test::Tokens targets = inputs;
    inputs.inputs[66] = bad;
    targets.targets[66] = bad;
    for (const reference_test::Tokens& tokens : {inputs, targets}) {
      try {
        queue(*trainer, 1, {tokens_of(options_, 2), tokens});
        ADD_FAILURE() << "token " << bad << " was taken";
      } catch (const stepscope::InputError& e) {
        EXPECT_THAT(e.what(), AllOf(HasSubstr(std::to_string(bad)), HasSubstr("sequence 1, position 1")));
      }
      EXPECT_THROW(trainer->evaluate(tokens.batch()), stepscope::InputError);
    }
  }
  EXPECT_TRUE(same_bits(read_state(*trainer, State::parameters), before));
  EXPECT_THROW(trainer->finish_step(), std::logic_error);
}

TEST_P(AnyTrainer, ABatchBeyondTheDeviceNamesTheLargestThatFits) {
  gpt2::TrainerOptions o = options_;
  o.model = gpt2::model_from_name("d12");
  o.seq_len = 1024;
  o.batch_size = 100000;
  try {
    kind().make(o);
    FAIL() << "a batch of 100000 sequences was taken";
  } catch (const stepscope::MachineError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("out of memory"), HasSubstr("free"), HasSubstr("--batch-size")));
  }
}

TEST_P(AnyTrainer, StepsAllocateNoDeviceMemory) {
  const auto trainer = lively_trainer(kind(), options_);
  const auto free_bytes = [] {
    size_t free = 0;
    size_t total = 0;
    STEPSCOPE_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  };
  train(*trainer, 1, 2);  // kernels are loaded and products planned at their first use
  // Free memory is that of the whole device. Steps that keep memory do so in every round, another process hardly in each of ten.
  int64_t first = 3;
  bool kept = true;
  for (int round = 0; round < 10 && kept; ++round, first += 10) {
    const size_t before = free_bytes();
    train(*trainer, first, first + 9);
    kept = free_bytes() < before;
  }
  EXPECT_FALSE(kept) << "each of ten rounds of ten steps left less free memory than before";
}

// ---- ranges
// -----------------------------------------------------------------------------------------------------------

using Leaf = std::tuple<gpt2::Pass, int, gpt2::Op>;

class Listener final : public gpt2::RangeListener {
 public:
  Listener() { gpt2::set_range_listener(this); }
  ~Listener() override { gpt2::set_range_listener(nullptr); }
  void begin_step(int64_t) override {}
  void end_step(int64_t) override {}
  void begin_op(gpt2::Pass pass, int layer, gpt2::Op op) override {
    EXPECT_EQ(open_++, 0) << gpt2::leaf_path(pass, layer, op) << " is opened inside another leaf";
    seen.insert({pass, layer, op});
  }
  void end_op(gpt2::Pass, int, gpt2::Op) override { --open_; }
  std::set<Leaf> seen;

 private:
  int open_ = 0;
};

// What the work model gives a floor to is what a step opens, besides its copies: a path spelled differently
// on either side would leave a kernel without a floor or a floor without a kernel.
TEST_P(AnyTrainer, ItsRangesAreThoseOfTheWorkModel) {
  for (const std::string zero_grad : {"overwrite", "memset"}) {
    gpt2::TrainerOptions o = options_;
    o.variants = {{"zero_grad", zero_grad}};
    const auto trainer = lively_trainer(kind(), o);
    std::set<Leaf> expected = {{gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy}};
    for (const gpt2::OpWork& work : trainer->work(1))
      if (zero_grad == "memset" || work.op != gpt2::Op::zero_grad) expected.insert({work.pass, work.layer, work.op});
    const Listener listener;
    train(*trainer, 1, 1);
    EXPECT_EQ(listener.seen.size(), expected.size());
    for (const Leaf& leaf : expected) EXPECT_TRUE(listener.seen.contains(leaf)) << std::apply(gpt2::leaf_path, leaf) << " is missing";
    for (const Leaf& leaf : listener.seen)
      EXPECT_TRUE(expected.contains(leaf)) << std::apply(gpt2::leaf_path, leaf) << " has no work in the model";
  }
}

STEPSCOPE_FOR_EVERY_TRAINER(AnyTrainer);

}  // namespace
}  // namespace trainers
