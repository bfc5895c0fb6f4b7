// What a step's time means, every variant's repeatability, one row of logits for sampling, and shapes beyond 32 bits, on a device.
#include <gtest/gtest.h>

#include <time.h>

#include <chrono>
#include <cmath>
#include <memory>

#include "tests/trainers/device_fixture.h"

namespace trainers {
namespace {

using gpt2::State;
using reference_test::Tokens;

class AnyTrainerOnDevice : public OnDevice {
 protected:
  std::unique_ptr<gpt2::Trainer> fresh() const {
    auto t = kind().make(options_);
    t->write(State::parameters, gpt2::init_parameters(options_.model, 1));
    return t;
  }
  Tokens batch(uint32_t seed) const { return tokens_of(options_, seed); }
  gpt2::StepOutcome step(gpt2::Trainer& t, int64_t number) const {
    const Tokens data = batch(static_cast<uint32_t>(number));
    const gpt2::Batch one = data.batch();
    t.enqueue_step({number, {&one, 1}, {.learning_rate = 1e-3f, .weight_decay = 0.1f}});
    return t.finish_step();
  }
  gpt2::TrainerOptions options_ = small(3, 65);
};

TEST_P(AnyTrainerOnDevice, TwoRunsAreBitwiseEqualAtEveryRateAndWithEveryVariant) {
  auto check = [&] {
    auto a = fresh(), b = fresh();
    for (int64_t n = 1; n <= 5; ++n) EXPECT_EQ(step(*a, n).loss, step(*b, n).loss) << "step " << n;
    EXPECT_TRUE(same_bits(read_state(*a, State::parameters), read_state(*b, State::parameters)));
  };
  for (const std::string& rate : kind().rates) {
    options_.matmul = rate;
    options_.variants.clear();
    check();
    for (const gpt2::VariantInfo& slot : kind().variants())
      for (const std::string& name : slot.names) {
        if (!repeats(slot.slot, name)) continue;
        SCOPED_TRACE(rate + " " + slot.slot + "=" + name);
        unless_refused(kind().facts(), slot.slot, name, [&](const std::map<std::string, std::string>& choice) {
          options_.variants = choice;
          check();
        });
      }
  }
}

TEST_P(AnyTrainerOnDevice, StepTimesArePositiveAndIncludeTheHostsPauses) {
  auto t = fresh();
  step(*t, 1);
  step(*t, 2);
  timespec pause{.tv_sec = 0, .tv_nsec = 50'000'000};
  nanosleep(&pause, nullptr);
  EXPECT_GT(step(*t, 3).time_ns, 50e6) << "the device was idle since the end of step 2: that is part of step 3";
  const Tokens data = batch(1);
  t->evaluate(data.batch());
  nanosleep(&pause, nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const double after_evaluation = step(*t, 4).time_ns;
  const double call_ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GT(after_evaluation, 0.0);
  // By the host's clock around the call, with room for the device's: no fixed limit, which a busy machine would pass.
  EXPECT_LT(after_evaluation, call_ns + 1e6) << "an evaluation is not part of the step after it";
}

TEST_P(AnyTrainerOnDevice, TheNextTokensLogitsAreTheRowOfTheWholeForward) {
  auto t = fresh();
  const Tokens data = batch(3);
  std::vector<float> all(data.inputs.size() * 509);
  t->evaluate(data.batch(), all);
  for (const size_t length : {size_t{1}, size_t{40}, size_t{65}}) {
    const std::vector<float> row = t->next_token_logits({data.inputs.data(), length});
    ASSERT_EQ(row.size(), 509u);
    for (size_t v = 0; v < row.size(); ++v) ASSERT_EQ(row[v], all[(length - 1) * 509 + v]) << "length " << length;
  }
}

TEST_P(AnyTrainerOnDevice, ShapesBeyond32BitsReachTheLastSequence) {
  // 48 * 1024 * 50304 logits are 2.47e9; the scores of one layer 48 * 12 * 1024^2.
  if (gpt2::cuda::device_info().memory_free_bytes < (int64_t{60} << 30)) GTEST_SKIP() << "needs 60 GB of device memory";
  options_.model = gpt2::model_from_name("d12");
  options_.model.layers = 1;
  options_.seq_len = 1024;
  options_.batch_size = 48;
  const Tokens data = batch(5);
  auto large = fresh();
  const double loss = large->forward_backward(data.batch());
  EXPECT_TRUE(std::isfinite(loss));
  const auto gradients = read_state(*large, State::gradients);
  for (const float g : gradients) ASSERT_TRUE(std::isfinite(g));
  // Mean over the batch = mean of the losses of its 48 sequences, the last one included.
  options_.batch_size = 1;
  auto single = fresh();
  double sum = 0;
  for (size_t b = 0; b < 48; ++b) sum += single->evaluate({{data.inputs.data() + b * 1024, 1024}, {data.targets.data() + b * 1024, 1024}});
  EXPECT_NEAR(loss, sum / 48, std::max(1e-6, kind().loss_error / 2) * loss);
}

STEPSCOPE_FOR_EVERY_TRAINER(AnyTrainerOnDevice);

}  // namespace
}  // namespace trainers
