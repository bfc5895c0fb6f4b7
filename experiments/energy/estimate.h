// From windows to joules per op. Windows of the step alone stand between windows of the step with copies of one op's launches appended;
// what a copy adds to the step's joules, against the step alone at the same time of the run, is the op's.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/energy_window.h"

namespace energy {

inline constexpr int kStepAlone = -1;

struct Measured {
  int group = kStepAlone;  // index of the op, or kStepAlone
  double copies = 0;       // of the op's launches, beside the step's own
  Window window;           // `steps` are steps, however many copies each has
};

// The step alone at a time between two of its windows, or of the nearest one outside of them.
struct StepAlone {
  double joules = 0, seconds = 0;
  std::optional<double> sm_clock_mhz;
  double weight = 1;  // variance of `joules` as a multiple of one window's
};
// Throws std::logic_error without a window of the step alone. Windows in order of time.
StepAlone step_alone_at(std::span<const Measured> measured, double at_s);

// Standard deviation of one window's joules per step, as a share: windows of the step alone against the line between their neighbours, but
// never less than `least`. nullopt with fewer than three of them.
std::optional<double> window_noise(std::span<const Measured> measured, double least);

// What one execution of an op (over all layers) adds to a step.
struct Slope {
  double joules = 0;
  double joules_error = 0;  // one standard error
  double seconds = 0;
  // At the clock of the step alone; equals `joules` where the clocks are not known or no exponent is given.
  double joules_at_step_clock = 0;
  std::optional<double> sm_clock_mhz;  // mean over the op's windows
  int windows = 0;
};
// Weighted least squares through the step alone, over all windows of `group`. `noise`: window_noise. `clock_exponent`: d ln joules / d ln
// clock of a step (clock_exponent_of); the joules of a window are brought to the clock of the step alone by it before the fit. nullopt
// without a window of that group.
std::optional<Slope> slope_of(std::span<const Measured> measured, int group, double noise, std::optional<double> clock_exponent);

// Resolved: known to 1% of itself, or to a part of the step that no sum would miss.
inline constexpr double kResolvedShare = 0.01;
inline constexpr double kResolvedShareOfStep = 0.0005;
bool resolved(const Slope& slope, double step_joules);

// A step's joules at the clock at which they were measured.
struct AtClock {
  double joules = 0;
  std::optional<double> sm_clock_mhz;
};
// Without the pauses that were in it: `pause_s` of each step, each second of them at `pause_watts`.
AtClock without_pauses(const Window& paced, double pause_watts, double pause_s);
// d ln joules / d ln clock of a step: from steps as training runs them and steps with pauses between their launches, which the GPU computes at a
// higher clock. nullopt where the clocks are not known or differ by less than 2%: then nothing needs to be brought to another clock.
std::optional<double> clock_exponent_of(const AtClock& steps, const AtClock& paced);

struct Closure {
  double step_joules = 0;
  double placed_joules = 0, placed_error = 0;
  double not_placed_joules() const { return step_joules - placed_joules; }
  double not_placed_share() const { return not_placed_joules() / step_joules; }
};
// `slopes` of ops that together are the whole step.
Closure close_over(std::span<const Slope> slopes, double step_joules, bool at_step_clock);

// ---- floors ----------------------------------------------------------------------------------------------------------------

// A unit of work repeated for seconds: what it draws and how fast it goes.
struct Probe {
  double watts = 0;
  double bytes_per_s = 0, flops_per_s = 0;
  std::optional<double> sm_clock_mhz;
};

// What work costs on this device at the least. Static: a GPU with one thread awake.
struct Coefficients {
  double static_w = 0;
  double joules_per_byte = 0, joules_per_flop = 0;  // above the static power
  double bytes_per_s = 0, flops_per_s = 0;          // of the probes
};
// nullopt where a probe drew no more than the idle one: then nothing was measured.
std::optional<Coefficients> coefficients_of(const Probe& idle, const Probe& copy, const Probe& product);

struct Floor {
  double memory_s = 0, math_s = 0;  // at the probes' rates
  double joules = 0;                // bytes and FLOPs at their coefficients, and the static power for the longer of the two times
};
Floor floor_of(double flops, double min_bytes, const Coefficients& coefficients);

// What keeps an op from taking less sustained time: DRAM, the rate of the products, the joules that its work needs at the power cap, or that
// its launches are short. `neither`: its floors are all well below its time.
enum class Bound { memory, tensor, power, latency, neither };
std::string_view name(Bound bound);
// `seconds` of the op in all its `launches`. `limit_w`: the power limit, where the step runs at it; without one nothing is bound by power.
Bound bound_of(const Floor& floor, double seconds, double launches, std::optional<double> limit_w);

}  // namespace energy
