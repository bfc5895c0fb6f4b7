// `stepscope experiment run`: several experiments, or two commands, from flags to verdict files, pages and the exit code.
#pragma once
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/experiment_flags.h"
#include "cli/trainer_flags.h"
#include "experiments/plan/experiment_file.h"

namespace cli {

// Of every command that ends in a verdict.
struct VerdictFlags {
  MeasureFlags measure;
  std::string out;
  bool no_profile = false, json = false;
};
void add_verdict_flags(Command& command, VerdictFlags& flags, PairsOf of, const std::string& out_help);

struct RunFlags : VerdictFlags {
  std::vector<std::string> names;
  bool all = false, changed = false, go_on = false;
  std::vector<std::string> again;
  std::string a, b, step_regex, gate_command, keep_profiles;
  bool recorded = false;
  int skip_steps = -1, command_steps = 40;
};

struct SinceFlags : VerdictFlags {
  TrainerFlags trainer;
  std::string revision;
};

// Throws InputError for flags that the `train` command would refuse, and for a change that changes nothing, before any arm is gated.
void check_arguments(const experiments::Experiment& experiment);

// Arm A is built from the revision, arm B is this program.
void run_since(const SinceFlags& flags, const CommandLine& line, int& exit_code);
void run_experiments(const RunFlags& flags, const CommandLine& line, int& exit_code);

}  // namespace cli
