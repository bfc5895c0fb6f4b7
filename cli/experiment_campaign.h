// `stepscope experiment run`: several experiments, or two commands, from flags to verdict files, pages and the exit code.
#pragma once
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/experiment_flags.h"
#include "cli/trainer_flags.h"

namespace cli {

struct RunFlags {
  MeasureFlags measure;
  std::vector<std::string> names;
  bool all = false, changed = false, no_profile = false, json = false;
  std::string a, b, step_regex, gate_command, out, keep_profiles;
  int skip_steps = -1, command_steps = 40;
};

struct SinceFlags {
  MeasureFlags measure;
  TrainerFlags trainer;
  std::string revision, out;
  bool no_profile = false, json = false;
};

// Arm A is built from the revision, arm B is this program.
void run_since(const SinceFlags& flags, const CommandLine& line, int& exit_code);
void run_experiments(const RunFlags& flags, const CommandLine& line, int& exit_code);

}  // namespace cli
