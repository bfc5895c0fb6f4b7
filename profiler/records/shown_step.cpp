#include "profiler/records/shown_step.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace profiler {

std::optional<int64_t> shown_step(std::span<const StepRecord> traced, const std::function<bool(int64_t step)>& kept, bool one_of_several) {
  std::vector<double> times;
  for (const StepRecord& s : traced) times.push_back(device_time_ns(s));
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  const double median = n == 0 ? 0 : (times[(n - 1) / 2] + times[n / 2]) / 2;  // this stage links nothing, base/statistics either
  const StepRecord* best = nullptr;
  for (const StepRecord& s : traced) {
    if (!kept(s.step)) continue;
    const double far = std::fabs(device_time_ns(s) - median);
    const double best_far = best ? std::fabs(device_time_ns(*best) - median) : far;
    const bool newer = !best || s.step > best->step;
    if (one_of_several ? newer : far < best_far || (far == best_far && newer)) best = &s;
  }
  return best ? std::optional(best->step) : std::nullopt;
}

}  // namespace profiler
