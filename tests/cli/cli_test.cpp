// Bad input ends with exit 2, a machine that cannot with exit 3, and the text names the flag or file and says what was expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_stepscope.h"
#include "tests/golden.h"

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

INSTANTIATE_TEST_SUITE_P(
    cli, BadInputTest,
    ::testing::Values(
        BadInput{"frobnicate", "frobnicate", "--help"}, BadInput{"train --no-such-flag", "--no-such-flag", "--help"},
        BadInput{"train --trainer reference --model d13", "d13", "d12"},
        BadInput{"train --trainer turbo --model tiny", "turbo", "reference"},
        BadInput{"train --trainer reference --model tiny --variant x=y", "--variant", "no variants"},
        BadInput{"train --trainer reference --model tiny --variant broken", "--variant 'broken'", "OP=NAME"},
        BadInput{"train --trainer reference --model tiny --matmul bf8", "bf8", "tf32"},
        BadInput{"train --trainer mixed --matmul tf32", "--matmul tf32: the mixed trainer does not have it", "--trainer fp32 does"},
        BadInput{"profile --trainer mixed --matmul tf32", "--matmul tf32: the mixed trainer does not have it", "--trainer fp32 does"},
        BadInput{"train --trainer reference --matmul bf16", "--matmul bf16: the reference trainer does not have it",
                 "--trainer mixed does"},
        BadInput{"train --trainer fp32 --recompute gelu", "--recompute gelu", "--trainer mixed does"},
        BadInput{"train --trainer reference --weight-rounding stochastic", "--weight-rounding stochastic", "--trainer mixed does"},
        BadInput{"train --trainer reference --model tiny --lr-schedule sine", "sine", "cosine"},
        BadInput{"train --trainer reference --model tiny --steps -1", "steps", "-1"},
        BadInput{"train --trainer reference --model tiny --batch-size -4", "--batch-size", "expected"},
        BadInput{"train --trainer reference --model tiny --batch-size 9000000000000000000", "--batch-size", "expected"},
        BadInput{"train --trainer reference --model tiny --batch-size 1048576 --seq-len 256 --accumulation 9999999", "--accumulation",
                 "expected"},
        BadInput{"train --trainer reference --model d12 --batch-size 1048576 --seq-len 1024", "--batch-size", "too large"},
        BadInput{"train --trainer reference --model tiny --seq-len 257", "--seq-len is 257", "256"},
        BadInput{"train --trainer reference --model tiny --data /nonexistent/tokens.bin --steps 1", "/nonexistent/tokens.bin", "o"},
        BadInput{"train --trainer reference --model tiny --steps 1 --checkpoints /proc/nowhere", "/proc/nowhere", ""},
        BadInput{"train --trainer reference --model tiny --steps 1 --run-json /nonexistent/run.json", "/nonexistent", ""},
        BadInput{"profile --trainer reference --model tiny --steps 0", "--steps", "1"},
        BadInput{"profile --trainer reference --model tiny --steps 1 --out /nonexistent/p.json", "/nonexistent", ""},
        BadInput{"profile -- /nonexistent/program", "/nonexistent/program", ""}, BadInput{"gate --trainer nobody", "nobody", "reference"},
        BadInput{"gate --trainer reference --checkpoint /nonexistent.bin --state /nonexistent.bin", "/nonexistent.bin", ""},
        BadInput{"baseline verify no-such-baseline", "no-such-baseline", ""},
        BadInput{"report /nonexistent/profile.json", "/nonexistent/profile.json", ""}));

#ifdef STEPSCOPE_WITH_CUDA
INSTANTIATE_TEST_SUITE_P(
    variants_of_another_trainer, BadInputTest,
    ::testing::Values(
        BadInput{"train --trainer fp32 --variant step_launch=stream", "--variant step_launch=stream: the fp32 trainer has no such variant",
                 "--trainer mixed does"},
        BadInput{"train --trainer mixed --variant attention_backward=unfused_causal_blocks",
                 "--variant attention_backward=unfused_causal_blocks: the mixed trainer has no such variant", "--trainer fp32 does"},
        BadInput{"train --trainer reference --variant attention_backward=unfused_causal_blocks",
                 "--variant attention_backward=unfused_causal_blocks", "--trainer fp32 does"},
        BadInput{"gate --trainer fp32 --op lm_head", "--op lm_head: the fp32 trainer has no such op; expected one of embedding_forward",
                 ", adamw\n"},
        BadInput{"gate --trainer fp32 --op round_parameters", "--op round_parameters: the fp32 trainer has no such op", ", adamw\n"},
        BadInput{"gate --trainer mixed --op nosuch", "--op nosuch: the mixed trainer has no such op; expected one of embedding_forward",
                 ", round_parameters\n"}));
