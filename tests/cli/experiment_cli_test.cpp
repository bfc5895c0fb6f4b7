// `stepscope experiment` end to end on the CPU reference: real arms, real gate, real profiles. The machine is
// noisy and may be busy, so the difference is large (sixteen micro-batches: more than ten times the time).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/run_stepscope.h"

using nlohmann::json;
using ::testing::HasSubstr;

namespace {

namespace fs = std::filesystem;

class ExperimentCli : public ::testing::Test {
 protected:
  // Gates are most of the time of these commands, and all ask the same: each takes the answers of the first. Under ctest every test is a
  // process; they share a folder, which ctest removes (FIRST in CMakeLists.txt).
  static void SetUpTestSuite() {
    const char* shared = std::getenv("STEPSCOPE_TEST_ANSWERS");
    answers_ = shared != nullptr ? shared : fresh_folder();
    fs::create_directories(answers_);
  }
  static void TearDownTestSuite() {
    if (std::getenv("STEPSCOPE_TEST_ANSWERS") == nullptr) fs::remove_all(answers_);
  }
  void SetUp() override {
    root_ = fresh_folder();
    fs::create_directories(root_ / "experiments/studies");
    fs::create_directories(root_ / "gpt2/reference");
    std::ofstream(root_ / "gpt2/reference/a.h") << "// a source\n";
    std::ofstream(root_ / "gpt2/reference/CMakeLists.txt") << "stepscope_stage(gpt2_reference RANK 12 SOURCES a.h)\n";
    put("cpu-sixteen-micro-batches", "flags: {accumulation: 16}");
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& name, const std::string& change) const {
    std::ofstream(root_ / "experiments/studies" / (name + ".yaml"))
        << "question: What do fifteen more micro-batches cost?\nhypothesis: The same work sixteen "
           "times.\ntrainer: "
           "reference\nchange:\n  "
        << change
        << "\npredicted: {saving_ms: -1, arithmetic: sixteen times}\nworkloads: [{model: tiny, batch_size: 1, "
           "seq_len: 16}]\nminimum_effect_pct: 5\n";
  }
  // What measures with a gate of ours.
  static std::string gated(const std::string& arguments) { return "run " + arguments + " --gate-answers " + answers_.string(); }
  Outcome run(const std::string& arguments) const {
    return stepscope("experiment " + arguments, "CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 STEPSCOPE_ROOT=" + root_.string());
  }
  // Ends it with ctrl-C once it has started so many children, however long that takes: the gate of an arm is one, and each pair
  // starts two.
  Outcome run_until(size_t children, const std::string& arguments) const { return run_until(SIGINT, children, "", arguments); }
  // By `signal`, once it has started so many children and `file`, unless it is empty, is there.
  Outcome run_until(int signal, size_t children, const fs::path& file, const std::string& arguments) const {
    const std::string command = "cd " + root_.string() + " && OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= STEPSCOPE_ROOT=" + root_.string() +
                                " exec " + stepscope_program() + " experiment " + arguments + " >" + (root_ / "out").string() + " 2>" +
                                (root_ / "err").string() + " </dev/null";
    const pid_t shell = fork();
    if (shell == 0) {
      setpgid(0, 0);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    setpgid(shell, shell);
    std::set<std::string> seen;
    int status = 0;
    pid_t ended = 0;
    while ((seen.size() < children || (!file.empty() && !fs::exists(file))) && (ended = waitpid(shell, &status, WNOHANG)) == 0) {
      std::ifstream in("/proc/" + std::to_string(shell) + "/task/" + std::to_string(shell) + "/children");
      for (std::string pid; in >> pid;) seen.insert(pid);
      usleep(1000);
    }
    EXPECT_EQ(ended, 0) << "it ended by itself after " << seen.size() << " children";
    kill(-shell, signal);
    if (ended == 0) waitpid(shell, &status, 0);
    Outcome o;
    if (WIFEXITED(status)) o.exit_code = WEXITSTATUS(status);
    o.out = slurp(root_ / "out");
    o.err = slurp(root_ / "err");
    return o;
  }
  static constexpr const char* kQuick = " --quick --pairs 8 --no-extension --quads 1 --block-s 0.003 --warmup-s 0.003";
  fs::path root_;
  static inline fs::path answers_;
};

TEST_F(ExperimentCli, since_asks_for_a_revision_of_the_tree_that_this_program_was_built_from) {
  const Outcome unknown = stepscope("experiment since no-such-revision --trainer reference", "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(unknown.exit_code, 2) << unknown.err;
  EXPECT_THAT(unknown.err, HasSubstr("'no-such-revision': git knows no such revision"));
  const Outcome elsewhere = run("since HEAD --trainer reference");
  EXPECT_EQ(elsewhere.exit_code, 3) << elsewhere.err;
  EXPECT_THAT(elsewhere.err, HasSubstr("was not built from " + root_.string()));
  // The tree by another spelling, as a shell completes it.
  const Outcome here =
      stepscope("experiment since no-such-revision --trainer reference", "CUDA_VISIBLE_DEVICES= STEPSCOPE_ROOT=" SOURCE_DIR "/");
  EXPECT_EQ(here.exit_code, 2) << here.err;
  EXPECT_THAT(here.err, HasSubstr("'no-such-revision': git knows no such revision"));
}

TEST_F(ExperimentCli, list_says_which_patch_does_not_apply) {
  put("cpu-patched", "patch: cpu-patched.patch");
  const auto patch = [&](const std::string& line) {
    std::ofstream(root_ / "experiments/studies/cpu-patched.patch")
        << "--- a/gpt2/reference/a.h\n+++ b/gpt2/reference/a.h\n@@ -1 +1 @@\n-" << line << "\n+// another\n";
  };
  patch("// a source");
  EXPECT_THAT(run("list").out, ::testing::Not(HasSubstr("does not apply")));
  patch("// no such line");
  const Outcome o = run("list");
  EXPECT_THAT(
      o.out,
      HasSubstr("change: patch cpu-patched.patch\n  the patch does not apply to this tree: error: patch failed: gpt2/reference/a.h:1"));
  EXPECT_THAT(json::parse(run("list --json").out).at(0).at("patch_does_not_apply"), HasSubstr("patch failed: gpt2/reference/a.h:1"));
}

// Without a GPU nobody else says so before `run`, on the machine that is lent for it.
TEST_F(ExperimentCli, list_says_what_run_would_refuse) {
  EXPECT_THAT(run("list").out, ::testing::Not(HasSubstr("it cannot run")));
  put("cpu-odd", "flags: {bogus: 1}");
  EXPECT_THAT(run("list").out, HasSubstr("change: --bogus 1\n  it cannot run: arm B, tiny B=1 T=16: unknown here: --bogus 1\n  never run"));
  EXPECT_THAT(json::parse(run("list --json").out).at(0).at("refused"), HasSubstr("unknown here: --bogus 1"));
}

// A variant or flag that was renamed, or has become the default, is renamed in its experiment too.
TEST_F(ExperimentCli, would_run_every_experiment_of_this_tree) {
  for (const auto& entry : fs::directory_iterator(fs::path(SOURCE_DIR) / "experiments/studies"))
    if (entry.is_regular_file()) fs::copy(entry.path(), root_ / "experiments/studies");
  const json all = json::parse(run("list --json").out);
  EXPECT_GT(all.size(), 40u);
  for (const json& e : all) EXPECT_FALSE(e.contains("refused")) << "experiments/studies/" << e["name"] << ".yaml: " << e["refused"];
}

TEST_F(ExperimentCli, a_tree_without_experiments_is_bad_input_and_stays_as_it_is) {
  fs::remove_all(root_ / "experiments");
  for (const char* command : {"list", "check", "index", "run --all", "run --all --changed"}) {
    const Outcome o = run(command);
    EXPECT_EQ(o.exit_code, 2) << command;
    EXPECT_THAT(
        o.err,
        HasSubstr(
            "experiments/studies: no such folder, or none that may be read; expected the tree of stepscope's sources in STEPSCOPE_ROOT"));
  }
  EXPECT_FALSE(fs::exists(root_ / "docs"));
}

TEST_F(ExperimentCli, what_the_trainer_refuses_is_no_false_alarm) {
  const Outcome o = run(std::string("aa --trainer reference --model tiny -b 1 -t 16 --no-gate --data nowhere.bin") + kQuick);
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err, HasSubstr("nowhere.bin: no such file"));
}

TEST_F(ExperimentCli, finds_what_is_slower_writes_it_down_and_exits_1) {
  const Outcome o = run(gated("cpu-sixteen-micro-batches") + kQuick);
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("slower"));
  const json v = json::parse(slurp(root_ / "experiments/studies/cpu-sixteen-micro-batches/verdict.json"));
  EXPECT_EQ(v["verdict"], "slower");
  EXPECT_EQ(v["workloads"][0]["pairs"].size(), 8u);
  EXPECT_TRUE(v["workloads"][0]["b"]["gate"]["passed"]);
  EXPECT_TRUE(v["workloads"][0].contains("waterfall"));
  double sum = v["workloads"][0]["waterfall"]["other"]["delta_ns"].get<double>() +
               v["workloads"][0]["waterfall"]["idle"]["delta_ns"].get<double>() +
               v["workloads"][0]["waterfall"]["rest"]["delta_ns"].get<double>();
  for (const json& k : v["workloads"][0]["waterfall"]["kernels"]) sum += k["delta_ns"].get<double>();
  EXPECT_NEAR(sum, v["workloads"][0]["waterfall"]["delta_ns"].get<double>(), 1);
  EXPECT_THAT(slurp(root_ / "experiments/studies/cpu-sixteen-micro-batches/README.md"), HasSubstr("**slower**"));

