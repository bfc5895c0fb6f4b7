// A second way from a recording to the numbers of a document: sweeps over every stretch of time, plain sums and the definitions of
// docs/metrics.md, without a line of the profiler's own arithmetic. Slow, and therefore simple.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/document/build_profile.h"

namespace oracle {

using Maybe = std::optional<double>;

// Hyndman-Fan type 7. nullopt of nothing.
Maybe quantile(std::vector<double> values, double part);
Maybe median(const std::vector<double>& values);

// Times are doubles so that clocks may be half a nanosecond apart.
struct Stretch {
  double begin_ns = 0, end_ns = 0;
  bool communication = false;
};
struct Swept {
  std::vector<double> share_ns, hidden_ns;  // of each stretch, as in docs/metrics.md
  double window_ns = 0, idle_ns = 0, busy_ns = 0, overlap_ns = 0, work_ns = 0, exposed_ns = 0, hidden_all_ns = 0;
  std::vector<double> gaps_ns;  // each idle stretch
};
// Looks at every piece between two neighbouring begins and ends.
Swept sweep(const std::vector<Stretch>& stretches, double begin_ns, double end_ns);

struct Place {
  std::string pass, layer, op;  // layer "-": outside the layers
};
struct Operation {
  const profiler::LaunchRecord* record = nullptr;
  std::optional<Place> place;
  bool communication = false;
  double own_ns = 0, median_ns = 0, duration_ns = 0, time_ns = 0;
  std::map<std::string, double> counters;  // metric -> median over the counted steps; empty where it has none
  Maybe dram_ns, tensor_ns, fma_ns, floor_ns, headroom_ns;
  std::string bound;  // "" = cannot be told
};
struct Step {
  int64_t number = -1;
  std::vector<Operation> operations;  // by start
  Swept swept;
  double begin_ns = 0, time_ns = 0;
  bool from_medians = true;
};

// "all_reduce fp32 1000 bucket 3" of "step/communication/-/OP/all_reduce fp32 1000 bucket 3"; "" of what is in no such range.
std::string collective_words(const std::string& path);

// The step that a document shows, with all that is known of each of its operations.
Step shown_step(const profiler::Recording& recording, const std::optional<profiler::RunInfo>& run, const profiler::Ceilings& ceilings);

// Every number of the sections run by run to missing that follows from the recording; a difference fails the test that is running.
void expect_step(const profiler::Recording& recording, const std::optional<profiler::RunInfo>& run, const profiler::Ceilings& ceilings,
                 const profiler::ProfileDocument& document);
// environment, timing and the collector's overhead.
void expect_surroundings(const profiler::Recording& recording, const std::optional<profiler::RunInfo>& run,
                         const profiler::ProfileOptions& options, const profiler::ProfileDocument& document);

// Our own reader takes the document, however its numbers fell, and gives it back as it was.
void expect_readable(const profiler::ProfileDocument& document);

void expect_near(const std::string& what, const Maybe& expected, const Maybe& found);

}  // namespace oracle
