#include "base/energy_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/counter_error.h"
#include "base/statistics.h"

namespace energy {

void keep_change(std::vector<CounterChange>& changes, double at_s, double joules) {
  if (!changes.empty() && joules < changes.back().joules)
    throw CounterError(
        fmt::format("the GPU's energy counter went back from {:.3f} J to {:.3f} J: was the driver loaded anew? Measure again",
                    changes.back().joules, joules));
  if (changes.empty() || joules != changes.back().joules) changes.push_back({at_s, joules});
}

std::optional<double> steps_at(std::span<const StepsDone> done, double at_s) {
  const auto at = stepscope::between(done.begin(), done.end(), at_s, [](const StepsDone& d) { return d.at_s; });
  if (!at) return std::nullopt;
  return at->before->steps + at->share * (at->after->steps - at->before->steps);
}

std::optional<Window> window_from(std::span<const CounterChange> changes, std::span<const StepsDone> done,
                                  std::span<const ClockSample> clocks, double from_s, double length_s) {
  const auto first_at = [&](double t) {
    return std::lower_bound(changes.begin(), changes.end(), t, [](const CounterChange& c, double at) { return c.at_s < at; });
  };
  const auto begin = first_at(from_s);
  if (begin == changes.end()) return std::nullopt;
  const auto end = first_at(begin->at_s + length_s);
  if (end == changes.end() || end == begin) return std::nullopt;
  const auto steps_begin = steps_at(done, begin->at_s), steps_end = steps_at(done, end->at_s);
  if (!steps_begin || !steps_end || *steps_end <= *steps_begin) return std::nullopt;
  Window w{begin->at_s, end->at_s, end->joules - begin->joules, *steps_end - *steps_begin, static_cast<int>(end - begin), {}};
  double sum = 0;
  int samples = 0;
  for (const ClockSample& c : clocks)
    if (c.at_s >= w.begin_s && c.at_s <= w.end_s) sum += c.sm_clock_mhz, ++samples;
  if (samples > 0) w.sm_clock_mhz = sum / samples;
  return w;
}

double poll_error(const Window& window, double poll_s) {
  // Uniform lateness at either end: variance poll^2 / 12 each.
  return std::sqrt(poll_s * poll_s / 6) / window.seconds();
}

}  // namespace energy