#endif

TEST(cli, every_command_has_help_with_an_example) {
  for (const char* command : {"doctor", "train", "profile", "report", "gate", "baseline", "data"}) {
    const Outcome o = stepscope(std::string(command) + " --help");
    EXPECT_EQ(o.exit_code, 0) << command;
    EXPECT_THAT(o.out, HasSubstr("Example")) << command;
  }
}

// As it can be typed again.
TEST(cli, the_command_that_is_written_down_is_quoted_for_a_shell) {
  const auto folder = fresh_folder();
  const std::string record = (folder / "a 'b' $c.json").string();
  const std::string quoted = "'" + (folder / "a '\\''b'\\'' $c.json").string() + "'";
  const Outcome o = stepscope("train --trainer reference --model tiny --batch-size 1 --seq-len 8 --steps 1 --run-json " + quoted);
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(nlohmann::json::parse(slurp(record)).at("command"),
            stepscope_program() + " train --trainer reference --model tiny --batch-size 1 --seq-len 8 --steps 1 --run-json " + quoted);
  std::filesystem::remove_all(folder);
}

// In a tree of its own: what is listed of a frozen baseline and of one that is not, and what a changed file does.
TEST(cli, baselines_are_listed_verified_and_frozen) {
  const auto root = fresh_folder(), toy = root / "baselines" / "toy", raw = root / "baselines" / "raw";
  for (const auto& folder : {toy, raw}) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "CMakeLists.txt") << "# toy\nset(BASELINE_BUILD_FLAGS -O3 -lineinfo)\n";
    std::ofstream(folder / "README.md") << "# toy\n\nA toy that\ntrains nothing.\n\nMore.\n";
    std::ofstream(folder / "main.cu") << "int main() { return 0; }\n";
  }
  nlohmann::json result{{"date", "2026-01-02"}, {"device", "a device"},   {"driver", "1"},          {"cuda", "13.0"},
                        {"command", "c"},       {"matmul", "tf32"},       {"batch_size", 2},        {"seq_len", 500},
                        {"steps", 10},          {"step_time_ns", 1.25e7}, {"tokens_per_s", 80000.0}},
      noted = result;
  noted["note"] = "one run";
  const auto run = [&](const std::string& arguments) {
    const Outcome o = stepscope("baseline " + arguments, "STEPSCOPE_ROOT=" + root.string());
    return "$ baseline " + arguments + "\n" + o.out + o.err + "exit " + std::to_string(o.exit_code) + "\n";
  };
  std::string text = run("freeze toy");
  std::ofstream(raw / "RESULTS.json") << nlohmann::json{{"schema", "stepscope.baseline-results/1"}, {"results", {result, noted}}}.dump();
  text += run("list") + run("verify toy") + run("verify toy --json");
  std::ofstream(toy / "main.cu") << "int main() { return 1; }\n";
  text += run("verify toy") + run("verify toy --json");
  std::filesystem::remove(toy / "README.md");
  text += run("verify toy") + run("verify none") + run("list --json");
  std::ofstream(raw / "RESULTS.json") << "{";  // the first of the two by name; the other is listed all the same
  text += run("list");
  const auto manifest = nlohmann::json::parse(slurp(toy / "MANIFEST.json"));
  for (const auto& [key, name] : {std::pair("created", "DATE"), std::pair("source_revision", "REVISION")})
    for (size_t at; (at = text.find(manifest.at(key).get<std::string>())) != std::string::npos;)
      text.replace(at, manifest.at(key).get<std::string>().size(), name);
  for (size_t at; (at = text.find(root.string())) != std::string::npos;) text.replace(at, root.string().size(), "ROOT");
  std::filesystem::remove_all(root);
  expect_golden("cli/data/baseline.txt", text);
}

// Of a file name that is no UTF-8 it printed nlohmann's exception, and no other baseline's answer.
TEST(cli, a_baseline_with_a_file_name_that_is_no_utf8_is_answered_for_in_json_too) {
  const auto root = fresh_folder(), toy = root / "baselines" / "toy";
  std::filesystem::create_directories(toy);
  std::ofstream(toy / "CMakeLists.txt") << "set(BASELINE_BUILD_FLAGS -O3)\n";
  std::ofstream(toy / "README.md") << "A toy.\n";
  const std::string tree = "STEPSCOPE_ROOT=" + root.string();
  EXPECT_EQ(stepscope("baseline freeze toy", tree).exit_code, 0);
  std::ofstream(toy / "a\xff.cu");
  const Outcome o = stepscope("baseline verify --json", tree);
  std::filesystem::remove_all(root);
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(o.out).at(0).at("problems").at(0), "a\uFFFD.cu: extra; the manifest does not name it") << o.err;
}

