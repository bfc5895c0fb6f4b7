// One function per command, each in its own file; main.cpp calls those of its program. A command that can answer "no" sets exit_code.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
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

using AddCommand = std::function<void(Command& app, const CommandLine& line, int& exit_code)>;
// The commands of this program, in the order of its help: all of them (every_command.cpp), or `train` and `profile` (first_commands.cpp).
const std::vector<std::pair<std::string_view, AddCommand>>& commands();
// What to say about a word that is none of them. `nearest`: ", the nearest is `report`", or "".
std::string unknown_command(std::string_view word, std::string_view nearest);

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
