#include "profiler/document/device_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/document/statistics.h"

namespace profiler {
namespace {

using Steps = std::vector<StepInTime>;
using Samples = std::vector<EnvironmentSample>;

double end_ns(const StepInTime& s) { return static_cast<double>(s.begin_ns) + s.time_ns; }

// A sample holds until the next: mean over a stretch, weighted by time. Absent when none was taken in it.
Number mean_between(const Samples& samples, double EnvironmentSample::*member, double begin, double end) {
  double sum = 0, weight = 0;
  bool inside = false;
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto at = static_cast<double>(samples[i].time_ns);
    const double until = i + 1 < samples.size() ? static_cast<double>(samples[i + 1].time_ns) : end;
    const double from = std::max(at, begin), to = std::min(until, end);
    inside = inside || (at >= begin && at <= end);
    if (to <= from) continue;
    sum += samples[i].*member * (to - from);
    weight += to - from;
  }
  return inside && weight > 0 ? Number(sum / weight) : std::nullopt;
}

// NVML's power is itself the mean over about the last second: a sample of the first second is partly of what came before.
Number power_between(const Samples& samples, double begin, double end) {
  return mean_between(samples, &EnvironmentSample::power_w, begin + kPowerMean_ns, end);
}
Number last_power_before(const Samples& samples, double begin, double end) {
  Number power;
  for (const EnvironmentSample& s : samples)
    if (static_cast<double>(s.time_ns) >= begin && static_cast<double>(s.time_ns) <= end) power = s.power_w;
  return power;
}

struct Window {
  size_t last = 0;  // one behind
  double step_ns = 0;
  Number clock_mhz, power_w;
};

std::optional<Window> window_from(const Steps& steps, size_t first, const Samples& samples) {
  double time = 0;
  size_t i = first;
  while (i < steps.size() && (time < kWindow_ns || i - first < kWindowSteps)) time += steps[i++].time_ns;
  if (time < kWindow_ns || i - first < kWindowSteps) return std::nullopt;
  const auto begin = static_cast<double>(steps[first].begin_ns);
  const double end = end_ns(steps[i - 1]);
  return Window{i, time / static_cast<double>(i - first), mean_between(samples, &EnvironmentSample::sm_clock_mhz, begin, end),
                last_power_before(samples, begin, end)};
}

double change_pct(double a, double b) { return std::fabs(b / a - 1) * 100; }

size_t first_ordinary(const Steps& steps) {
  constexpr size_t kInARow = 8;
  std::vector<double> times_ns;
  for (const StepInTime& s : steps) times_ns.push_back(s.time_ns);
  return stepscope::first_steady_step(times_ns, std::min(kInARow, times_ns.size()));
}

StateRow state_row(const Steps& steps, size_t first, size_t last, const char* state, const std::string& run) {
  StateRow row;
  row.state = state;
  row.run = run;
  row.steps = static_cast<int64_t>(last - first);
  for (size_t i = first; i < last; ++i) row.time_ns += steps[i].time_ns;
  row.step_time_ns = row.time_ns / static_cast<double>(row.steps);
  row.begin_ns = static_cast<double>(steps[first].begin_ns - steps.front().begin_ns);
  return row;
}

void fill_device(StateRow& row, const Steps& steps, size_t first, size_t last, const Samples& samples,
                 const std::vector<EnergySample>& energy, std::string& why_no_energy) {
  const auto begin = static_cast<double>(steps[first].begin_ns);
  const double end = end_ns(steps[last - 1]);
  row.sm_clock_mhz = mean_between(samples, &EnvironmentSample::sm_clock_mhz, begin, end);
  row.power_w = power_between(samples, begin, end);
  const Energy used = energy_between(energy, begin, end);
  if (!used.joules) {
    why_no_energy = used.why_none;
    return;
  }
  row.power_w = *used.joules / (row.time_ns * 1e-9);
  row.joules_per_step = *used.joules / static_cast<double>(row.steps);
}

}  // namespace

