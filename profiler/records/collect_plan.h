// What the injected collector is told to do, in the JSON file named by the environment variable
// STEPSCOPE_COLLECT. The command `profile` writes it, the collector reads it; nothing else crosses into the
// profiled process.
//
// A program with step ranges runs through the phases in their order, so many steps each; steps after the last
// phase are left alone. A program without them (mode program) is run once per pass of collection: activity in
// one process, counters in another.
#pragma once
#include <cstdint>
#include <optional>
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
  std::string job = {};              // of a run of several ranks, the same on all; "" = the starter's own
  int64_t max_launches = 200000;     // program modes: after so many launches the rest is counted, not kept
};

// The first steps of an activity phase are recorded as warm-up (collect/phase_machine.h): enabling kernel tracing patches the loaded
// kernels, and these steps pay for that. At least one step of the phase is kept, however short it is.
inline constexpr int64_t kDiscardedSteps = 2;
// What `profile` takes unless told otherwise, and what a program that is to be profiled so has to have.
inline constexpr int64_t kTracedSteps = 5, kCountedSteps = 2;

int64_t planned_steps(const std::vector<PhasePlan>& phases);
int64_t planned_steps(const std::vector<PhasePlan>& phases, Phase of);

// The phases of `wanted`, none longer than there and in the same order, for a program that has `steps` steps, which may be fewer than
// the plan needs. In order of worth: one traced step, one of warm-up, a timed one, a counted one; then the discarded steps of the
// tracing and more timed steps; then the passes counted as a whole; then all that is wanted, in turn. Empty without a step.
std::vector<PhasePlan> phases_that_fit(const std::vector<PhasePlan>& wanted, int64_t steps);

// What the recorded steps are short of `wanted`; nullopt: nothing.
std::optional<MissingRecord> left_out(const std::vector<PhasePlan>& wanted, const std::vector<StepRecord>& recorded);

// The file of one rank beside that of a run of one process: "a/profile.jsonl" -> "a/profile.rank3.jsonl".
std::string file_of_rank(const std::string& path, int64_t rank);

std::string to_json(const CollectPlan& plan);
// Throws std::runtime_error naming the field when the text is not a plan.
CollectPlan collect_plan_from_json(const std::string& text);

}  // namespace profiler
