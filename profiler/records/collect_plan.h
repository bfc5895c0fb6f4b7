// What the injected collector is told to do, in the JSON file named by the environment variable
// STEPSCOPE_COLLECT. The command `profile` writes it, the collector reads it; nothing else crosses into the
// profiled process.
//
// A program with step ranges runs through the phases in their order, so many steps each; steps after the last
// phase are left alone. A program without them (mode program) is run once per pass of collection: activity in
// one process, counters in another.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/records/records.h"

namespace profiler {

struct PhasePlan {
  Phase phase = Phase::warmup;
  int64_t steps = 0;
};

struct CollectPlan {
  std::string output;               // recording file
  std::string raw_trace;            // "" = off; JSON lines of every launch of every traced step
  std::string mode = "steps";       // "steps" | "program_activity" | "program_counters"
  std::string step_range = "step";  // name of the NVTX range that is one step
  std::vector<PhasePlan> phases;
  std::vector<std::string> metrics;  // empty = the collector's core set for the chip
  int64_t max_launches = 200000;     // program modes: after so many launches the rest is counted, not kept
};

std::string to_json(const CollectPlan& plan);
// Throws std::runtime_error naming the field when the text is not a plan.
CollectPlan collect_plan_from_json(const std::string& text);

}  // namespace profiler
