// The reference behind the Trainer interface: steps, state, ranges, refusals.
#include "gpt2/reference/reference_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "base/errors.h"
#include "gpt2/op_range.h"
#include "gpt2/work_model.h"
#include "tests/reference/reference_support.h"

namespace reference_test {
namespace {

using gpt2::ModelConfig;
using gpt2::Op;
using gpt2::Pass;
using gpt2::State;

gpt2::TrainerOptions options(int64_t B = 2, int64_t T = 9) {
  gpt2::TrainerOptions o;
  o.model = odd_config();
  o.batch_size = B;
  o.seq_len = T;
  return o;
}

std::vector<float> read(gpt2::Trainer& trainer, State which) {
  std::vector<float> values(static_cast<size_t>(gpt2::tensor_layout(trainer.options().model).total));
  trainer.read(which, values);
  return values;
}

struct Recorder : gpt2::RangeListener {
  std::map<std::string, int> begun;
  int depth = 0, deepest = 0, steps = 0, outside_steps = 0;
  bool in_step = false;
  Recorder() { gpt2::set_range_listener(this); }
  ~Recorder() override { gpt2::set_range_listener(nullptr); }
  void begin_step(int64_t) override { in_step = true, ++steps; }
  void end_step(int64_t) override { in_step = false; }
  void begin_op(Pass pass, int layer, Op op) override {
    ++begun[gpt2::leaf_path(pass, layer, op)];
    deepest = std::max(deepest, ++depth);
    outside_steps += in_step ? 0 : 1;
  }
  void end_op(Pass, int, Op) override { --depth; }
};

TEST(ReferenceTrainer, CountsIdleTimeBetweenStepsButNotAfterSomethingElseWasDone) {
  auto trainer = gpt2::make_reference_trainer(options());
  trainer->write(State::parameters, lively_parameters(odd_config(), 1));
  const Tokens tokens = random_tokens(18, odd_config().vocab_size, 1);
  const std::vector<gpt2::Batch> batches{tokens.batch()};
  // No duration is a limit, so a busy machine changes nothing: a step without the pause takes no longer than its call by the same
  // clock, one with it takes at least the pause.
  struct Took {
    double step_ns, call_ns;
  };
  constexpr double kPause_ns = 20e6;
  int64_t n = 0;
  const auto step_after_pause = [&] {
    std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<int64_t>(kPause_ns)));
    const auto begin = std::chrono::steady_clock::now();
    trainer->enqueue_step({.step = ++n, .micro_batches = batches, .adamw = {}});
    const double step_ns = trainer->finish_step().time_ns;
    return Took{step_ns, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count()};
  };
  const Took first = step_after_pause(), second = step_after_pause();
  EXPECT_LE(first.step_ns, first.call_ns);
  EXPECT_GE(second.step_ns, kPause_ns);
  read(*trainer, State::parameters);
  const Took third = step_after_pause();
  EXPECT_LE(third.step_ns, third.call_ns);
}

TEST(ReferenceTrainer, RunsEveryOpOfTheWorkModelOncePerMicroStepInLeafRanges) {
  auto trainer = gpt2::make_reference_trainer(options());
  trainer->write(State::parameters, lively_parameters(odd_config(), 1));
  const Tokens tokens = random_tokens(18, odd_config().vocab_size, 1);
  const std::vector<gpt2::Batch> batches{tokens.batch(), tokens.batch()};
  Recorder heard;
  {
    const gpt2::StepRange range(1);  // the caller's, as in train_loop.cpp
    trainer->enqueue_step({.step = 1, .micro_batches = batches, .adamw = {}});
  }
  trainer->finish_step();
  std::map<std::string, int> expected;
  for (const gpt2::OpWork& w : gpt2::step_work(odd_config(), 2, 9, 2, gpt2::widths_fp32()))
    if (w.op != Op::zero_grad) expected[gpt2::leaf_path(w.pass, w.layer, w.op)] = w.pass == Pass::optimizer ? 1 : 2;
  EXPECT_EQ(heard.begun, expected);
  EXPECT_EQ(heard.deepest, 1);
  EXPECT_EQ(heard.depth, 0);
  EXPECT_EQ(heard.steps, 1);
  EXPECT_EQ(heard.outside_steps, 0);
}

