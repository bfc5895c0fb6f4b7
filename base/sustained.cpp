#include "base/sustained.h"

#include <vector>

#include "base/statistics.h"

namespace stepscope {

std::optional<bool> clock_limited(std::optional<double> power_w, std::optional<double> sm_clock_mhz, std::optional<double> power_limit_w,
                                  std::optional<double> max_sm_clock_mhz) {
  constexpr double kCappedPowerShare = 0.97;
  if (!power_w || !sm_clock_mhz || !power_limit_w || !max_sm_clock_mhz) return std::nullopt;
  return *power_w >= kCappedPowerShare * *power_limit_w && *sm_clock_mhz <= *max_sm_clock_mhz - kCappedClockGap_mhz;
}

size_t first_steady_step(std::span<const double> times_ns, size_t in_a_row) {
  constexpr double kOrdinary = 1.5;
  const auto later = times_ns.subspan(times_ns.size() / 2);
  const double limit = later.empty() ? 0 : kOrdinary * median(std::vector<double>(later.begin(), later.end()));
  size_t row = 0;
  for (size_t i = 0; i < times_ns.size(); ++i) {
    row = times_ns[i] < limit ? row + 1 : 0;
    if (row == in_a_row) return i + 1 - row;
  }
  return 0;
}

}  // namespace stepscope