  // It holds until the code changes, and an idea that never helped is no regression.
  const Outcome again = run(std::string("run --all --changed") + kQuick);
  EXPECT_EQ(again.exit_code, 0) << again.out << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing to run"));
  std::ofstream(root_ / "gpt2/reference/a.h", std::ios::app) << "// a comment\n";
  EXPECT_THAT(run("list").out, ::testing::Not(HasSubstr("STALE")));
  std::ofstream(root_ / "gpt2/reference/a.h") << "int another;\n";
  EXPECT_THAT(run("list").out, HasSubstr("STALE: the sources of the reference trainer changed"));
  const Outcome changed = run(gated("--all --changed") + kQuick);
  EXPECT_EQ(changed.exit_code, 0) << changed.out << changed.err;
  EXPECT_THAT(changed.out, HasSubstr("slower"));

  EXPECT_EQ(run("index").exit_code, 0);
  EXPECT_EQ(run("check").exit_code, 0);
  const fs::path file = root_ / "experiments/studies/cpu-sixteen-micro-batches/verdict.json";
  std::string edited = slurp(file);
  edited.replace(edited.find("\"slower\""), 8, "\"faster\"");
  std::ofstream(file) << edited;
  const Outcome refused = run("check " + file.string());
  EXPECT_EQ(refused.exit_code, 1) << refused.out;
  EXPECT_THAT(refused.out, HasSubstr("changed by hand"));
  // What is no verdict is bad input; the false one is named all the same.
  std::ofstream(root_ / "none.json") << R"({"schema": "stepscope.profile/1"})";
  const Outcome none = run("check " + (root_ / "none.json").string() + " " + (root_ / "nowhere.json").string() + " " + file.string());
  EXPECT_EQ(none.exit_code, 2) << none.out;
  EXPECT_THAT(none.err, HasSubstr("none.json: not a verdict document: schema \"stepscope.profile/1\", expected stepscope.verdict/2"));
  EXPECT_THAT(none.err, HasSubstr("nowhere.json: cannot be read"));
  EXPECT_THAT(none.out, HasSubstr("changed by hand"));
  EXPECT_THAT(slurp(root_ / "docs/study/README.md"),
              HasSubstr("| [cpu-sixteen-micro-batches](../../experiments/studies/cpu-sixteen-micro-batches/README.md) |"));
}

TEST_F(ExperimentCli, stops_at_the_first_of_three_looks_for_what_is_plain) {
  const Outcome o = run(gated("cpu-sixteen-micro-batches --quick --sequential --quads 1 --block-s 0.003 --warmup-s 0.003 --no-profile"));
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  const json v = json::parse(slurp(root_ / "experiments/studies/cpu-sixteen-micro-batches/verdict.json"));
  EXPECT_EQ(v["workloads"][0]["pairs"].size(), 6u);
  EXPECT_EQ(v["thresholds"]["looks"].size(), 3u);
  EXPECT_THAT(slurp(root_ / "experiments/studies/cpu-sixteen-micro-batches/README.md"), HasSubstr("(look 1 of 3), interval at 99.15%"));
  EXPECT_EQ(run("run cpu-sixteen-micro-batches --sequential --no-extension").exit_code, 2);
}

// The CPU's profile has the same ranges for any argument: what was measured decides, and is no comparison of identical code.
TEST_F(ExperimentCli, takes_no_two_steps_of_the_cpu_for_the_same_code) {
  put("cpu-same", "flags: {eps: 2e-8}");  // an argument of one op
  const Outcome o = run(gated("cpu-same") + kQuick);
  EXPECT_THAT(o.exit_code, ::testing::AnyOf(0, 1, 4)) << o.err;  // as the machine's noise is
  EXPECT_THAT(o.out, ::testing::Not(HasSubstr("same_code")));
  const json w = json::parse(slurp(root_ / "experiments/studies/cpu-same/verdict.json"))["workloads"][0];
  EXPECT_EQ(w["verdict"], w["statistics"]["verdict"]) << w["sentence"];
  if (w["verdict"] != "invalid") {  // where a busy machine disturbed the steps nothing is profiled
    EXPECT_FALSE(w.at("same_code").at("same"));
  }
  EXPECT_FALSE(fs::exists(root_ / "experiments/studies/aa-ledger.jsonl"));
  // A planted slowdown is a test of the procedure, and no verdict.
  const std::string verdict = slurp(root_ / "experiments/studies/cpu-same/verdict.json");
  const fs::path unfinished = root_ / "experiments/studies/cpu-same/last-attempt.json";
  std::ofstream(unfinished) << "what a command before it left";
  EXPECT_EQ(run(gated("cpu-same --plant 900") + kQuick).exit_code, 1);
  EXPECT_TRUE(fs::exists(unfinished));
  EXPECT_TRUE(fs::exists(root_ / "experiments/studies/cpu-same/planted.json"));
  EXPECT_EQ(slurp(root_ / "experiments/studies/cpu-same/verdict.json"), verdict);
}

TEST_F(ExperimentCli, compares_an_arm_with_itself_and_finds_what_is_planted) {
  const std::string aa = "aa --trainer reference --model tiny --batch-size 1 --seq-len 16 --minimum-effect 20" + std::string(kQuick);
  const Outcome planted = run(aa + " --plant 900 --gate-answers " + answers_.string());
  EXPECT_EQ(planted.exit_code, 0) << planted.out << planted.err;
  EXPECT_THAT(planted.out, HasSubstr("1 slower"));
  const Outcome same = run(aa + " --no-gate --record " + (root_ / "aa.json").string());
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  const Outcome rates = run("resample --pairs 8 --no-extension " + (root_ / "aa.json").string());
  EXPECT_EQ(rates.exit_code, 0) << rates.err;
  EXPECT_THAT(rates.out, HasSubstr("1000 resampled trials, 0.0% planted"));
  // Four processes alone are two pairs, and no pair in turns comes behind them.
  const Outcome alone =
      run("aa --trainer reference --model tiny --batch-size 1 --seq-len 16 --no-gate --alone 4 --settle-s 0 --heat-s 0 "
          "--measure-s 0.01 --record " +
          (root_ / "alone.json").string());
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr(" over 2 pairs"));
  EXPECT_EQ(json::parse(slurp(root_ / "alone.json")).at("runs").size(), 4u);
}

