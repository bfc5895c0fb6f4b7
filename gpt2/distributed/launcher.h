// `--gpus N`: this program N times on this host. Every rank is a fresh process (fork and exec), so that none inherits a CUDA context and
// the profiler's variables reach each.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

// How one rank's process ended, in the order of `order`.
struct RankEnd {
  int64_t pid = 0;
  int order = 0;                // 0: the first to end
  int exit_code = 0;            // where signal is 0
  int signal = 0;               // that ended it
  bool by_launcher = false;     // the signal came from the launcher
  int64_t step = 0;             // that it last began; 0: none
  std::optional<Failure> told;  // what the ranks had agreed on when it ended, as far as it knew
};
struct Ending {
  int exit_code = 0;
  std::string last_line;  // names the first rank that failed, why, and who was stopped; "" where nothing is to be added
};
// The rank that failed first of its own accord decides: one that only followed another's failure says so in `told`.
Ending judge_endings(const std::vector<RankEnd>& ranks);

// Runs `argv` as `ranks` ranks and waits for all. Output of rank 0 is this process's; lines of the others go to stderr behind "[rank k] ". When a
// rank fails the others have `patience_s` seconds to end, then they are killed. The first signal that asks for the end (stepscope::kEndingSignals) asks the
// ranks to stop after a step; another one, which is no repetition of it, kills them. If this process is killed the kernel kills the ranks. Prints
// the last line; returns the exit code. Throws stepscope::InputError where a rank cannot be started.
int launch(const std::vector<std::string>& argv, int ranks, double patience_s = 4);

}  // namespace gpt2::distributed
