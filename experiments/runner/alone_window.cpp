#include "experiments/runner/alone_window.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/statistics.h"
#include "base/sustained.h"

namespace experiments {

using stepscope::kPowerCycle_s;
using stepscope::kSettledChange;
using stepscope::kSustainedMeasure_s;

namespace {

// Ends of the steps since the first one's begin.
std::vector<double> ends_of(std::span<const double> times_ns) {
  std::vector<double> out;
  double t = 0;
  for (const double ns : times_ns) out.push_back(t += ns * 1e-9);
  return out;
}

// How many steps had ended at `t`, a step in part by its share of time.
double steps_until(const std::vector<double>& ends, double t) {
  const auto next = std::upper_bound(ends.begin(), ends.end(), t);
  const auto done = static_cast<double>(next - ends.begin());
  if (next == ends.end()) return done;
  const double begin = next == ends.begin() ? 0 : *(next - 1);
  return done + (t - begin) / (*next - begin);
}

// Mean step time over [from, to), seconds.
double mean_over(const std::vector<double>& ends, double from, double to) {
  return (to - from) / (steps_until(ends, to) - steps_until(ends, from));
}

// Spread of ln of the moving means over `window` seconds between `from` and `to`; nullopt where less than twice the window fits.
std::optional<double> spread_of(const std::vector<double>& ends, double from, double to, double window) {
  constexpr double kStep_s = 0.02;
  if (to - from < 2 * window) return std::nullopt;
  std::vector<double> values;
  for (double at = from; at + window <= to + 1e-9; at += kStep_s) values.push_back(std::log(mean_over(ends, at, at + window)));
  const auto e = estimate(values);
  if (!e) return std::nullopt;
  return e->sd;
}

void count(AloneRun& r, std::span<const double> times_ns, size_t from, size_t to, const std::vector<double>& ends) {
  const double stall = kStall * stepscope::median(std::vector<double>{times_ns.begin() + static_cast<std::ptrdiff_t>(from),
                                                                      times_ns.begin() + static_cast<std::ptrdiff_t>(to)});
  const double begin = from == 0 ? 0 : ends[from - 1], end = ends[to - 1];
  // Whole seconds: parts of the clock's cycle would be compared otherwise.
  const double whole_s = std::floor((end - begin) / 2);
  const double half_s = whole_s >= 1 ? whole_s : (end - begin) / 2;
  r.first_half_ns = mean_over(ends, begin, begin + half_s) * 1e9;
  r.second_half_ns = mean_over(ends, end - half_s, end) * 1e9;
  for (size_t i = from; i < to; ++i) {
    if (times_ns[i] > stall) {
      ++r.stalls;
      r.stalled_ns += times_ns[i];
      continue;
    }
    ++r.steps;
    r.total_ns += times_ns[i];
  }
}

// Steps 2 to 5, by the begin of the second: the first holds what a start costs. Where the start takes more than that, none is left.
void full_clock(AloneRun& r, std::span<const double> times_ns, size_t skip) {
  constexpr size_t kFirst = 1, kLast = 5;
  if (skip > kFirst) {
    r.full_clock_absent = fmt::format("the first {} steps are the program's start", skip);
    return;
  }
  if (times_ns.size() < kLast) {
    r.full_clock_absent = "fewer than 5 steps";
    return;
  }
  const double sum_ns = std::accumulate(times_ns.begin() + kFirst, times_ns.begin() + kLast, 0.0);
  if (sum_ns * 1e-9 > kFullClock_s)
    r.full_clock_absent =
        fmt::format("steps 2 to 5 end {:.0f} ms after they began, and a limiter acts after {:.0f} ms", sum_ns * 1e-6, kFullClock_s * 1e3);
  else
    r.full_clock_ns = sum_ns / (kLast - kFirst);
}

}  // namespace

std::optional<double> settled_after_s(std::span<const double> times_ns) {
  const std::vector<double> ends = ends_of(times_ns);
  for (double at = 2 * kPowerCycle_s; !ends.empty() && at <= ends.back(); at += kPowerCycle_s / 2) {
    const double before = mean_over(ends, at - 2 * kPowerCycle_s, at - kPowerCycle_s), last = mean_over(ends, at - kPowerCycle_s, at);
    if (std::fabs(std::log(last / before)) < kSettledChange) return std::max(at, kSustainedSettle_s);
  }
  return std::nullopt;
}

size_t first_steady_step(std::span<const double> times_ns) {
  constexpr size_t kRow = 8;
  return times_ns.size() < 2 * kRow ? 0 : stepscope::first_steady_step(times_ns, kRow);
}

Counted count_steps(std::span<const double> times_ns, const StretchRequest& q, size_t skip, size_t fewest_skipped) {
  Counted out;
  out.ends_s = ends_of(times_ns);
  const std::vector<double>& ends = out.ends_s;
  const size_t n = times_ns.size();
  const double origin = skip == 0 ? 0 : ends[skip - 1];
  // A microsecond of slack: sums of times round.
  constexpr double kSlack_s = 1e-6;
  size_t from = skip;
  while (from < n && (static_cast<int>(from - skip) < q.settle_steps || (from == 0 ? 0 : ends[from - 1]) - origin < q.settle_s - kSlack_s))
    ++from;
  const auto begin_of = [&](size_t i) { return i == 0 ? 0.0 : ends[i - 1]; };
  size_t to = from;
  while (to < n && (static_cast<int>(to - from) < q.measure_steps || ends[to - 1] - begin_of(from) < q.measure_s - kSlack_s)) ++to;
  const bool enough =
      to > from && static_cast<int>(to - from) >= q.measure_steps && ends[to - 1] - begin_of(from) >= q.measure_s - kSlack_s;
  if (!enough) {
    from = std::min(std::max(skip, fewest_skipped), n - 1);
    to = n;
  }
  AloneRun& r = out.run;
  out.begin_s = begin_of(from);
  out.end_s = ends[to - 1];
  r.settle_steps = static_cast<int>(from);
  r.settle_s = out.begin_s;
  count(r, times_ns, from, to, ends);
  full_clock(r, times_ns, skip);
  r.burst = out.begin_s - origin < kSustainedSettle_s - kSlack_s || out.end_s - out.begin_s < kSustainedMeasure_s - kSlack_s;
  r.spread_quarter_s = spread_of(ends, out.begin_s, out.end_s, 0.25);
  r.spread_second = spread_of(ends, out.begin_s, out.end_s, 1.0);
  for (size_t i = 0; i < n; ++i) {
    const auto tenth = static_cast<size_t>(ends[i] / kTenth_s);
    if (tenth >= 1000) break;  // of a long program the first 100 s
    if (r.tenths_ns.size() <= tenth) r.tenths_ns.resize(tenth + 1, 0.0);
  }
  std::vector<double> steps(r.tenths_ns.size(), 0.0);
  for (size_t i = 0; i < n; ++i) {
    const auto tenth = static_cast<size_t>(ends[i] / kTenth_s);
    if (tenth >= r.tenths_ns.size()) break;
    r.tenths_ns[tenth] += times_ns[i];
    ++steps[tenth];
  }
  for (size_t k = 0; k < steps.size(); ++k)
    if (steps[k] > 0) r.tenths_ns[k] = std::round(r.tenths_ns[k] / steps[k]);
  return out;
}

}  // namespace experiments