TEST(cli, a_trainer_that_needs_a_gpu_exits_3_and_says_so) {
  const Outcome o = stepscope("train --trainer fp32 --model d12 --steps 1");
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, HasSubstr("needs a GPU"));
}

// Where there is no GPU a mistake looked like a lack of the machine: exit 3.
TEST(cli, a_wrong_flag_is_refused_before_a_gpu_is_missed) {
  for (const std::string command : {"profile --trainer mixed", "profile --trainer fp32 --gpus 2", "train --trainer mixed --gpus 2"})
    for (const auto& [flags, message] : {std::pair(" --lr-schedule sine", "--lr-schedule sine: expected cosine, linear, constant or wsd"),
                                         std::pair(" --data /no/x.bin", "/no/x.bin: no such file"),
                                         std::pair(" --seq-len 5000", "--seq-len is 5000: expected 1 to 1024")}) {
      const Outcome o = stepscope(command + " --model d12" + flags);
      EXPECT_EQ(o.exit_code, 2) << command << flags;
      EXPECT_THAT(o.err, HasSubstr(message)) << command << flags;
    }
  const std::string several = " --trainer mixed --model d12 --gpus 2 --nccl-blocks 5 --communicator ";
  for (const std::string command : {"train", "profile"}) {
    for (const auto& [communicator, how] : {std::pair("staged", "through host memory"), std::pair("peer", "by copies between GPUs")}) {
      const Outcome o = stepscope(command + several + communicator);
      EXPECT_EQ(o.exit_code, 2) << command << communicator;
      EXPECT_THAT(o.err, HasSubstr(std::string("--nccl-blocks 5: gradients travel ") + how)) << command;
    }
    EXPECT_EQ(stepscope(command + several + "nccl").exit_code, 3) << command;
  }
  const Outcome total = stepscope("train --trainer mixed --model d12 --gpus 2 --total-batch 7");
  EXPECT_EQ(total.exit_code, 2);
  EXPECT_THAT(total.err, HasSubstr("--total-batch 7: not a whole number of micro-batches of 4 x 1024 tokens on 2 ranks"));
}

// `--matmul tf32` chooses the trainer that has it; without a GPU that one says what it needs.
TEST(cli, a_matmul_rate_without_a_trainer_chooses_the_one_that_has_it) {
  for (const std::string command : {"train --steps 1", "profile --steps 1"}) {
    const Outcome tf32 = stepscope(command + " --matmul tf32");
    EXPECT_EQ(tf32.exit_code, 3) << tf32.err;
    EXPECT_THAT(tf32.err, HasSubstr("--matmul tf32: chose --trainer fp32, which has it"));
    EXPECT_THAT(tf32.err, HasSubstr("--trainer fp32 needs a GPU"));
    const Outcome both = stepscope(command + " --matmul tf32 --variant zero_grad=memset");
    EXPECT_EQ(both.exit_code, 3) << both.err;  // chose mixed for the variant's sake, which then refused the rate
    const Outcome mixed = stepscope(command + " --recompute gelu");
    EXPECT_EQ(mixed.exit_code, 3);
    EXPECT_THAT(mixed.err, HasSubstr("--recompute gelu: chose --trainer mixed, which has it"));
  }
  const Outcome fp32 = stepscope("train --steps 1 --matmul fp32");
  EXPECT_EQ(fp32.exit_code, 0) << "the CPU reference computes in fp32: " << fp32.err;
}

