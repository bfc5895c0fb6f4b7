// `stepscope experiment aa` and `resample`: the procedure against itself, live and from a recording.
#pragma once
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/experiment_flags.h"
#include "cli/trainer_flags.h"

namespace cli {

struct AaFlags {
  MeasureFlags measure;
  TrainerFlags trainer;
  int trials = 1;
  int alone = 0;  // processes to record instead of trials
  bool no_gate = false;
  std::string record, out;
};

void run_aa(const AaFlags& flags, const CommandLine& line, int& exit_code);
void resample_recordings(const std::vector<std::string>& files, const MeasureFlags& measure);

}  // namespace cli
