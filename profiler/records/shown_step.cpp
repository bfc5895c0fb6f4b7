#include "profiler/records/shown_step.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace profiler {

std::optional<int64_t> shown_step(std::span<const StepRecord> traced, const std::function<bool(int64_t step)>& kept, bool one_of_several) {
  std::vector<double> times;
  for (const StepRecord& s : traced) times.push_back(device_time_ns(s));
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  const double median = n == 0 ? 0 : (times[(n - 1) / 2] + times[n / 2]) / 2;  // this stage links nothing, base/statistics either
  std::optional<std::pair<double, int64_t>> best;  // how far, and the step below 0: the least is the nearest, then the newest
  for (const StepRecord& s : traced) {
    const std::pair candidate(one_of_several ? 0 : std::fabs(device_time_ns(s) - median), -s.step);
    if (kept(s.step) && (!best || candidate < *best)) best = candidate;
  }
  return best ? std::optional(-best->second) : std::nullopt;
}

}  // namespace profiler
