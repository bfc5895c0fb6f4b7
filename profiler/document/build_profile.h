// Recording + run.json + ceilings -> profile document.
//
// Two clocks never mix: `timing` is the trainer's own time of steps with no collector on; everything else is
// the device's time of traced steps. That both tell the same story is visible
// (collection.traced_overhead_pct), not assumed.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/attribute/roofline.h"
#include "profiler/document/profile.h"
#include "profiler/document/run_info.h"
#include "profiler/recording/recording.h"

namespace profiler {

struct ProfileOptions {
  int64_t first_timed_step = 0;  // position among run.json's steps, 0-based
  int64_t timed_steps = 0;
  std::string git_revision, build_type;         // of the trainers; a document of another program leaves them out
  std::string profiled_at;                      // UTC, ISO 8601
  std::vector<std::string> metrics;             // that a user asked for by name
  std::map<std::string, std::string> versions;  // beside those of the recording: cublas, cudnn, …
};

inline constexpr double kTracedOverhead_pct = 10.0;

// `run` absent: a program that is not ours. `ceilings` without a copy bandwidth: not measured. Throws
// stepscope::InputError when the recording contradicts itself; whatever is merely missing becomes a row of
// `missing`.
ProfileDocument build_profile(const Recording& recording, const std::optional<RunInfo>& run, const Ceilings& ceilings,
                              const ProfileOptions& options);

// From step begin to step begin by the host's clock, of the steps of that phase, in order. The last one ends where the step after it begins,
// whatever is collected there; a step without a next one has no pitch.
std::vector<double> step_pitches_ns(const Recording& recording, Phase phase);

}  // namespace profiler