Settling settling_of(const Steps& steps, const Samples& samples) {
  if (steps.empty()) return {std::nullopt, "there are no steps"};
  auto before = window_from(steps, first_ordinary(steps), samples);
  std::string why = "they lasted less than two windows of 1.03 s";
  while (before) {
    const auto next = window_from(steps, before->last, samples);
    if (!next) break;
    if (!before->clock_mhz || !next->clock_mhz || !before->power_w || !next->power_w)
      return {std::nullopt, "NVML gave no clock and power for a second of steps"};
    const double step = change_pct(before->step_ns, next->step_ns), clock = change_pct(*before->clock_mhz, *next->clock_mhz),
                 power = change_pct(*before->power_w, *next->power_w);
    if (step < kSettledStep_pct && clock < kSettledDevice_pct && power < kSettledDevice_pct) return {next->last, ""};
    why = fmt::format("from one second to the next the step still changed by {:.2f}%, the SM clock by {:.2f}%, power by {:.2f}%", step,
                      clock, power);
    before = next;
  }
  return {std::nullopt, why};
}

Energy energy_between(const std::vector<EnergySample>& energy, double begin, double end) {
  if (end - begin < kEnergyLeast_ns)
    return {std::nullopt,
            fmt::format("{:.2f} s of steps; the energy counter moves about ten times a second and needs 1 s", (end - begin) * 1e-9)};
  if (energy.size() < 2) return {std::nullopt, "the driver's energy counter was not seen to change"};
  const auto at = [](const EnergySample& s) { return static_cast<double>(s.time_ns); };
  const double from = std::max(begin, at(energy.front())), to = std::min(end, at(energy.back()));
  const auto changes =
      static_cast<size_t>(std::count_if(energy.begin(), energy.end(), [&](const EnergySample& s) { return at(s) >= from && at(s) <= to; }));
  if (to - from < kEnergyLeast_ns || changes < kEnergyLeastChanges)
    return {std::nullopt, fmt::format("{:.2f} s of steps with {} changes of the energy counter; it needs 1 s and {}",
                                      std::max(0.0, to - from) * 1e-9, changes, kEnergyLeastChanges)};
  if (to - from < 0.9 * (end - begin))
    return {std::nullopt, fmt::format("the energy counter was read for {:.2f} of {:.2f} s", (to - from) * 1e-9, (end - begin) * 1e-9)};
  const auto joules_at = [&](double time) {
    const auto [last, next, share] = stepscope::between(energy.begin(), energy.end(), time, at).value();
    return (static_cast<double>(last->energy_mj) + share * static_cast<double>(next->energy_mj - last->energy_mj)) * 1e-3;
  };
  return {(joules_at(to) - joules_at(from)) / (to - from) * (end - begin), ""};
}

DeviceStates device_states(const Steps& steps, const Samples& samples, const std::vector<EnergySample>& energy, const std::string& run,
                           Number tokens_per_step) {
  DeviceStates d;
  const size_t first =
      static_cast<size_t>(std::find_if(steps.begin(), steps.end(), [](const StepInTime& s) { return s.counted; }) - steps.begin());
  if (first == steps.size()) {
    d.why_none = "no step was timed";
    return d;
  }
  const double end = end_ns(steps.back());
  if (samples.empty()) {
    d.why_none = "NVML gave no clock and power";
    return d;
  }
  const Settling settling = settling_of(steps, samples);
  const size_t warm = std::max(settling.first_warm.value_or(steps.size()), first);
  const double behind = warm < steps.size() ? end - static_cast<double>(steps[warm].begin_ns) : 0;
  const double counted = end - static_cast<double>(steps[first].begin_ns);
  if (behind > counted / 2) {
    d.state = "warm";
  } else if (settling.first_warm || end - static_cast<double>(steps.front().begin_ns) < kLongestSettling_ns) {
    d.state = "cool";
  } else {
    d.why_none = settling.why_none;
  }
  const auto add = [&](size_t from, size_t to, const char* state) {
    StateRow row = state_row(steps, from, to, state, run);
    fill_device(row, steps, from, to, samples, energy, d.why_no_energy);
    if (tokens_per_step) row.tokens_per_s = *tokens_per_step / (row.step_time_ns * 1e-9);
    d.rows.push_back(std::move(row));
  };
  if (warm > first && d.why_none.empty()) add(first, warm, "cool");
  if (behind >= kWarmLeast_ns && steps.size() - warm >= kWarmLeastSteps) {
    add(warm, steps.size(), "warm");
  } else {
    d.why_not_warm = settling.first_warm ? fmt::format("the steps behind the settling lasted {:.1f} s; it needs 3 s and {} steps",
                                                       behind * 1e-9, kWarmLeastSteps)
                                         : settling.why_none;
  }
  return d;
}

}  // namespace profiler
