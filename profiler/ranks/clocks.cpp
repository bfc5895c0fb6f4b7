#include "profiler/ranks/clocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace profiler {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// bound[r][s]: offset[s] - offset[r] is at most this. From end_r + offset_r >= begin_s + offset_s of every collective.
std::vector<std::vector<double>> bounds_of(const std::vector<std::vector<Interval>>& times) {
  const size_t n = times.size();
  std::vector<std::vector<double>> bound(n, std::vector<double>(n, kUnbounded));
  for (size_t r = 0; r < n; ++r) {
    bound[r][r] = 0;
    for (size_t s = 0; s < n; ++s)
      for (size_t j = 0; r != s && j < times[r].size(); ++j)
        bound[r][s] = std::min(bound[r][s], static_cast<double>(times[r][j].end_ns - times[s][j].begin_ns));
  }
  // What two ranks know of a third bounds them against each other (shortest paths of difference constraints).
  for (size_t k = 0; k < n; ++k)
    for (size_t r = 0; r < n; ++r)
      for (size_t s = 0; s < n; ++s) bound[r][s] = std::min(bound[r][s], bound[r][k] + bound[k][s]);
  return bound;
}

}  // namespace

ClockAlignment align_clocks(const std::vector<std::vector<Interval>>& times, const std::vector<std::string>& same_clock) {
  const size_t n = times.size();
  ClockAlignment a;
  a.ranks.resize(n);
  const auto bound = bounds_of(times);
  const auto one_clock = [&](size_t r, size_t s) { return !same_clock[r].empty() && same_clock[r] == same_clock[s]; };
  for (size_t r = 0; r < n; ++r) a.contradictory = a.contradictory || bound[r][r] < 0;

  a.shared = true;
  for (size_t r = 0; r < n; ++r)
    for (size_t s = 0; s < n; ++s) a.shared = a.shared && one_clock(r, s) && bound[r][s] >= 0;
  double largest = 0;
  for (size_t r = 0; r < n; ++r) {
    const double high = bound[0][r], low = -bound[r][0];
    RankClock& c = a.ranks[r];
    if (std::isfinite(high) && std::isfinite(low)) {
      // The middle is as near as can be known; two ranks whose bounds allow a shared clock have one.
      if (!a.shared && !(one_clock(0, r) && low <= 0 && high >= 0)) c.offset_ns = 0.5 * (low + high);
      c.uncertainty_ns = std::max(high - c.offset_ns, c.offset_ns - low);
    }
  }
  for (size_t r = 0; r < n; ++r)
    for (size_t s = 0; s < n; ++s) {
      if (r == s) continue;
      const double difference = a.ranks[s].offset_ns - a.ranks[r].offset_ns;
      largest = std::max(largest, bound[r][s] - difference);
    }
  if (!a.contradictory && std::isfinite(largest) && n > 1) a.uncertainty_ns = largest;
  return a;
}

}  // namespace profiler