TEST(ReferenceTrainer, TrainsABatchIntoMemory) {
  auto trainer = gpt2::make_reference_trainer(options());
  trainer->write(State::parameters, gpt2::init_parameters(odd_config(), 1));
  const Tokens tokens = random_tokens(18, odd_config().vocab_size, 1);
  const std::vector<gpt2::Batch> batches{tokens.batch()};
  double first = 0, last = 0;
  for (int64_t step = 1; step <= 60; ++step) {
    trainer->enqueue_step({.step = step, .micro_batches = batches, .adamw = {.learning_rate = 1e-2f}});
    const gpt2::StepOutcome outcome = trainer->finish_step();
    EXPECT_EQ(outcome.step, step);
    EXPECT_GT(outcome.time_ns, 0);
    (step == 1 ? first : last) = outcome.loss;
  }
  EXPECT_NEAR(first, std::log(67.0), 0.1);
  EXPECT_LE(last, 0.1);
}

// One step by hand with the oracle's own pieces: averaging over micro-batches, norm before clipping,
// clipping, decay.
TEST(ReferenceTrainer, AStepIsAverageNormClipAndUpdateAsTheDoubleModelDoesThem) {
  const ModelConfig config = odd_config();
  auto trainer = gpt2::make_reference_trainer(options());
  trainer->write(State::parameters, lively_parameters(config, 3));
  auto oracle = lively_model<double>(config, 2, 9);
  const Tokens a = random_tokens(18, config.vocab_size, 1), b = random_tokens(18, config.vocab_size, 2);
  const std::vector<gpt2::Batch> batches{a.batch(), b.batch()};
  const gpt2::AdamW adamw{.learning_rate = 0.01f, .eps = 1e-3f, .weight_decay = 0.1f, .clip = 0.05f};
  trainer->enqueue_step({.step = 4, .micro_batches = batches, .adamw = adamw});
  const gpt2::StepOutcome outcome = trainer->finish_step();
  const double loss = 0.5 * oracle.forward_backward(a.batch(), 0.5, false) + 0.5 * oracle.forward_backward(b.batch(), 0.5, true);
  const double norm = oracle.gradient_norm();
  ASSERT_GT(norm, 0.05);  // else nothing is clipped
  oracle.update({.learning_rate = adamw.learning_rate,
                 .beta1 = adamw.beta1,
                 .beta2 = adamw.beta2,
                 .eps = adamw.eps,
                 .weight_decay = adamw.weight_decay,
                 .gradient_scale = static_cast<double>(adamw.clip) / norm,
                 .t = 4});
  EXPECT_LE(std::abs(outcome.loss - loss) / loss, 1e-6);
  EXPECT_LE(std::abs(outcome.grad_norm - norm) / norm, 1e-5);
  EXPECT_LE(relative_l2(std::span<const float>(read(*trainer, State::parameters)), std::span<const double>(oracle.parameters())), 1e-6);
  EXPECT_LE(relative_l2(std::span<const float>(read(*trainer, State::adam_m)), std::span<const double>(oracle.adam_m())), 1e-5);
  EXPECT_LE(relative_l2(std::span<const float>(read(*trainer, State::adam_v)), std::span<const double>(oracle.adam_v())), 1e-5);
}

TEST(ReferenceTrainer, AStepAfterRestoringTheStateIsBitwiseTheSame) {
  auto a = gpt2::make_reference_trainer(options()), b = gpt2::make_reference_trainer(options());
  a->write(State::parameters, lively_parameters(odd_config(), 1));
  const Tokens tokens = random_tokens(18, odd_config().vocab_size, 1);
  const std::vector<gpt2::Batch> batches{tokens.batch()};
  const auto step = [&](gpt2::Trainer& t, int64_t n) {
    t.enqueue_step({.step = n, .micro_batches = batches, .adamw = {.learning_rate = 1e-2f}});
    return t.finish_step().loss;
  };
  step(*a, 1);
  for (State which : {State::parameters, State::adam_m, State::adam_v}) b->write(which, read(*a, which));
  EXPECT_EQ(step(*a, 2), step(*b, 2));
  EXPECT_EQ(read(*a, State::parameters), read(*b, State::parameters));
}

