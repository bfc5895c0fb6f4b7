// What the collectors ask of CUPTI, without its types, so that they are tested with a fake. Every call may be
// made from an NVTX callback (not a CUPTI one); start/stop of ranges also from a launch callback. Nothing
// throws: an error is an Outcome.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/collect/metric_catalogue.h"
#include "profiler/records/records.h"

namespace profiler::collect {

struct Failure {
  std::string missing;  // row of the catalogue
  std::string detail;   // one line: which call, which error, and the cure if there is one
};
using Outcome = std::optional<Failure>;  // nullopt = good

enum class Callbacks : int { none, kernels, everything };  // kernels: and graph launches

struct CounterRequest {
  std::vector<Quantity> wanted;
  int64_t max_ranges = 0;    // of one session; each costs about 60-130 kB and 0.9 ms of set-up
  bool user_ranges = false;  // false: every kernel is a range
};

struct RangeValues {
  std::string name;            // of a user range; an auto range's name is a number that goes on counting, do not use it
  std::vector<double> values;  // one per metric of the choice, not checked for NaN
};

struct SessionValues {
  Outcome failure;
  std::vector<RangeValues> ranges;
  double decode_ns = 0;  // stop, decode and evaluate
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual SessionRecord describe() = 0;  // device and versions, as far as they can be had now
  // Waits for the calling thread's current context, or for `context` when the thread has none (a thread that opens the step ranges
  // while others launch); good when there is neither.
  virtual Outcome synchronize(const void* context = nullptr) = 0;
  virtual Outcome callbacks(Callbacks which) = 0;

  virtual Outcome start_tracing() = 0;
  // Callers synchronize first. Returns after every record was handed to the observer.
  virtual Outcome stop_tracing() = 0;

  // Makes the profiler object of the current context (or `context` when given), chooses the metrics,
  // allocates the image.
  virtual Outcome enable_counters(const CounterRequest& request, const void* context) = 0;
  virtual const MetricChoice& metrics() const = 0;
  virtual Outcome start_ranges() = 0;
  virtual Outcome push_range(const std::string& name) = 0;
  virtual Outcome pop_range() = 0;
  virtual SessionValues stop_ranges() = 0;  // callers synchronize first
  virtual void disable_counters() = 0;
};

}  // namespace profiler::collect
