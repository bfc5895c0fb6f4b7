// A session of experiments with a small script in the place of `stepscope`, which writes down what it was asked to do.
#pragma once
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "experiments/session/session.h"
#include "tests/temporary_folder.h"

namespace experiments {

class Session : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // `gate`, `arm`: what the script does for these commands.
  void program(const std::string& gate, const std::string& arm) {
    const std::filesystem::path file = folder_ / "program";
    std::ofstream(file) << "#!/bin/sh\necho \"$@\" >>" << (folder_ / "log").string() << "\ncase \"$1\" in\ngate) " << gate << ";;\narm) "
                        << arm << ";;\nprofile) echo no profile here; exit 1;;\nesac\n";
    chmod(file.c_str(), 0755);
  }
  static std::string gate_answer(bool passed) {
    return std::string("echo '{\"passed\": ") + (passed ? "true" : "false") +
           ", \"reports\": [{\"seed\": 7, \"checks\": [{\"name\": \"gradients\", \"tensor\": \"wte\", "
           "\"passed\": " +
           (passed ? "true" : "false") + ", \"error\": \"nan\", \"budget\": 1e-5}]}]}'; exit " + (passed ? "0" : "1");
  }
  // In the folder, a tree whose fp32 step is compiled from one file.
  void tree_of_one_file() const {
    std::filesystem::create_directories(folder_ / "fp32");
    std::ofstream(folder_ / "fp32/CMakeLists.txt") << "stepscope_stage(fp32_trainer SOURCES step.cpp)\n";
    std::ofstream(folder_ / "fp32/step.cpp") << "here";
  }
  // The fake arm, slower when it has the change.
  static std::string arm() {
    return "case \"$*\" in *new*) exec " BINARY_DIR "/bin/fake_arm good 1.03e6;; *) exec " BINARY_DIR "/bin/fake_arm good 1e6;; esac";
  }

  ExperimentSession session(const std::atomic<bool>* stop = nullptr, int command_steps = SessionOptions().command_steps) const {
    return ExperimentSession(options(stop, command_steps));
  }
  SessionOptions options(const std::atomic<bool>* stop = nullptr, int command_steps = SessionOptions().command_steps) const {
    SessionOptions o;
    o.command_steps = command_steps;
    o.root = folder_;
    o.program = (folder_ / "program").string();
    o.plan.thresholds.looks = extended_looks(8, 8);
    o.plan.block_s = o.plan.warmup_s = 0;
    o.plan.quads = 1;
    o.plan.alone = {.heat_s = 0.05, .settle_s = 0.02, .measure_s = 0.03, .teardown_s = 0, .turns = 0};
    o.plan.block_timeout_s = o.plan.start_timeout_s = 600;
    o.stop = stop;
    return o;
  }
  static Experiment experiment(const std::string& more = "") {
    return parse_experiment(
        "question: Q\nhypothesis: H\ntrainer: fp32\nchange: {variant: {op: new}}\npredicted: {saving_ms: "
        "0.1, arithmetic: x}\n"
        "workloads: [{model: d12, batch_size: 4, seq_len: 64}]\n" +
            more,
        "idea.yaml");
  }
  std::string log() const {
    std::ifstream in(folder_ / "log");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int count(const std::string& word) const {
    std::istringstream in(log());
    int n = 0;
    for (std::string line; std::getline(in, line);) n += line.rfind(word, 0) == 0;
    return n;
  }
  // A program that trains too, and a frozen baseline beside it; both print five steps, whatever they are told.
  void program_and_baseline() {
    program(gate_answer(true), arm());
    std::ofstream(folder_ / "program", std::ios::app)
        << "if [ \"$1\" = train ]; then for i in 1 2 3 4 5; do echo \"step $i | $((90 + i)) ms\"; done; fi\n";
    std::filesystem::create_directories(folder_ / "baselines");
    std::filesystem::copy(SOURCE_DIR "/baselines/fp32-v1", folder_ / "baselines/fp32-v1", std::filesystem::copy_options::recursive);
    std::ofstream(folder_ / "baseline-fp32-v1") << "#!/bin/sh\nfor i in 1 2 3 4 5; do echo \"step    $i | loss "
                                                   "4.5 | $((100 + i)) ms | 9 tokens/s\"; done\n";
    chmod((folder_ / "baseline-fp32-v1").c_str(), 0755);
  }
  std::filesystem::path folder_ = fresh_test_folder();
};

}  // namespace experiments
