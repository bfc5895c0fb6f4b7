// A foreign report as a recording, so that attribution, roofline, document, tables and diff treat it like our own.
//
// Where a report knows only durations (Nsight Compute runs kernels one at a time), launches are laid end to end in launch order: their
// sum is the sum of kernel times, and idle time and overlap are unknown, which the document says by leaving them out.
#pragma once
#include <optional>
#include <set>
#include <string>

#include "profiler/ingest/foreign_report.h"
#include "profiler/ingest/rules.h"
#include "profiler/recording/recording.h"

namespace profiler {

struct IngestOptions {
  std::optional<Rules> rules;
  int64_t first = 0;   // results before it are left out
  int64_t count = -1;  // so many from there; -1: all
  std::optional<int64_t> process;
};

// Throws stepscope::InputError when the options leave nothing.
Recording to_recording(const ForeignReport& report, const IngestOptions& options);

// Names of all GPUs that ran what the options leave of the report: the recording is described by one. Empty where it names none. Throws as
// to_recording().
std::set<std::string> gpus_of(const ForeignReport& report, const IngestOptions& options);

// Metrics that a document is made from, in the order of `ncu --metrics`.
std::vector<std::string> read_metrics();
// "ncu --metrics … --nvtx …": the command line that collects exactly those, and nothing that costs a second pass.
std::string metrics_command();

}  // namespace profiler