// The arm of a plant on the GPU takes steps before it is told to run, and rests in between.
TEST_F(ExperimentCli, an_arm_counts_no_rest_before_its_run_as_a_step) {
  const std::string arm =
      "CUDA_VISIBLE_DEVICES= " + stepscope_program() + " arm --trainer reference --model tiny --batch-size 1 --seq-len 16 2>/dev/null";
  const std::string told = "(echo step 2; sleep 1; echo run 0.05 1 0.05 4) | " + arm;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(told.c_str(), "r"), pclose);
  std::string out;
  for (char buffer[4096]; const size_t n = fread(buffer, 1, sizeof buffer, pipe.get());) out.append(buffer, n);
  std::istringstream lines(out);
  std::string ready, stepped, ran;
  ASSERT_TRUE(std::getline(lines, ready) && std::getline(lines, stepped) && std::getline(lines, ran)) << out;
  const std::vector<double> times = json::parse(ran).at("times_ns");
  ASSERT_GE(times.size(), 5u);
  EXPECT_LT(times[0], 0.9e9);
}

// The truth comes from runs of its own, with both arms in every round.
TEST_F(ExperimentCli, holds_intervals_against_long_runs_of_what_is_planted) {
  const fs::path record = root_ / "coverage.json";
  const Outcome o = run(
      "coverage host:100 --trainer reference --model tiny --batch-size 1 --seq-len 16 --settle-s 0 --heat-s 0 --measure-s 0.06 --pairs 7 "
      "--no-extension --turns 0 --truth-rounds 2 --truth-s 0.1 --record " +
      record.string());
  EXPECT_THAT(o.exit_code, ::testing::AnyOf(0, 1, 4)) << o.err;  // steps of a hundredth of a millisecond on a busy machine
  EXPECT_THAT(o.out, HasSubstr("host:100     slower"));
  EXPECT_THAT(o.out, HasSubstr(o.exit_code == 4 ? "0 of 0 intervals alone hold the truth" : "of 1 intervals alone hold the truth"));
  const json plant = json::parse(slurp(record)).at("plants").at(0);
  EXPECT_EQ(plant.at("runs").size(), 14u);
  EXPECT_EQ(plant.at("truth_runs").size(), 4u);
  // What a process measures may be a microsecond short of its half of the 0.1 s, because sums of times round.
  for (const json& r : plant.at("truth_runs")) EXPECT_GE(r.at("total_ns").get<double>() + r.at("stalled_ns").get<double>(), 0.05e9 - 1e3);
  EXPECT_GT(plant.at("truth_pct"), 20);
  EXPECT_GT(plant.at("truth_half_pct"), 0);
  EXPECT_EQ(plant.at("held"), o.exit_code == 4 ? json() : json(o.exit_code == 0));
}

