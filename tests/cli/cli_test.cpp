// Bad input ends with exit 2, a machine that cannot with exit 3, and the text names the flag or file and says what was expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/run_stepscope.h"

using ::testing::HasSubstr;

namespace {

struct BadInput {
  const char* arguments;
  const char* names;     // must be in the message
  const char* expected;  // and this
};

class BadInputTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, exits_2_and_names_what_is_wrong) {
  const Outcome o = stepscope(GetParam().arguments);
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr(GetParam().names));
  EXPECT_THAT(o.err, HasSubstr(GetParam().expected));
  EXPECT_EQ(o.out, "");
}

constexpr const char* kReference = "train --trainer reference --model tiny --steps 1 ";
INSTANTIATE_TEST_SUITE_P(
    cli, BadInputTest,
    ::testing::Values(
        BadInput{"frobnicate", "frobnicate", "--help"}, BadInput{"train --no-such-flag", "--no-such-flag", "--help"},
        BadInput{"train --trainer reference --model d13", "d13", "d12"},
        BadInput{"train --trainer turbo --model tiny", "turbo", "reference"},
        BadInput{"train --trainer reference --model tiny --variant x=y", "--variant", "no variants"},
        BadInput{"train --trainer reference --model tiny --variant broken", "--variant 'broken'", "OP=NAME"},
        BadInput{"train --trainer reference --model tiny --matmul bf8", "bf8", "tf32"},
        BadInput{"train --trainer reference --model tiny --lr-schedule sine", "sine", "cosine"},
        BadInput{"train --trainer reference --model tiny --steps -1", "steps", "-1"},
        BadInput{"train --trainer reference --model tiny --batch-size -4", "--batch-size", "expected"},
        BadInput{"train --trainer reference --model tiny --batch-size 9000000000000000000", "--batch-size", "expected"},
        BadInput{"train --trainer reference --model tiny --batch-size 1048576 --seq-len 256 --accumulation 9999999", "--accumulation", "expected"},
        BadInput{"train --trainer reference --model d12 --batch-size 1048576 --seq-len 1024", "--batch-size", "too large"},
        BadInput{"train --trainer reference --model tiny --seq-len 257", "--seq-len is 257", "256"},
        BadInput{"train --trainer reference --model tiny --data /nonexistent/tokens.bin --steps 1", "/nonexistent/tokens.bin", "o"},
        BadInput{"train --trainer reference --model tiny --steps 1 --checkpoints /proc/nowhere", "/proc/nowhere", ""},
        BadInput{"train --trainer reference --model tiny --steps 1 --run-json /nonexistent/run.json", "/nonexistent", ""},
        BadInput{"profile --trainer reference --model tiny --steps 0", "--steps", "1"},
        BadInput{"profile --trainer reference --model tiny --steps 1 --out /nonexistent/p.json", "/nonexistent", ""},
        BadInput{"profile -- /nonexistent/program", "/nonexistent/program", ""},
        BadInput{"gate --trainer nobody", "nobody", "reference"},
        BadInput{"gate --trainer reference --checkpoint /nonexistent.bin --state /nonexistent.bin", "/nonexistent.bin", ""},
        BadInput{"baseline verify no-such-baseline", "no-such-baseline", ""},
        BadInput{"report /nonexistent/profile.json", "/nonexistent/profile.json", ""}));

TEST(cli, every_command_has_help_with_an_example) {
  for (const char* command : {"doctor", "train", "profile", "report", "gate", "baseline", "data"}) {
    const Outcome o = stepscope(std::string(command) + " --help");
    EXPECT_EQ(o.exit_code, 0) << command;
    EXPECT_THAT(o.out, HasSubstr("Example")) << command;
  }
}

TEST(cli, a_trainer_that_needs_a_gpu_exits_3_and_says_so) {
  const Outcome o = stepscope("train --trainer fp32 --model d12 --steps 1");
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, HasSubstr("needs a GPU"));
}

TEST(cli, doctor_without_a_gpu_exits_3_and_prints_the_cause) {
  const Outcome o = stepscope("doctor");
  EXPECT_EQ(o.exit_code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("FAIL  GPU"));
}

TEST(cli, a_file_that_is_no_checkpoint_is_refused_as_a_model) {
  const auto folder = fresh_folder();
  const auto file = folder / "junk.bin";
  std::ofstream(file) << std::string(4096, 'x');
  const Outcome o = stepscope("train --trainer reference --steps 1 --model " + file.string());
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr(file.string()));
  EXPECT_THAT(o.err, HasSubstr("magic"));
  std::filesystem::remove_all(folder);
}

TEST(cli, training_on_the_cpu_prints_steps_and_the_loss_falls) {
  const Outcome o = stepscope("train --trainer reference --model tiny --steps 30 --learning-rate 3e-3 --lr-schedule constant --json");
  ASSERT_EQ(o.exit_code, 0) << o.err;
  auto loss = [&](size_t at) { return std::stod(o.out.substr(o.out.find("\"loss\":", at) + 7)); };
  const double first = loss(0), last = loss(o.out.rfind("{"));
  EXPECT_LT(last, first - 0.5) << "from " << first << " to " << last;
}

}  // namespace
