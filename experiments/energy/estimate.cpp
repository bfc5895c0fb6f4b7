#include "experiments/energy/estimate.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace energy {
namespace {

// From this share of an op's time its largest floor bounds it; a launch shorter than this is mostly launch and drain. As the profiler has
// them for kernels (profiler/attribute/roofline.h).
constexpr double kBoundShare = 0.60;
constexpr double kLatency_s = 5e-6;
// The joules of a product at the cap divided by the cap are its time at the measured rate, give or take this: that rate was set by power.
constexpr double kTie = 0.03;
constexpr double kLeastClockChange = 0.02;

std::vector<const Measured*> windows_of(std::span<const Measured> measured, int group) {
  std::vector<const Measured*> found;
  for (const Measured& m : measured)
    if (m.group == group) found.push_back(&m);
  return found;
}

StepAlone between(const Window& a, const Window& b, double at_s) {
  const double t = (at_s - a.middle_s()) / (b.middle_s() - a.middle_s());
  StepAlone s;
  s.joules = (1 - t) * a.joules_per_step() + t * b.joules_per_step();
  s.seconds = (1 - t) * a.seconds_per_step() + t * b.seconds_per_step();
  if (a.sm_clock_mhz && b.sm_clock_mhz) s.sm_clock_mhz = (1 - t) * *a.sm_clock_mhz + t * *b.sm_clock_mhz;
  s.weight = (1 - t) * (1 - t) + t * t;
  return s;
}

}  // namespace

StepAlone step_alone_at(std::span<const Measured> measured, double at_s) {
  const auto alone = windows_of(measured, kStepAlone);
  if (alone.empty()) throw std::logic_error("no window of the step alone");
  const auto after = std::find_if(alone.begin(), alone.end(), [&](const Measured* m) { return m->window.middle_s() >= at_s; });
  if (after != alone.begin() && after != alone.end()) return between((*(after - 1))->window, (*after)->window, at_s);
  const Window& nearest = after == alone.end() ? alone.back()->window : alone.front()->window;
  return {nearest.joules_per_step(), nearest.seconds_per_step(), nearest.sm_clock_mhz, 1};
}

std::optional<double> window_noise(std::span<const Measured> measured, double least) {
  const auto alone = windows_of(measured, kStepAlone);
  if (alone.size() < 3) return std::nullopt;
  double sum = 0;
  for (size_t i = 1; i + 1 < alone.size(); ++i) {
    const Window& w = alone[i]->window;
    const StepAlone line = between(alone[i - 1]->window, alone[i + 1]->window, w.middle_s());
    const double off = w.joules_per_step() / line.joules - 1;
    sum += off * off / (1 + line.weight);
  }
  return std::max(least, std::sqrt(sum / static_cast<double>(alone.size() - 2)));
}

std::optional<Slope> slope_of(std::span<const Measured> measured, int group, double noise, std::optional<double> clock_exponent) {
  double xx = 0, xy = 0, xy_step_clock = 0, xt = 0, clock = 0;
  int clocks = 0;
  Slope slope;
  for (const Measured* m : windows_of(measured, group)) {
    const StepAlone alone = step_alone_at(measured, m->window.middle_s());
    const double joules = m->window.joules_per_step();
    double at_step_clock = joules;
    if (clock_exponent && alone.sm_clock_mhz && m->window.sm_clock_mhz)
      at_step_clock *= std::pow(*alone.sm_clock_mhz / *m->window.sm_clock_mhz, *clock_exponent);
    const double sd = noise * std::sqrt(joules * joules + alone.weight * alone.joules * alone.joules);
    const double weight = m->copies / (sd * sd);
    xx += weight * m->copies;
    xy += weight * (joules - alone.joules);
    xy_step_clock += weight * (at_step_clock - alone.joules);
    xt += weight * (m->window.seconds_per_step() - alone.seconds);
    if (m->window.sm_clock_mhz) clock += *m->window.sm_clock_mhz, ++clocks;
    ++slope.windows;
  }
  if (xx <= 0) return std::nullopt;
  slope.joules = xy / xx;
  slope.joules_error = 1 / std::sqrt(xx);
  slope.joules_at_step_clock = xy_step_clock / xx;
  slope.seconds = xt / xx;
  if (clocks > 0) slope.sm_clock_mhz = clock / clocks;
  return slope;
}

bool resolved(const Slope& slope, double step_joules) {
  return slope.joules_error <= std::max(kResolvedShare * slope.joules, kResolvedShareOfStep * step_joules);
}

AtClock without_pauses(const Window& paced, double pause_watts, double pause_s) {
  return {paced.joules_per_step() - pause_watts * pause_s, paced.sm_clock_mhz};
}

std::optional<double> clock_exponent_of(const AtClock& steps, const AtClock& paced) {
  if (!steps.sm_clock_mhz || !paced.sm_clock_mhz || steps.joules <= 0 || paced.joules <= 0) return std::nullopt;
  const double clocks = std::log(*paced.sm_clock_mhz / *steps.sm_clock_mhz);
  if (clocks < std::log1p(kLeastClockChange)) return std::nullopt;
  return std::log(paced.joules / steps.joules) / clocks;
}

Closure close_over(std::span<const Slope> slopes, double step_joules, bool at_step_clock) {
  Closure c{step_joules, 0, 0};
  double variance = 0;
  for (const Slope& s : slopes) {
    c.placed_joules += at_step_clock ? s.joules_at_step_clock : s.joules;
    variance += s.joules_error * s.joules_error;
  }
  c.placed_error = std::sqrt(variance);
  return c;
}

std::optional<Coefficients> coefficients_of(const Probe& idle, const Probe& copy, const Probe& product) {
  if (copy.bytes_per_s <= 0 || product.flops_per_s <= 0) return std::nullopt;
  Coefficients c;
  c.static_w = idle.watts;
  c.bytes_per_s = copy.bytes_per_s;
  c.flops_per_s = product.flops_per_s;
  c.joules_per_byte = (copy.watts - idle.watts) / copy.bytes_per_s;
  c.joules_per_flop = (product.watts - idle.watts - c.joules_per_byte * product.bytes_per_s) / product.flops_per_s;
  if (c.joules_per_byte <= 0 || c.joules_per_flop <= 0) return std::nullopt;
  return c;
}

Floor floor_of(double flops, double min_bytes, const Coefficients& c) {
  Floor f;
  f.memory_s = min_bytes / c.bytes_per_s;
  f.math_s = flops / c.flops_per_s;
  f.joules = min_bytes * c.joules_per_byte + flops * c.joules_per_flop + c.static_w * std::max(f.memory_s, f.math_s);
  return f;
}

std::string_view name(Bound bound) {
  switch (bound) {
    case Bound::memory:
      return "memory";
    case Bound::tensor:
      return "tensor";
    case Bound::power:
      return "power";
    case Bound::latency:
      return "latency";
    case Bound::neither:
      break;
  }
  return "neither";
}

Bound bound_of(const Floor& floor, double seconds, double launches, std::optional<double> limit_w) {
  const double time_floor = std::max(floor.memory_s, floor.math_s);
  const double power_s = limit_w ? floor.joules / *limit_w : 0;
  if (std::max(time_floor, power_s) < kBoundShare * seconds)
    return launches > 0 && seconds / launches < kLatency_s ? Bound::latency : Bound::neither;
  if (power_s > 0 && power_s >= (1 - kTie) * time_floor) return Bound::power;
  return floor.memory_s >= floor.math_s ? Bound::memory : Bound::tensor;
}

}  // namespace energy