TEST_F(ExperimentCli, takes_any_two_commands) {
  const Outcome o =
      run("run --pairs 8 --no-extension --a 'for i in 1 2 3; do echo step $i 5.$i ms; done' --b 'for i in 1 "
          "2 3; do echo step $i 4.$i ms; done'");
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("faster"));
  EXPECT_THAT(o.out, HasSubstr("nothing checked"));
  const Outcome bad = run("run --pairs 8 --no-extension --a 'echo step 1 5 ms; echo step 2 5 ms' --b 'exit 3'");
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.out, HasSubstr("invalid"));
  const std::string replay = "'for i in 1 2 3 4 5; do echo step $i 900.$i ms; done'",
                    two_replays = "run --pairs 8 --no-extension --a " + replay + " --b " + replay;
  EXPECT_THAT(run(two_replays).out, ::testing::AllOf(HasSubstr("invalid"), HasSubstr("--recorded for times of another run")));
  EXPECT_EQ(run(two_replays + " --recorded").exit_code, 0);
  std::ifstream chapter(SOURCE_DIR "/docs/learn/7-measuring.md");
  for (std::string line; std::getline(chapter, line);)
    if (line.find("experiment run --a 'python3 docs/learn/exercises/replay.py") != std::string::npos) {
      EXPECT_THAT(line, HasSubstr(" --recorded "));
    }
  EXPECT_EQ(run("run --a true").exit_code, 2);
  EXPECT_EQ(run("run").exit_code, 2);
  EXPECT_EQ(run("run no-such-experiment").exit_code, 2);
}

// A pipe that nobody reads ends a command that writes into it.
TEST_F(ExperimentCli, a_verdict_of_two_commands_is_kept_before_it_is_told) {
  const std::string arm = "'for i in 1 2 3; do echo step $i 5.$i ms; done'";
  run("run --pairs 8 --no-extension --a " + arm + " --b " + arm + " --out " + (root_ / "kept").string() + " | true");
  EXPECT_TRUE(fs::exists(root_ / "kept/verdict.json"));
}

TEST_F(ExperimentCli, another_number_of_ranks_is_a_change) {
  const auto put_ranks = [&](int ranks) {
    std::ofstream(root_ / "experiments/studies/ranks.yaml")
        << "question: Q\nhypothesis: H\ntrainer: fp32\nchange: {flags: {gpus: " << ranks
        << "}}\npredicted: {saving_ms: -1, arithmetic: x}\nworkloads: [{model: d12, batch_size: 1, seq_len: 64, gpus: 2}]\n";
  };
  put_ranks(4);
  const Outcome more = run("run ranks");
  EXPECT_EQ(more.exit_code, 3) << more.err;
  EXPECT_THAT(more.err, HasSubstr("--trainer fp32 needs a GPU"));
  put_ranks(2);
  const Outcome as_many = run("run ranks");
  EXPECT_EQ(as_many.exit_code, 2) << as_many.err;
  EXPECT_THAT(as_many.err, HasSubstr("`--gpus 2` changes nothing: both arms would run `stepscope train "));
}

