// `stepscope experiment run`: several experiments, or two commands, from flags to verdict files, pages and the exit code.
#pragma once
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/experiment_flags.h"

namespace cli {

struct RunFlags {
  MeasureFlags measure;
  std::vector<std::string> names;
  bool all = false, changed = false, no_profile = false, json = false;
  std::string a, b, step_regex, gate_command, out, keep_profiles;
  int skip_steps = -1, command_steps = 40;
};

void run_experiments(const RunFlags& flags, const CommandLine& line, int& exit_code);

}  // namespace cli
