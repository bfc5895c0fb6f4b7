// Hardware counters by what they mean, whatever the chip calls them, merged onto the launches of the traced
// step.
//
// Counters come from another step than the times (a counted step runs its kernels one by one). They are
// merged by launch index, and only after every name and grid of the counted step agrees with the traced one:
// a mismatch throws the set away and says so.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/recording/recording.h"

namespace profiler {

// Tensor-core use under the names that reports have for it. Best first; which one a recording gives is one
// choice for all its kernels, so that no column mixes two quantities.
struct TensorMetric {
  std::string_view metric;
  enum class Of { all_cycles, active_cycles } of;  // active: in which the SM had warps, so it reads higher
  std::string_view lacks;                          // what the number is not, in words; "" = tensor pipe cycles of any kind
  bool cycles = true;                              // false: instructions issued, of the most that can be issued
};
inline constexpr size_t kTensorMetrics = 16;
std::span<const TensorMetric> tensor_metrics();

struct KernelCounters {
  std::optional<double> dram_read_bytes, dram_write_bytes;
  std::optional<double> l2_bytes;
  std::optional<double> instructions;           // warp instructions
  std::optional<double> fma_instructions;       // of them on the FMA pipe
  std::optional<double> tensor_active_pct;      // tensor pipe cycles of all SM cycles of the kernel; see tensor_is
  std::optional<double> tensor_instructions;    // warp instructions on the tensor pipe, where no percentage is to be had
  std::optional<double> tensor_while_busy_pct;  // ... of the cycles in which the SM had warps
  std::optional<double> occupancy_pct;          // warps of those an SM can hold, while it had any
  std::optional<double> sm_cycles;              // elapsed, of one SM: the weight of tensor_active_pct
  std::optional<double> sm_active_cycles;       // with warps, mean over SMs: the weight of the other two
  std::optional<double> sm_clock_hz;
  std::optional<double> counted_time_ns;                               // while being counted; never shown as the kernel's time
  std::array<std::optional<double>, kTensorMetrics> tensor_by_metric;  // as read, parallel to tensor_metrics()
  // What tensor_active_pct holds: tensor cycles of all cycles, of the cycles with warps, or a rate of
  // instructions. Only from the first follows how much work was done.
  enum class TensorIs { all_cycles, active_cycles, instructions } tensor_is = TensorIs::all_cycles;
  std::map<std::string, double> all;  // by metric, as read: who asked for one by name knows what it means
};

// One quantity: its member, and the metrics that give it, the first that the set has.
struct CounterQuantity {
  std::string_view name;
  std::optional<double> KernelCounters::*member;
  std::vector<std::string_view> metrics;
  bool adds_up;           // over equal-named ranges and launches; the others are averages
  bool asked_for = true;  // false: read where a report has it, never collected for its own sake
};
std::span<const CounterQuantity> counter_quantities();

struct PassCounters {
  std::string pass;
  KernelCounters counters;
};

struct MergedCounters {
  std::vector<KernelCounters> per_kernel;  // parallel to `kernels`; empty when there are none or they do not fit
  std::vector<PassCounters> per_pass;      // a whole pass as one range, in words of pass_words()
  std::vector<MissingRecord> missing;
  int64_t counted_steps = 0;
  // Where tensor_active_pct and tensor_instructions come from: a metric, or a formula of several.
  std::optional<std::string> tensor_metric, tensor_instructions_metric;
};

// `kernels`: the traced step's kernels, sorted by index 0, 1, …
MergedCounters merge_counters(const Recording& recording, const std::vector<const LaunchRecord*>& kernels);

}  // namespace profiler
