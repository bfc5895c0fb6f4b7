#include "experiments/runner/step_lines.h"

#include <gtest/gtest.h>

#include "base/errors.h"

namespace experiments {
namespace {

double ms(const std::string& line, const std::string& pattern = "") {
  const auto step = StepLines(pattern).parse(line);
  if (!step) return -1;
  if (step->separated) return -3;
  return step->time_ns ? *step->time_ns * 1e-6 : -2;  // -2: not finite
}

TEST(step_lines, reads_the_lines_of_this_trainer_llm_c_and_the_frozen_baselines) {
  EXPECT_DOUBLE_EQ(ms("step     3 | loss 9.123456 | norm 1.2345 | lr 3.00e-04 | 25.698 ms | 159400 tokens/s"), 25.698);
  EXPECT_DOUBLE_EQ(ms("step    1/74 | loss 4.367631 (+nanz)| norm 15.4 (+nanz)| lr 3.00e-04 | 26.02 ms | "
                      "54.2% bf16 MFU | 157000 tok/s"),
                   26.02);
  EXPECT_DOUBLE_EQ(ms("  Step 12: 1.5e1ms"), 15);
  EXPECT_DOUBLE_EQ(ms("step 1 | .5 ms"), 0.5);
  EXPECT_DOUBLE_EQ(ms("step 1 | inf-norm 3 | 10.0 ms"), 10);
  EXPECT_DOUBLE_EQ(ms("step 1 time=5ms"), 5);
}

TEST(step_lines, leaves_other_lines_alone) {
  EXPECT_EQ(ms("val loss 4.5 | 12 ms"), -1);
  EXPECT_EQ(ms("steps: 12 ms"), -1);
  EXPECT_EQ(ms("median 25.7 ms/step"), -1);
  EXPECT_EQ(ms("step 3 | no time"), -1);
}

// Lines of 1,000 ms and more were no steps, so the slow ones of a program were left out. A pattern's "1,234.5" was 1 ms, or 234.5.
TEST(step_lines, refuses_a_number_of_which_it_would_read_a_part) {
  for (const char* time : {"1,234.5 ms", "1'234.5ms", "1_234.5 ms", "25,7 ms", "12,345,678 ms"}) {
    EXPECT_EQ(ms(std::string("step 3 | ") + time), -3) << time;
    EXPECT_EQ(ms(std::string("step 3 | ") + time + " | eta 100 ms"), -3) << time;
    EXPECT_EQ(ms(std::string("iter 3 | ") + time, "([0-9.]+) *ms"), -3) << time;
    EXPECT_EQ(ms(std::string("iter 3 | ") + time, "iter.* ([0-9.,'_]+) *ms"), -3) << time;
  }
  EXPECT_DOUBLE_EQ(ms("step 1,234 | 12,345 tokens, 25.7 ms"), 25.7);
  EXPECT_DOUBLE_EQ(ms("3,25.7", "^[0-9]+,([0-9.]+)$"), 25.7) << "columns of a table";
  EXPECT_DOUBLE_EQ(ms("iter 3: 25.7, loss 4.5", "iter [0-9]+: (.*)"), 25.7);
  EXPECT_EQ(ms("iter 3: 1.234.5 ms", "iter [0-9]+: (.*) ms"), -3);
}

TEST(step_lines, sees_a_time_or_a_loss_that_is_no_number) {
  EXPECT_EQ(ms("step 3 | loss nan | 25.7 ms"), -2);
  EXPECT_EQ(ms("step 3 | loss -inf | 25.7 ms"), -2);
  EXPECT_EQ(ms("step 3 | loss 4.5 | nan ms"), -2);
  EXPECT_EQ(ms("step 3 | 0 ms"), -2);
  EXPECT_EQ(ms("step 3 | -4 ms"), -2);
}

TEST(step_lines, follow_the_pattern_of_the_user) {
  EXPECT_DOUBLE_EQ(ms("iter 7 took 0.012 milliseconds", "took ([0-9.]+) milli"), 0.012);
  EXPECT_EQ(ms("step 3 | 25.7 ms", "took ([0-9.]+) milli"), -1);
  EXPECT_THROW(StepLines("(["), stepscope::InputError);
  EXPECT_THROW(StepLines("[0-9]+ ms"), stepscope::InputError);
}

// The first of two was taken: a program with equal steps was 10 times faster.
TEST(step_lines, says_that_a_line_holds_more_than_one_time) {
  const StepLines lines("");
  EXPECT_TRUE(lines.parse("step 1 | data 1.0 ms | total 10.0 ms")->ambiguous);
  EXPECT_TRUE(lines.parse("step 1 fwd 1ms bwd 2ms")->ambiguous);
  EXPECT_FALSE(lines.parse("step 3 | loss 9.1 | 25.698 ms | 159400 tokens/s")->ambiguous);
  EXPECT_FALSE(lines.parse("step 3 | 2.5 ms, 3 msamples")->ambiguous);
  EXPECT_FALSE(StepLines("total ([0-9.]+) ms").parse("step 1 | data 1.0 ms | total 10.0 ms")->ambiguous);
}

TEST(step_lines, survive_a_line_without_end) { EXPECT_EQ(ms(std::string(1 << 20, 's')), -1); }

}  // namespace
}  // namespace experiments
