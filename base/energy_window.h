// Energy between two moments, from a counter that the GPU renews at a pace of its own, and the steps that were done in between.
//
// The counter is polled far more often than it moves, and only its changes are kept. A window begins and ends at a change, so its joules
// are exact differences of the counter and nothing of them is interpolated. What is interpolated are the steps: their completions are known
// by the host's clock to some microseconds, and between two completions the step is taken to proceed evenly.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace energy {

struct CounterChange {
  double at_s = 0;    // when the new value was first seen
  double joules = 0;  // the new value
};
// Appends a reading when it is another value than the last one kept. Throws CounterError (counter_error.h) for a counter that goes back.
void keep_change(std::vector<CounterChange>& changes, double at_s, double joules);

struct StepsDone {
  double at_s = 0;
  double steps = 0;  // so many were complete
};
struct ClockSample {
  double at_s = 0;
  double sm_clock_mhz = 0;
};

struct Window {
  double begin_s = 0, end_s = 0;
  double joules = 0, steps = 0;
  int updates = 0;  // changes of the counter after the first
  std::optional<double> sm_clock_mhz;

  double seconds() const { return end_s - begin_s; }
  double middle_s() const { return 0.5 * (begin_s + end_s); }
  double power_w() const { return joules / seconds(); }
  double joules_per_step() const { return joules / steps; }
  double seconds_per_step() const { return seconds() / steps; }
};

inline constexpr int kFewestUpdates = 10;

// The window from the first change at or after `from_s` to the first change at least `length_s` later; nullopt while there is none, or while
// the steps are not known up to its end. Clock: the mean of the samples in it.
std::optional<Window> window_from(std::span<const CounterChange> changes, std::span<const StepsDone> done,
                                  std::span<const ClockSample> clocks, double from_s, double length_s);

// Steps complete at `at_s`, between two completions in proportion. nullopt outside of the record.
std::optional<double> steps_at(std::span<const StepsDone> done, double at_s);

// Standard error of a window's joules per step, as a share of it, from when the counter was read: a change is seen up to `poll_s` late, at
// both ends.
double poll_error(const Window& window, double poll_s);

}  // namespace energy