TEST_F(ExperimentCli, refuses_two_changes_and_what_the_trainer_refuses) {
  put("two", "flags: {accumulation: 2, clip: 0}");
  const Outcome two = run("run two");
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_THAT(two.err, HasSubstr("one experiment changes one thing"));
  fs::remove(root_ / "experiments/studies/two.yaml");
  put("variant", "variant: {adamw: per_tensor}");
  const Outcome variant = run("run variant");
  EXPECT_EQ(variant.exit_code, 2) << variant.out;
  // A build without CUDA knows no other trainer's.
  EXPECT_THAT(variant.err,
              testing::ContainsRegex("/variant\\.yaml: arm B, tiny B=1 T=16: --variant( adamw=per_tensor: the reference trainer "
                                     "has no such variant|: the CPU reference has no variants)"));
}

TEST_F(ExperimentCli, an_experiment_that_is_named_twice_would_write_its_folder_twice) {
  const Outcome twice = run("run cpu-sixteen-micro-batches cpu-sixteen-micro-batches");
  EXPECT_EQ(twice.exit_code, 2) << twice.err;
  EXPECT_THAT(twice.err, HasSubstr("cpu-sixteen-micro-batches: given twice"));
}

TEST_F(ExperimentCli, keeps_what_was_measured_on_ctrl_c_and_exits_4) {
  const fs::path verdict = root_ / "experiments/studies/cpu-sixteen-micro-batches/verdict.json";
  // Two gates (one where both arms are alike to it), then the arms of a first pair, of a second, and one of a third: so at least one
  // pair is complete and at most half of the 26 planned ones.
  const Outcome o =
      run_until(7, gated("cpu-sixteen-micro-batches --quick --pairs 26 --no-extension --quads 2 --block-s 0.015 --warmup-s 0.01"));
  EXPECT_EQ(o.exit_code, 4) << o.out << o.err;
  const json v = json::parse(slurp(verdict));
  EXPECT_EQ(v["verdict"], "undecided") << o.out;
  // Without the folder of the gate's answers, which only this machine has.
  EXPECT_EQ(
      v["command"],
      "stepscope experiment run cpu-sixteen-micro-batches --quick --pairs 26 --no-extension --quads 2 --block-s 0.015 --warmup-s 0.01");
  EXPECT_EQ(v["workloads"][0]["reason"], "interrupted");
  EXPECT_GT(v["workloads"][0]["pairs"].size(), 0u);
  EXPECT_LT(v["workloads"][0]["pairs"].size(), 26u);
  EXPECT_THAT(run("list").out, HasSubstr("STALE: the last run did not end in an answer"));
}

TEST_F(ExperimentCli, does_not_let_an_interrupted_run_replace_a_verdict) {
  ASSERT_EQ(run(gated("cpu-sixteen-micro-batches") + kQuick).exit_code, 1);
  const fs::path folder = root_ / "experiments/studies/cpu-sixteen-micro-batches";
  const std::string before = slurp(folder / "verdict.json"),
                    page = slurp(root_ / "experiments/studies/cpu-sixteen-micro-batches/README.md");
  const Outcome o = run_until(1, gated("cpu-sixteen-micro-batches --quick --pairs 26 --no-extension --quads 8 --block-s 0.1"));
  EXPECT_EQ(o.exit_code, 4) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("stands"));
  EXPECT_EQ(slurp(folder / "verdict.json"), before);
  EXPECT_EQ(slurp(root_ / "experiments/studies/cpu-sixteen-micro-batches/README.md"), page);
  EXPECT_EQ(json::parse(slurp(folder / "last-attempt.json"))["workloads"][0]["reason"], "interrupted");
}

