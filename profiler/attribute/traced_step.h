// The one step that stands for all traced ones (profiler/records/shown_step.h says which): its operations in full, with the durations of
// all traced steps behind each.
//
// A duration is the median over the traced steps. That is only meaningful because operation i of one step is
// operation i of the next; where records show that it is not, that is reported.
#pragma once
#include <optional>
#include <vector>

#include "profiler/attribute/timeline.h"
#include "profiler/recording/recording.h"

namespace profiler {

struct TracedOperation {
  const LaunchRecord* record = nullptr;  // into the Recording
  bool has_time = false;                 // start and end are there and in order
  double own_ns = 0;                     // in this step; 0 without time
  double median_ns = 0;                  // over the traced steps
  int64_t samples = 0;
};

struct TracedStep {
  std::optional<int64_t> step;               // absent: a program without steps, taken as a whole
  std::vector<TracedOperation> operations;   // by start time
  std::vector<const LaunchRecord*> kernels;  // by index (cpu_op and kernel)
  Interval window;                           // first start to last end on the device
  double median_window_ns = 0;               // over the traced steps
  int64_t traced_steps = 0;
  int64_t lost = 0;  // operations that the step counted but the recording does not hold
  std::vector<MissingRecord> missing;
};

// nullopt: the recording holds no operation with a time. Throws stepscope::InputError when two records claim
// the same place. The Recording must outlive the result.
std::optional<TracedStep> find_traced_step(const Recording& recording);

}  // namespace profiler
