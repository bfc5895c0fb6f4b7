// Does an arm launch in its timed steps what it launches in the steps that are checked? That the results are the same is
// asked elsewhere (experiments/gate/timed_steps.h); this sees work that results do not show: a kernel left out because
// its output is still there, another grid, one step's work moved into the next.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "profiler/records/records.h"

namespace experiments {

struct SameLaunches {
  bool same = false;
  std::string sentence;
  int64_t operations = 0;  // of a checked step: kernels, copies, memsets
  int64_t timed_steps = 0, checked_steps = 0;
};

// Of a raw trace (profiler::load_raw_trace): steps from `first_checked` on are the checked ones, those before it the
// timed ones. Compared as sets, since a graph may order independent kernels anew: kind, name, grid, block, shared memory and
// bytes of each operation. Not the same when either side has no step.
SameLaunches same_launches(std::span<const profiler::LaunchRecord> launches, int64_t first_checked);

}  // namespace experiments
