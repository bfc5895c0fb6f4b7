// Small programs as arms (fake_arm.cpp), what they leave behind, and plans that need no second.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/runner/pair_runner.h"
#include "tests/temporary_folder.h"

namespace experiments {

class PairRunner : public ::testing::Test {
 protected:
  void TearDown() override {
    expect_gone();
    std::filesystem::remove_all(folder_);
  }

  // Ended, or about to be: a killed process goes when it next runs, and who reaps an orphan does so when it likes. One that is
  // left behind sleeps for an hour, so a test that waits here for good has failed.
  static bool runs(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t bracket = text.rfind(')');
    return bracket != std::string::npos && text.size() > bracket + 2 && text[bracket + 2] != 'Z' && text[bracket + 2] != 'X';
  }
  void expect_gone() const {
    for (const pid_t pid : started()) {
      for (int i = 0; i < 3000 && runs(pid); ++i) usleep(10'000);
      EXPECT_FALSE(runs(pid)) << "process " << pid << " is left behind";
    }
  }

  ArmSpec arm(const std::string& label, const std::string& mode, double step_ns = 1e6) const {
    ArmSpec s;
    s.label = label;
    s.argv = {BINARY_DIR "/bin/fake_arm", mode, std::to_string(step_ns), (folder_ / label).string()};
    return s;
  }
  ArmSpec command(const std::string& label, const std::string& shell) const {
    ArmSpec s;
    s.label = label;
    s.argv = {"/bin/sh", "-c", "echo start $$ >>" + (folder_ / label).string() + "\n" + shell};
    s.steps_on_command = false;
    return s;
  }
  static PairPlan plan(const ArmSpec& a, const ArmSpec& b, int pairs = 8) {
    PairPlan p;
    p.a = a;
    p.b = b;
    p.thresholds.looks = extended_looks(pairs, pairs);
    p.block_s = 0;
    p.warmup_s = 0;
    p.quads = 2;
    p.seed = 5;
    // Of arms that behave: a loaded machine is no failure. The arms' times are made up, the runner's clock is not.
    p.block_timeout_s = p.start_timeout_s = 600;
    p.audit.outside_floor_ns = 1e12;
    return p;
  }
  std::vector<std::string> log(const std::string& label) const {
    std::ifstream in(folder_ / label);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  std::vector<pid_t> started() const {
    std::vector<pid_t> out;
    for (const char* label : {"A", "B"})
      for (const std::string& line : log(label)) {
        std::istringstream in(line);
        std::string word;
        pid_t pid = 0;
        if (in >> word >> pid && (word == "start" || word == "grandchild")) out.push_back(pid);
      }
    return out;
  }

  std::filesystem::path folder_ = fresh_test_folder();
};

}  // namespace experiments