// A job script passes the same line at its first, second and last start.
TEST(cli, a_job_script_that_always_resumes_works_from_its_first_to_its_last_start) {
  const auto folder = fresh_folder();
  const std::string checkpoints = (folder / "run").string(), record = (folder / "run.json").string();
  const std::string line =
      "train --trainer reference --model tiny --batch-size 1 --seq-len 8 --lr-total-steps 4 --checkpoint-every 2 "
      "--resume --run-json " +
      record + " --checkpoints " + checkpoints;
  const Outcome first = stepscope(line + " --steps 2");
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("starts at step 1"));
  const Outcome second = stepscope(line + " --steps 4");
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("resumed after step 2"));
  EXPECT_THAT(stepscope("data --check " + checkpoints + "/step-00000004/state.bin").out,
              HasSubstr("state.bin: training state after step 4 of the reference trainer, B=1 T=8, 495104 parameters"));
  const std::string written = slurp(record);
  for (const char* steps : {" --steps 4", " --steps 3"}) {
    const Outcome last = stepscope(line + steps);
    EXPECT_EQ(last.exit_code, 0) << last.err;
    EXPECT_THAT(last.err, HasSubstr("this run is finished"));
    EXPECT_EQ(last.out, "");
    EXPECT_EQ(slurp(record), written);
  }
  const std::string absent = (folder / "absent").string();
  std::filesystem::rename(record, absent);
  const Outcome asked = stepscope(line + " --steps 4 --log " + absent + ".jsonl");
  EXPECT_THAT(asked.err, HasSubstr(record + " is not written; " + absent + ".jsonl gets no line"));
  EXPECT_FALSE(std::filesystem::exists(record) || std::filesystem::exists(absent + ".jsonl"));
  const Outcome other = stepscope(line + " --steps 8 --accumulation 2");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("--accumulation 1"));
  for (const auto& step : std::filesystem::directory_iterator(checkpoints)) std::filesystem::resize_file(step.path() / "state.bin", 20);
  const Outcome damaged = stepscope(line + " --steps 4");
  EXPECT_EQ(damaged.exit_code, 2);
  EXPECT_THAT(damaged.err, HasSubstr("no checkpoint in"));
  std::filesystem::remove_all(folder);
}

TEST(cli, doctor_without_a_gpu_exits_3_and_prints_the_cause) {
  const Outcome o = stepscope("doctor");
  EXPECT_EQ(o.exit_code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("FAIL  GPU"));
}

TEST(cli, doctor_says_who_could_start_ranks) {
  const auto folder = fresh_folder();
  const std::string here = "PATH=" + folder.string() + " CUDA_VISIBLE_DEVICES=";
  EXPECT_THAT(stepscope("doctor", here).out, HasSubstr("skip  starters of ranks    no mpirun, mpiexec, torchrun or srun"));
  for (const char* name : {"torchrun", "srun"}) {
    std::ofstream(folder / name) << "#!/bin/sh\n";
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }
  EXPECT_THAT(stepscope("doctor", here).out, HasSubstr("ok    starters of ranks    torchrun, srun\n"));
  std::filesystem::remove_all(folder);
}

#ifdef STEPSCOPE_WITH_CUDA
// A folder of the PATH is bytes; with one that is no UTF-8 the whole answer was nlohmann's exception.
TEST(cli, doctor_answers_in_json_whatever_the_path_holds) {
  const auto folder = fresh_folder(), odd = folder / "a\xff";
  std::filesystem::create_directory(odd);
  std::ofstream(odd / "ncu") << "#!/bin/sh\n";
  std::filesystem::permissions(odd / "ncu", std::filesystem::perms::owner_all);
  const Outcome o = stepscope("doctor --json", "PATH=" + odd.string() + " CUDA_VISIBLE_DEVICES=");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(o.exit_code, 3) << o.err;
  EXPECT_THAT(o.out, HasSubstr("a\uFFFD/ncu\""));
}

TEST(cli, doctor_finds_the_nccl_that_train_would_open) {
  const Outcome none = stepscope("doctor", "STEPSCOPE_NCCL_LIBRARY=/no/libnccl.so CUDA_VISIBLE_DEVICES=");
  EXPECT_THAT(none.out, HasSubstr("NCCL                 not found; only more than two GPUs, or several hosts, need it\n"));
  if (none.out.find("this build has no NCCL") != std::string::npos) GTEST_SKIP() << "built without nccl.h";
  EXPECT_THAT(none.out, HasSubstr("/no/libnccl.so"));
  const Outcome found = stepscope("doctor", "STEPSCOPE_NCCL_LIBRARY=" FAKE_NCCL " CUDA_VISIBLE_DEVICES=");
  EXPECT_THAT(found.out, HasSubstr("ok    NCCL                 2.28.9\n"));
  const Outcome old = stepscope("doctor", "FAKE_NCCL_VERSION=22500 STEPSCOPE_NCCL_LIBRARY=" FAKE_NCCL " CUDA_VISIBLE_DEVICES=");
  EXPECT_THAT(old.out, HasSubstr("NCCL 2.25.0 is older than 2.26.0"));
}
#endif

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

// A receipt would hold a report of what one process never ran.
TEST(GateConfigurations, none_is_of_what_ranks_do_among_themselves) {
  const Outcome o = stepscope("gate --list-configurations");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  for (const char* there : {"mixed stochastic\n", "mixed heads of 64\n"}) EXPECT_THAT(o.out, HasSubstr(there));
  for (const char* slot : {"communication=", "gradient_reduction=", "embedding_exchange=", "exchange_start="})
    EXPECT_THAT(o.out, testing::Not(HasSubstr(slot)));
}

}  // namespace
