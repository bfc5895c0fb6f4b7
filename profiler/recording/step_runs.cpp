#include "profiler/recording/step_runs.h"

#include <fmt/format.h>

#include <algorithm>

namespace profiler {
namespace {

bool traced(const Recording& r) {
  return std::any_of(r.steps.begin(), r.steps.end(), [](const StepRecord& s) { return s.phase == Phase::activity; });
}

std::string words(const std::vector<PhasePlan>& phases) {
  return fmt::format(
      "{} warm-up, {} timed, {} counted, {} traced", planned_steps(phases, Phase::warmup), planned_steps(phases, Phase::timed),
      planned_steps(phases, Phase::counters) + planned_steps(phases, Phase::pass_counters), planned_steps(phases, Phase::activity));
}

}  // namespace

Recording record_steps(const std::vector<PhasePlan>& wanted, const StepRun& program) {
  std::vector<PhasePlan> phases = wanted;
  Recording r = program.run(phases);
  for (int runs = 1; runs < kMostRuns && !traced(r); ++runs) {
    const auto seen = static_cast<int64_t>(r.steps.size());
    // As many steps as planned and none traced is no question of their number; without any step there is nothing to cut to.
    if (seen == 0 || seen >= planned_steps(phases)) break;
    phases = phases_that_fit(wanted, seen);
    program.note(fmt::format("the program had {} step{}, none was left to trace; running it again with {}", seen, seen == 1 ? "" : "s",
                             words(phases)));
    r = program.run(phases);
  }
  if (auto short_of = left_out(wanted, r.steps); short_of && !r.steps.empty()) r.missing.push_back(std::move(*short_of));
  return r;
}

}  // namespace profiler
