// One function per command, each in its own file; main.cpp calls them all. A command that can answer "no" sets exit_code.
#pragma once
#include <string>
#include <vector>

#include "cli/arguments.h"

namespace cli {

// The command line as typed, for run.json and for starting ourselves again.
struct CommandLine {
  char** argv;
  int argc;
  std::string text() const;     // shell-quoted
  std::string program() const;  // absolute path of this executable
};

void add_doctor_command(Command& app, const CommandLine& line, int& exit_code);
void add_train_command(Command& app, const CommandLine& line, int& exit_code);
void add_profile_command(Command& app, const CommandLine& line, int& exit_code);
void add_energy_command(Command& app, const CommandLine& line, int& exit_code);
void add_ingest_command(Command& app, const CommandLine& line, int& exit_code);
void add_report_command(Command& app, int& exit_code);
void add_join_command(Command& app, const CommandLine& line, int& exit_code);
void add_diff_command(Command& app, int& exit_code);
void add_scaling_command(Command& app);
void add_gate_command(Command& app, int& exit_code);
void add_baseline_command(Command& app, int& exit_code);
void add_data_command(Command& app, int& exit_code);
void add_eval_command(Command& app, int& exit_code);
void add_arm_command(Command& app);
void add_kernels_command(Command& app, int& exit_code);
void add_experiment_command(Command& app, const CommandLine& line, int& exit_code);

}  // namespace cli