TEST_F(ExperimentCli, keeps_what_was_measured_when_it_is_killed_and_goes_on_there) {
  const fs::path folder = root_ / "experiments/studies/cpu-sixteen-micro-batches", attempt = folder / "last-attempt.json";
  const std::string flags = " --no-extension --turns 0 --no-profile --heat-s 0.1 --settle-s 0.02 --measure-s ",
                    alone = gated("cpu-sixteen-micro-batches --pairs 8" + flags + "0.02");
  run_until(SIGKILL, 1, attempt, alone);
  const json left = json::parse(slurp(attempt))["workloads"][0];
  EXPECT_EQ(left["reason"], "interrupted");
  const size_t runs = left["runs"].size();
  EXPECT_GE(runs, 2u);
  EXPECT_LT(runs, 16u);
  EXPECT_FALSE(fs::exists(folder / "verdict.json"));

  // Only as it was measured.
  const Outcome other = run(gated("cpu-sixteen-micro-batches --continue --pairs 8" + flags + "0.03"));
  EXPECT_EQ(other.exit_code, 2) << other.out << other.err;
  EXPECT_THAT(other.err, HasSubstr("of another --measure-s: 0.02 s, now 0.03 s"));
  const Outcome plan = run(gated("cpu-sixteen-micro-batches --continue --pairs 9" + flags + "0.02"));
  EXPECT_EQ(plan.exit_code, 2) << plan.out << plan.err;
  EXPECT_THAT(plan.err, HasSubstr("looks after 8 pairs for 5%, now looks after 9 pairs for 5%"));

  // Steps of milliseconds on a machine so busy that the audit of their clocks refuses them are tried again, from what was left.
  const std::string kept = slurp(attempt);
  Outcome o;
  json whole;
  int tries = 0;
  do {
    fs::remove(folder / "verdict.json");
    std::ofstream(attempt) << kept;
    o = run(alone + " --continue");
    ASSERT_TRUE(fs::exists(folder / "verdict.json")) << o.out << o.err;
    EXPECT_FALSE(fs::exists(attempt));
    whole = json::parse(slurp(folder / "verdict.json"))["workloads"][0];
  } while (whole["reason"] == "arm_failed" && ++tries < 4);
  ASSERT_EQ(whole["runs"].size(), 16u) << o.out << o.err;
  for (size_t i = 0; i < runs; ++i) EXPECT_EQ(whole["runs"][i]["total_ns"], left["runs"][i]["total_ns"]) << i;
  std::map<int, std::string> arms;
  for (const json& r : whole["runs"]) arms[r["pair"].get<int>()] += r["arm"].get<std::string>();
  EXPECT_EQ(arms.size(), 8u);
  for (const auto& [pair, both] : arms) EXPECT_EQ(both.size(), 2u) << pair;
  EXPECT_EQ(whole["sustained"]["commands"], 2);
  EXPECT_THAT(slurp(folder / "README.md"), HasSubstr("by 2 commands that went on from each other"));

  const Outcome again = run(alone + " --continue");
  EXPECT_EQ(again.exit_code, 1) << "it is slower\n" << again.out << again.err;
  EXPECT_THAT(again.err, HasSubstr("is decided, and left out"));
  EXPECT_EQ(json::parse(run(alone + " --continue --json").out)[0]["verdict"], "slower");
}

TEST_F(ExperimentCli, goes_on_when_one_experiment_of_many_cannot_run_here) {
  std::ofstream(root_ / "experiments/studies/a-needs-a-gpu.yaml")
      << "question: Q?\nhypothesis: H.\ntrainer: fp32\nchange: {variant: {zero_grad: memset}}\npredicted: "
         "{saving_ms: 1, arithmetic: "
         "none}\nworkloads: [{model: d12, batch_size: 4, seq_len: 1024}]\n";
  fs::create_directories(root_ / "fp32");
  const Outcome o = run(gated("--all") + kQuick);
  EXPECT_EQ(o.exit_code, 3) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("a-needs-a-gpu"));
  EXPECT_THAT(o.out, HasSubstr("cpu-sixteen-micro-batches"));
  EXPECT_TRUE(fs::exists(root_ / "experiments/studies/cpu-sixteen-micro-batches/README.md"));
}

TEST_F(ExperimentCli, leaves_no_folder_of_an_experiment_that_is_refused) {
  const fs::path studies = root_ / "experiments/studies";
  fs::create_directories(root_ / "fp32");
  fs::create_directories(studies / "was-there");
  for (const char* name : {"is-new", "was-there"}) {
    std::ofstream(studies / (std::string(name) + ".yaml"))
        << "question: Q?\nhypothesis: H.\ntrainer: fp32\nchange: {variant: {zero_grad: memset}}\npredicted: {saving_ms: 1, arithmetic: "
           "none}\nworkloads: [{model: d12, batch_size: 4, seq_len: 1024}]\n";
    EXPECT_EQ(run(gated(name) + kQuick).exit_code, 3) << name;
  }
  EXPECT_FALSE(fs::exists(studies / "is-new"));
  EXPECT_TRUE(fs::exists(studies / "was-there"));
}

// Exit 3: understood, and this machine has no GPU for it.
TEST_F(ExperimentCli, arms_of_several_gpus_take_the_flags_of_ranks) {
  const auto asked = [&](const std::string& change, const std::string& workload) {
    std::ofstream(root_ / "experiments/studies/ranks.yaml")
        << "question: q\nhypothesis: h\ntrainer: mixed\nchange:\n  " << change
        << "\npredicted: {saving_ms: -1, arithmetic: a}\nworkloads: [{model: d12, batch_size: 4, seq_len: 1024" << workload << "}]\n";
    return run("run ranks");
  };
  for (const char* change :
       {"flags: {bucket-mib: 110}", "flags: {communicator: nccl}", "flags: {nccl-blocks: 16}", "variant: {communication: zero1}"})
    EXPECT_EQ(asked(change, ", gpus: 2").exit_code, 3) << change;
  EXPECT_EQ(asked("flags: {gpus: 2}", "").exit_code, 3) << "one GPU against two";
  const Outcome alone = asked("flags: {bucket-mib: 110}", "");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--bucket-mib: this arm trains on one GPU; expected a workload with `gpus: 2` or more"));
  EXPECT_THAT(asked("flags: {bucket-mib: 0}", ", gpus: 2").err, HasSubstr("changes nothing"));
  EXPECT_THAT(asked("flags: {communicator: peer, nccl-blocks: 16}\ncompound: true", ", gpus: 2").err, HasSubstr("--nccl-blocks 16"));
#ifdef STEPSCOPE_WITH_CUDA
  EXPECT_THAT(asked("variant: {communication: zero1}", "").err, HasSubstr("changes nothing (communication=zero1 is for several GPUs)"));
  EXPECT_THAT(asked("variant: {zero_grad: overwrite}", "").err, HasSubstr("changes nothing (zero_grad=overwrite is the default)"));
  EXPECT_EQ(asked("variant: {zero_grad: overwrite}\ncommon: {variant: {zero_grad: memset}}", "").exit_code, 3) << "arm A has another";
#endif
  fs::remove(root_ / "experiments/studies/ranks.yaml");
}

