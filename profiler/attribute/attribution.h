// Recording -> where the step's time went. Every operation goes to a pass, layer and op by the ranges that
// were open at its launch; what ran outside every leaf range stays visible as "unattributed".
//
// Time is conserved: passes + unattributed + idle = the step's time on the device, within kConservation_pct,
// or the result says so in `missing` with severity severe.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/attribute/roofline.h"
#include "profiler/attribute/sums.h"
#include "profiler/attribute/timeline.h"
#include "profiler/recording/recording.h"

namespace profiler {

inline constexpr double kConservation_pct = 0.5;
inline constexpr double kPassCounters_pct = 5.0;        // whole pass against the sum of its kernels
inline constexpr double kPassCounters_bytes = 5e6;      // below it dirty L2 lines of neighbours decide
inline constexpr double kCountedTime_pct = 20.0;        // counted against traced time of a kernel, beyond what their clocks explain
inline constexpr double kCheckedDuration_ns = 20000.0;  // checks of single kernels look at longer ones only
inline constexpr double kAboveCeiling_pct = 102.0;
inline constexpr double kTensorUse_pct = 102.0;
// One SM of a 7 us kernel read 119% (tests/ingest/data/tensor_llmc): a kernel too short to be checked is not off by half.
inline constexpr double kTensorUseOfShort_pct = 150.0;
inline constexpr double kTensorUseOfRow_pct = 100.05;  // tables show one decimal

struct OpFloor {
  double flops = 0, min_bytes = 0;
};

struct AttributionInput {
  RooflineInput roofline;
  std::string work_precision = "fp32";  // row of the matmul ceilings that bounds the ops' FLOPs
  std::map<Place, OpFloor> work;        // empty: unknown
  // A program that is not ours: it promised no leaf ranges and no equal steps. Without a single leaf it is told nothing about them;
  // steps that differ are "steps_differ", a notice, where a trainer of ours is wrong to differ.
  bool foreign = false;
};

struct WorkSum {
  double flops = 0, min_bytes = 0;
  std::optional<double> floor_ns, headroom_ns;  // headroom never below 0
};

// One group of launches. `work` only for groups that consist of whole ops, and only where the work model
// knows them.
struct Group {
  std::optional<int> pass;
  std::optional<int> layer;
  std::optional<int> op;
  std::vector<size_t> launches;  // indices into Attribution::launches, by start time
  MeasuredKernels sums;
  std::optional<WorkSum> work;
  std::optional<KernelCounters> whole_pass;  // passes only: counted as one range
};

struct Attribution {
  std::optional<int64_t> step;  // absent: a program without steps
  int64_t traced_steps = 0;
  int64_t counted_steps = 0;
  std::optional<std::string> tensor_metric, tensor_instructions_metric;  // as in MergedCounters
  bool from_medians = true;                                              // false: durations are those of the one step shown
  std::vector<AttributedLaunch> launches;                                // by start time
  std::vector<Group> passes;                                             // in the order of pass_words()
  std::vector<Group> ops;                                                // by pass, then by op_words()
  std::vector<Group> layers;                                             // by pass, then layer; without the ops outside the layers
  std::vector<Group> kernels;                                            // same name, activity, pass and op; longest first
  MeasuredKernels all;
  double time_ns = 0;  // the step on the device, first start to last end
  double idle_ns = 0;
  double unattributed_ns = 0;
  double conservation_error_ns = 0;  // passes + unattributed + idle - time
  Timeline timeline;                 // of the step shown; share_ns parallel to the launches that have a time
  int64_t begin_ns = 0;              // of the step shown
  int64_t streams = 0;
  bool has_leaf_ranges = false;  // some launch has a place
  std::vector<MissingRecord> missing;
};

// nullopt: nothing was traced. The Recording must outlive the result. Throws stepscope::InputError.
std::optional<Attribution> attribute(const Recording& recording, const AttributionInput& input);

}  // namespace profiler
