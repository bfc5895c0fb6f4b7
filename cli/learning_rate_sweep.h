// `train --sweep-learning-rates R1,R2,…`: the same short run once per peak rate, and a table of what they came to.
#pragma once
#include <string>
#include <vector>

#include "cli/trainer_flags.h"
#include "gpt2/train_loop.h"

namespace cli {

struct RateSweepOptions {
  std::vector<std::string> rates;  // as typed
  std::string log;                 // "" = none; NAME.jsonl becomes NAME-RATE.jsonl for each run
  bool json = false, quiet = false;
};

// `flags` settled, `options` as for one run; the rate in it is replaced. A run whose loss stops being finite counts as diverged and the
// next one starts. Throws stepscope::InputError for rates that are too few or given twice and for what a run refuses, and
// std::runtime_error when every rate diverged (exit 1). ctrl-C ends the run under way after its step and chooses no rate: false.
bool sweep_learning_rates(const TrainerFlags& flags, const gpt2::LoopOptions& options, const RateSweepOptions& sweep);

}  // namespace cli