TEST_F(ExperimentCli, refuses_before_the_gate_what_cannot_be_asked) {
  const auto refused = [&](const std::string& change, const std::string& why) {
    put("odd", change);
    const Outcome o = run("run odd");
    EXPECT_EQ(o.exit_code, 2) << change << o.out << o.err;
    EXPECT_THAT(o.err, HasSubstr(why)) << change;
    EXPECT_FALSE(fs::exists(root_ / "experiments/studies/odd/verdict.json"));
  };
  refused("flags: {bogus: 1}", "unknown here: --bogus 1");
  refused("flags: {clip: 1.0}", "changes nothing");
  refused("flags: {deterministic: true}", "changes nothing");  // the CPU reference is, without the flag too
  refused("flags: {accumulation: -1}", "accumulation");
  refused("flags: {matmul: bf16}", "--matmul");
  EXPECT_EQ(run("run cpu-sixteen-micro-batches --pairs 6 --no-extension").exit_code, 2);
  EXPECT_EQ(run("run cpu-sixteen-micro-batches --pairs 30 --no-extension").exit_code, 2);
  // Three looks at seven pairs have levels that nobody simulated; so few gave verdicts of two.
  const Outcome few = run("run cpu-sixteen-micro-batches --pairs 7 --sequential");
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_THAT(few.err, HasSubstr("--pairs is 7: expected 8 to 26\n"));
  // Chapter 7 takes seven with --no-extension; who left it out read of no plan that takes them.
  EXPECT_THAT(run("run cpu-sixteen-micro-batches --pairs 7").err,
              HasSubstr("--pairs is 7: expected 9 to 26 (7 to 26 with --no-extension, 8 to 26 with --sequential)\n"));
  EXPECT_EQ(run("run cpu-sixteen-micro-batches --plant nan").exit_code, 2);
  EXPECT_EQ(run("run --a true --b true --block-s 1").exit_code, 2);
}

TEST_F(ExperimentCli, refuses_flags_whose_effect_nobody_would_see_before_anything_is_gated) {
  const std::string aa = "aa --trainer reference --model tiny ", record = " --record " + (root_ / "aa.json").string();
  const auto wrong = [&](const std::string& line, const std::string& flag) {
    const Outcome o = run(line);
    EXPECT_EQ(o.exit_code, 2) << line << ": " << o.err;
    EXPECT_THAT(o.err, HasSubstr(flag)) << line;
    EXPECT_EQ(o.out, "") << line;
  };
  wrong(aa + "--alone 4", "--record");
  wrong(aa + "--alone 2" + record, "--alone: found '2', expected a whole number, 4 to 65536");
  wrong(aa + "--alone 5" + record, "even number");
  wrong(aa + "--alone 4 --trials 2" + record, "--trials");
  for (const char* flag : {"--quick", "--sequential", "--no-extension", "--pairs 9", "--turns 2", "--block-s 1", "--quads 3"})
    wrong(aa + "--alone 4 " + flag + record, std::string(flag).substr(0, std::string(flag).find(' ')));
  wrong(aa + "--plant 1" + record, "--record");
  wrong(aa + "--skip-loss-outliers 3", "--skip-loss-outliers: every step that is measured has its update");
  wrong("since HEAD --skip-grad-outliers 3", "--skip-grad-outliers: every step that is measured has its update");
  std::ofstream(root_ / "kept.json") << "{}";
  wrong(aa + "--record " + (root_ / "kept.json").string(), "kept.json: is there already");
  EXPECT_EQ(slurp(root_ / "kept.json"), "{}");
  wrong("run no-such-experiment --out " + (root_ / "results").string(), "no-such-experiment");
  EXPECT_FALSE(fs::exists(root_ / "results")) << "made for an experiment that there is not";
  wrong("run cpu-sixteen-micro-batches --plant-gpu dram", "tensor:PCT");
  wrong("run cpu-sixteen-micro-batches --plant-gpu dram:1 --plant 1", "--plant");
  wrong("run cpu-sixteen-micro-batches --gate-command true", "--gate-command");
  wrong("run cpu-sixteen-micro-batches --skip-steps 0", "--skip-steps");
  wrong("run --a true --b true --changed", "--changed");
  wrong("run --a true --b true --gate-answers " + answers_.string(), "--gate-answers");
  wrong("run --a true --b true --keep-profiles " + (root_ / "profiles").string(), "--keep-profiles: --a and --b are not profiled");
  wrong(aa + "--no-gate --gate-answers " + answers_.string(), "--gate-answers");
  wrong("coverage disk:1 --trainer reference --model tiny", "'disk:1': expected tensor:PCT, dram:PCT, idle:PCT or host:PCT");
  wrong("coverage host:101 --trainer reference --model tiny", "'host:101'");
  wrong("coverage --trainer reference --model tiny", "plant");
  wrong("coverage host:1 --truth-rounds 1", "--truth-rounds");
  wrong("coverage host:1 dram:1 --trainer reference --model tiny", "'dram:1' is work on a GPU");
  const Outcome no_gpu = run("coverage host:1 dram:1");  // nobody chose the CPU
  EXPECT_EQ(no_gpu.exit_code, 3) << no_gpu.err;
  EXPECT_THAT(no_gpu.err, HasSubstr("'dram:1' is work on a GPU, and there is none: "));
  wrong("coverage disk:1", "'disk:1': expected tensor:PCT");
  wrong("run cpu-sixteen-micro-batches --plant-gpu dram:1", "--plant-gpu dram:1: is work on a GPU");
  wrong("coverage host:1 --quick", "--quick");
  wrong("resample --turns 2 " + (root_ / "aa.json").string(), "--turns");
  wrong("check " + (root_ / "absent.json").string(), "absent.json: cannot be read");
}

