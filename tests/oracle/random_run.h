// Recordings made at random from a seed: several streams whose operations overlap, graphs or not, traced steps of unlike length, kernels whose
// SMs are busy for unlike parts of their time, power and clock that change between stretches of steps, and ranks whose collectives are one
// kernel or several copies. What one hand-made recording does not hold together, some seed does.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/ranks/join_ranks.h"

namespace oracle {

struct Run {
  std::vector<profiler::RankRecording> ranks;  // one without a rank of its own where `ranks` was 1
  std::optional<profiler::RunInfo> run;
  profiler::Ceilings ceilings;
  profiler::JoinOptions join;
  profiler::ProfileOptions options;
};

// The same for the same arguments on every machine. `ranks` >= 1.
Run random_run(uint64_t seed, int64_t ranks);

}  // namespace oracle
