// Sums over launches: of a kernel row, an op, a pass, a layer. Numerators are added and divided once at the
// end; a mean of percentages never appears.
//
// A sum over kernels of which some have no counters is not a sum but absent: half the bytes of a pass look
// like an answer.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "profiler/attribute/counters.h"
#include "profiler/attribute/roofline.h"
#include "profiler/attribute/words.h"

namespace profiler {

struct AttributedLaunch {
  const LaunchRecord* record = nullptr;  // into the Recording
  std::optional<Place> place;            // absent: outside every leaf range
  double duration_ns = 0;                // start to end
  double time_ns = 0;                    // its share of the step: == duration_ns unless others ran at the same time
  int64_t samples = 0;                   // traced steps behind duration_ns
  bool has_time = false;
  KernelCounters counters;
  KernelRoofline roofline;

  // Above the floor, never below 0, as a share of the step like time_ns. Absent without a floor.
  std::optional<double> headroom_ns() const;
  std::optional<double> dram_bytes_per_s() const;
};

struct LaunchSums {
  int64_t launches = 0;  // kernels, or ops on a CPU
  int64_t copies = 0;    // copies and memsets
  double time_ns = 0;
  double duration_ns = 0;
  double kernel_duration_ns = 0;
  std::optional<double> dram_read_bytes, dram_write_bytes, l2_bytes, instructions;
  std::optional<double> tensor_active_pct;  // weighted by SM cycles, without them by time
  std::optional<double> tensor_instructions;
  std::optional<double> tensor_while_busy_pct;  // weighted by active SM cycles
  std::optional<double> occupancy_pct;          // weighted by active SM cycles
  std::optional<double> sm_clock_hz;            // weighted by counted time
  std::optional<double> dram_bytes_per_s;       // of its kernels: bytes / kernel_duration_ns
  std::optional<double> dram_of_ceiling_pct;    // time its traffic needs at the ceiling / kernel_duration_ns
  std::optional<double> tensor_of_ceiling_pct;  // time its tensor work needs at the ceiling / kernel_duration_ns
  std::optional<double> fma_of_ceiling_pct;
  std::optional<double> floor_ns, headroom_ns;  // sums of the launches' own
  std::optional<Bound> bound;                   // the one that most of its time has
};

LaunchSums sum_launches(const std::vector<const AttributedLaunch*>& launches);

}  // namespace profiler