TEST_F(ExperimentCli, lists_the_others_when_one_file_is_no_experiment) {
  std::ofstream(root_ / "experiments/studies/broken.yaml") << "foo: 1\n";
  const Outcome o = run("list --json");
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_EQ(json::parse(o.out).size(), 1u);
  EXPECT_THAT(o.err, HasSubstr("broken.yaml"));
}

// `index` once wrote the verdict that lay in X over the one that lay in the folder of its name.
TEST_F(ExperimentCli, a_verdict_lies_in_the_folder_of_its_name) {
  const fs::path studies = root_ / "experiments/studies", name = "fp32-zero-grad-memset";
  const std::string written = slurp(fs::path(SOURCE_DIR) / "experiments/studies" / name / "verdict.json");
  for (const fs::path& folder : {name, fs::path("kept")}) {
    fs::create_directories(studies / folder);
    std::ofstream(studies / folder / "verdict.json") << written;
  }
  const std::string says =
      "kept/verdict.json: it is the verdict of fp32-zero-grad-memset, expected that of kept, by the name of its folder";
  const Outcome check = run("check");
  EXPECT_EQ(check.exit_code, 1);
  EXPECT_THAT(check.out, HasSubstr(says));
  const Outcome index = run("index");
  EXPECT_EQ(index.exit_code, 2);
  EXPECT_THAT(index.err, HasSubstr(says));
  put("kept", "flags: {eps: 2e-8}");
  const Outcome list = run("list");
  EXPECT_EQ(list.exit_code, 2);
  EXPECT_THAT(list.err, HasSubstr("kept/verdict.json: it is the verdict of fp32-zero-grad-memset"));
  EXPECT_THAT(list.out, ::testing::Not(HasSubstr("slower"))) << "another experiment's result under this name";
  EXPECT_EQ(slurp(studies / name / "verdict.json"), written);
  EXPECT_FALSE(fs::exists(studies / name / "README.md"));
}

TEST_F(ExperimentCli, a_verdict_whose_experiment_is_gone_is_named) {
  const fs::path folder = root_ / "experiments/studies/fp32-zero-grad-memset";
  fs::create_directories(folder);
  fs::copy_file(fs::path(SOURCE_DIR) / "experiments/studies/fp32-zero-grad-memset/verdict.json", folder / "verdict.json");
  for (const char* command : {"list", "check", "index"}) {
    const Outcome o = run(command);
    EXPECT_EQ(o.exit_code, command == std::string("check") ? 1 : 0) << command;
    EXPECT_THAT(o.err, HasSubstr("a verdict without an experiment, expected " + folder.string() + ".yaml")) << command;
  }
  std::ofstream(folder.string() + ".yaml") << slurp(fs::path(SOURCE_DIR) / "experiments/studies/fp32-zero-grad-memset.yaml");
  EXPECT_THAT(run("list").err, ::testing::Not(HasSubstr("a verdict without")));
}

TEST_F(ExperimentCli, lists_the_others_when_one_verdict_is_broken) {
  fs::create_directories(root_ / "experiments/studies/cpu-sixteen-micro-batches");
  std::ofstream(root_ / "experiments/studies/cpu-sixteen-micro-batches/verdict.json")
      << R"({"schema": "stepscope.verdict/1", "verdict": "same", "workloads": []})";
  put("cpu-same", "flags: {eps: 2e-8}");
  const Outcome o = run("list --json");
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_EQ(json::parse(o.out).size(), 2u);
  EXPECT_THAT(o.out, HasSubstr("verdict.json: name: is missing"));
  EXPECT_THAT(o.err, HasSubstr("verdict.json: name: is missing"));
  const Outcome text = run("list");
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_THAT(text.out, ::testing::AllOf(HasSubstr("its verdict cannot be read"), HasSubstr("never run")));
  std::ofstream(root_ / "no.json") << R"({"schema": 7})";
  EXPECT_EQ(run("resample " + (root_ / "no.json").string()).exit_code, 2);
  json recorded{{"schema", "stepscope.aa/1"}, {"what", 5}};
  for (int i = 0; i < 12; ++i) recorded["pairs"].push_back({{"log_ratio", 1e-4 * i}});
  std::ofstream(root_ / "no.json") << recorded;
  const Outcome no_text = run("resample " + (root_ / "no.json").string());
  EXPECT_EQ(no_text.exit_code, 2);
  EXPECT_THAT(no_text.err, HasSubstr("no.json: what: expected a string"));
}

}  // namespace
