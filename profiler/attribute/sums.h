// Sums over launches: of a kernel row, an op, a pass, a layer. Numerators are added and divided once at the
// end; a mean of percentages never appears.
//
// A sum over kernels of which some have no counters is not a sum but absent: half the bytes of a pass look
// like an answer.
#pragma once
#include <optional>
#include <string>

#include "profiler/attribute/counters.h"
#include "profiler/attribute/numbers.h"
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
};

// Sum of value(l) over all, absent when one is.
template <class F>
std::optional<double> sum_all(const Launches& launches, F value) {
  if (launches.empty()) return std::nullopt;
  double sum = 0;
  for (const AttributedLaunch* l : launches) {
    const std::optional<double> v = value(*l);
    if (!v) return std::nullopt;
    sum += *v;
  }
  return sum;
}

// What every row over launches has, in the attribution and in the document. `share_pct` is filled by who knows the step's time.
struct Measured : Numbers {
  int64_t launches = 0, copies = 0;  // kernels, or ops on a CPU; copies and memsets
  double time_ns = 0, share_pct = 0, duration_ns = 0;
  std::optional<std::string> bound;  // the one that most of its time has
};

struct MeasuredKernels : Measured {
  std::optional<double> floor_ns, headroom_ns;  // sums of the launches' own
};

// Numbers are those of the kernels among the launches; a copy has none.
MeasuredKernels sum_launches(const Launches& launches);

}  // namespace profiler