TEST(ReferenceTrainer, EvaluationAndBackwardGiveTheSameUnpaddedLogits) {
  const ModelConfig config = odd_config();
  auto trainer = gpt2::make_reference_trainer(options());
  trainer->write(State::parameters, lively_parameters(config, 3));
  auto oracle = lively_model<double>(config, 2, 9);
  const Tokens tokens = random_tokens(18, config.vocab_size, 1);
  std::vector<float> evaluated(static_cast<size_t>(18 * config.vocab_size)), stepped = evaluated;
  const double loss = trainer->evaluate(tokens.batch(), evaluated);
  EXPECT_EQ(trainer->forward_backward(tokens.batch(), stepped), loss);
  EXPECT_EQ(evaluated, stepped);
  oracle.forward(tokens.batch());
  for (int64_t row : {0, 17})
    for (int64_t v : {int64_t{0}, config.vocab_size - 1})
      EXPECT_NEAR(evaluated[static_cast<size_t>(row * config.vocab_size + v)],
                  oracle.logits()[static_cast<size_t>(row * config.padded_vocab + v)], 1e-5);
}

TEST(ReferenceTrainer, ARefusedBatchChangesNothing) {
  auto trainer = gpt2::make_reference_trainer(options());
  trainer->write(State::parameters, lively_parameters(odd_config(), 1));
  const std::vector<float> before = read(*trainer, State::parameters);
  const Tokens good = random_tokens(18, odd_config().vocab_size, 1);
  Tokens bad = good;
  bad.targets[5] = 67;
  const std::vector<gpt2::Batch> batches{good.batch(), bad.batch()};
  EXPECT_THROW(trainer->enqueue_step({.step = 1, .micro_batches = batches, .adamw = {}}), stepscope::InputError);
  EXPECT_THROW(trainer->enqueue_step({.step = 1, .micro_batches = {}, .adamw = {}}), stepscope::InputError);
  EXPECT_THROW(trainer->evaluate(bad.batch(), {}), stepscope::InputError);
  EXPECT_EQ(read(*trainer, State::parameters), before);
  EXPECT_THROW(trainer->finish_step(), std::logic_error);
}

TEST(ReferenceTrainer, RefusesWhatItDoesNotOffer) {
  gpt2::TrainerOptions o = options();
  o.matmul = "tf32";
  EXPECT_THROW(gpt2::make_reference_trainer(o), stepscope::InputError);
  o = options();
  o.variants["attention_forward"] = "flash";
  EXPECT_THROW(gpt2::make_reference_trainer(o), stepscope::InputError);
  auto trainer = gpt2::make_reference_trainer(options());
  std::vector<float> short_state(3);
  EXPECT_THROW(trainer->read(State::parameters, short_state), stepscope::InputError);
  EXPECT_THROW(trainer->write(State::adam_v, short_state), stepscope::InputError);
  EXPECT_THROW(trainer->evaluate(random_tokens(18, 67, 1).batch(), short_state), stepscope::InputError);
}

TEST(ReferenceTrainer, HoldsAtMostTwoUnfinishedSteps) {
  auto trainer = gpt2::make_reference_trainer(options(1, 2));
  trainer->write(State::parameters, lively_parameters(odd_config(), 1));
  const Tokens tokens = random_tokens(2, 67, 1);
  const std::vector<gpt2::Batch> batches{tokens.batch()};
  for (int64_t step = 1; step <= 2; ++step) trainer->enqueue_step({.step = step, .micro_batches = batches, .adamw = {}});
  EXPECT_THROW(trainer->enqueue_step({.step = 3, .micro_batches = batches, .adamw = {}}), std::logic_error);
  EXPECT_EQ(trainer->finish_step().step, 1);
  EXPECT_EQ(trainer->finish_step().step, 2);
}

TEST(ReferenceTrainer, PlannedMemoryCountsFourCopiesOfTheParameters) {
  auto trainer = gpt2::make_reference_trainer(options());
  const int64_t parameters = gpt2::tensor_layout(odd_config()).total * 4;
  std::map<std::string, int64_t> items;
  for (const gpt2::MemoryItem& item : trainer->memory()) items[item.name] = item.bytes;
  EXPECT_EQ(items["parameters"], parameters);
  EXPECT_EQ(items["gradients"], parameters);
  EXPECT_EQ(items["optimizer state"], 2 * parameters);
  EXPECT_EQ(items["logits"], 18 * 80 * 4);
  EXPECT_GT(items["scratch"], 0);
  // per layer 16 C + 4 columns and NH log-sum-exps, beside the layers 12 C + 2
  EXPECT_EQ(items["activations"], 18 * (2 * (16 * 36 + 4 + 3) + 12 * 36 + 2) * 4);
}

}  // namespace
}  // namespace reference_test
