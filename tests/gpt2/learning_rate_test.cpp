#include <gtest/gtest.h>

#include "base/errors.h"
#include "gpt2/train_loop.h"

namespace gpt2 {
namespace {

LearningRate rate(const char* schedule, int64_t warmup, int64_t total, float last = 0.1f) { return {schedule, 1.0f, warmup, last, total}; }

TEST(LearningRate, WarmUpClimbsLinearlyToThePeakInEverySchedule) {
  for (const char* s : {"cosine", "linear", "constant", "wsd"}) {
    const LearningRate r = rate(s, 4, 100);
    EXPECT_FLOAT_EQ(r.at(0), 0.25f) << s;
    EXPECT_FLOAT_EQ(r.at(1), 0.5f) << s;
    EXPECT_FLOAT_EQ(r.at(3), 1.0f) << s;
    EXPECT_FLOAT_EQ(r.at(4), 1.0f) << s;
  }
}

TEST(LearningRate, CosineAndLinearDecayFromTheWarmUpToTheFinalFraction) {
  EXPECT_FLOAT_EQ(rate("cosine", 0, 100).at(50), 0.55f);
  EXPECT_FLOAT_EQ(rate("cosine", 0, 100).at(25), 0.1f + 0.9f * 0.5f * (1 + 0.70710678f));
  EXPECT_FLOAT_EQ(rate("linear", 20, 100).at(60), 0.55f);
  EXPECT_FLOAT_EQ(rate("linear", 20, 100).at(40), 0.775f);
  for (const char* s : {"cosine", "linear", "wsd"}) {
    EXPECT_FLOAT_EQ(rate(s, 10, 100).at(100), 0.1f) << s;
    EXPECT_FLOAT_EQ(rate(s, 10, 100).at(5000), 0.1f) << s;
    EXPECT_GT(rate(s, 10, 100, 0.0f).at(99), 0.0f) << s << ": no step is spent at rate 0";
  }
}

TEST(LearningRate, WsdHoldsThePeakUntilTheLastFifth) {
  const LearningRate r = rate("wsd", 10, 100);
  EXPECT_FLOAT_EQ(r.at(79), 1.0f);
  EXPECT_FLOAT_EQ(r.at(80), 1.0f);
  EXPECT_FLOAT_EQ(r.at(90), 0.55f);
}

TEST(LearningRate, ConstantStaysAndALongWarmUpIsNoDivisionByZero) {
  EXPECT_FLOAT_EQ(rate("constant", 0, 10).at(9), 1.0f);
  EXPECT_FLOAT_EQ(rate("cosine", 10, 10).at(9), 1.0f);
  EXPECT_FLOAT_EQ(rate("cosine", 10, 10).at(10), 0.1f);
}

TEST(LearningRate, ARunThatDoesNotSeeItsScheduleIsTold) {
  EXPECT_EQ(rate("cosine", 10, 10).misfit(10), "");
  EXPECT_EQ(rate("cosine", 10, 20).misfit(10), "") << "its last step is at the peak";
  EXPECT_EQ(rate("constant", 0, 5).misfit(10), "") << "it has no end";
  EXPECT_EQ(rate("constant", 40, 10).misfit(10),
            "--lr-warmup 40: the run ends at step 10, before the learning rate is at its peak; its last is 25% of the peak");
  EXPECT_EQ(rate("linear", 0, 8).misfit(10),
            "--lr-total-steps 8: the schedule ends there, 2 steps before the run; they train at 10% of the peak");
  EXPECT_EQ(rate("wsd", 6, 5).misfit(10),
            "--lr-warmup 6: the schedule ends at step 5, so the learning rate falls from its peak to 10% of the peak at once");
}

TEST(LearningRate, UnknownSchedulesAreRefused) {
  EXPECT_THROW(check_schedule("cosin"), stepscope::InputError);
  for (const char* s : {"cosine", "linear", "constant", "wsd"}) check_schedule(s);
}

}  // namespace
}  // namespace gpt2
