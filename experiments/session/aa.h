// The procedure against itself: the same trainer as both arms, live, or resampled from what was recorded.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "experiments/session/session.h"

namespace experiments {

struct AaOptions {
  std::string what;                    // "mixed d12, B=4, T=1024"
  std::vector<std::string> arguments;  // of the trainer
  int trials = 1;
  int alone = 0;  // processes to record instead of trials, an even number
  bool gate = true;
  std::filesystem::path record;  // "" = the pairs are not kept
  std::filesystem::path folder;  // of the ledger
};

// Returns the exit code of `experiment aa`. Prints one line per trial, and at the end the rates. Throws std::runtime_error where the trainer
// does not pass the gate, and what the session throws.
int run_aa(SessionOptions options, const AaOptions& aa);

// Prints the error rates of the procedure on recordings of run_aa. `looks`: how each kind of recording is decided. Throws
// stepscope::InputError for a file that is no recording, or of too few pairs.
void resample_recordings(const std::vector<std::string>& files, Thresholds thresholds,
                         const std::function<std::vector<Look>(Procedure)>& looks);

}  // namespace experiments
