// From the step times of one process that ran alone to its record: what is left out, what is counted, what was still at full clock. Pure
// functions of the times.
#pragma once
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "experiments/runner/alone_run.h"
#include "experiments/runner/arm.h"

namespace experiments {

// The settle rule: the end of the second of two means over kPowerCycle_s (base/sustained.h) in a row that differ by less than kSettledChange, at least
// kSustainedSettle_s. nullopt: not within these steps.
std::optional<double> settled_after_s(std::span<const double> times_ns);

// stepscope::first_steady_step of 8 in a row; 0 of fewer than 16 steps.
size_t first_steady_step(std::span<const double> times_ns);

struct Counted {
  AloneRun run;                   // arm, pair, position, device and losses are the caller's
  double begin_s = 0, end_s = 0;  // of the counted steps, since the first step's begin
  std::vector<double> ends_s;     // of every step
};
// What `request` counts of a stretch whose first steps before `skip` are a program's start. Where it is too short for that, the steps after
// `fewest_skipped` count, as a burst. Needs at least two steps.
Counted count_steps(std::span<const double> times_ns, const StretchRequest& request, size_t skip = 0, size_t fewest_skipped = 1);

}  // namespace experiments
