// A program with step ranges whose number of steps nobody has told us. Its first run gets the whole plan. If it ends before a step was
// traced, its steps are counted, and it is run again with a plan cut to them: phases in one process, in the order that keeps
// each number true (nothing on while steps are timed, counters before tracing patches the kernels), which no plan can keep
// that does not know how many steps will come. A program with enough steps is run once.
//
// The trap: a program need not have the same number of steps each time. A run that again ends too early is repeated with what it had;
// after kMostRuns the recording says that nothing was traced.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "profiler/recording/recording.h"
#include "profiler/records/collect_plan.h"

namespace profiler {

inline constexpr int kMostRuns = 3;

struct StepRun {
  std::function<Recording(const std::vector<PhasePlan>&)> run;  // runs the program once under the collector
  std::function<void(const std::string&)> note;                 // one line before each further run
};

// The last run's recording; "plan_shortened" among its missing records says what it is short of `wanted`. Passes on what `run` throws.
Recording record_steps(const std::vector<PhasePlan>& wanted, const StepRun& program);

}  // namespace profiler
