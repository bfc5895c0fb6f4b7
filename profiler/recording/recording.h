// A recording in memory: everything that a collector wrote, in plain values. From here on no GPU is needed.
//
// The order of lines means nothing; only (activity, step, index) and the step numbers do. A recording without
// its end line is not an error but a MissingRecord "truncated_recording": what the killed process had written
// is still shown.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "profiler/records/records.h"

namespace profiler {

struct Recording {
  SessionRecord session;
  std::optional<RankRecord> rank;  // of a run of several ranks
  std::vector<LaunchRecord> launches;
  std::vector<LaunchStats> stats;
  std::vector<StepRecord> steps;
  std::vector<CounterSet> counter_sets;
  std::vector<CounterRecord> counters;
  std::vector<EnvironmentSample> environment;
  std::vector<EnergySample> energy;
  std::vector<MissingRecord> missing;
  std::optional<int64_t> measured_kernels;  // of a report of Nsight Compute, in no file: launches may be more
};

// Throws stepscope::InputError naming file and line: not a recording, another schema version, an unknown type
// of line, a field that is absent, unknown or of another type, a line after the end, two session lines.
Recording load_recording(const std::string& path);
Recording read_recording(std::istream& in, const std::string& source);

// Every operation of every traced step, as CollectPlan::raw_trace keeps them; an index counts the launch calls of its
// kind in the step. Throws like load_recording, also when the trace has no end.
std::vector<LaunchRecord> load_raw_trace(const std::string& path);

// Throws std::runtime_error when the file cannot be written or a number is not finite. Not atomic: for
// fixtures and exports.
void save_recording(const Recording& recording, const std::string& path);

// A program without steps runs once for its times and once more for its counters: the second run's counters
// and missing records join the first run's launches. Attribution checks that both launched the same kernels.
Recording join_program_runs(Recording activity, const Recording& counters);

}  // namespace profiler
