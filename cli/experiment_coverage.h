// `stepscope experiment coverage`: do the procedure's intervals hold what long runs say?
#pragma once
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/experiment_flags.h"
#include "cli/trainer_flags.h"
#include "experiments/session/coverage.h"

namespace cli {

struct CoverageFlags {
  MeasureFlags measure;
  TrainerFlags trainer;
  std::vector<std::string> plants;
  int truth_rounds = experiments::CoverageOptions().truth_rounds;
  double truth_s = 10;
  std::string record;
};

void run_coverage(const CoverageFlags& flags, const CommandLine& line, int& exit_code);

}  // namespace cli
