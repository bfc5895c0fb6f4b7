// Cool or warm: a GPU runs its first seconds at a higher clock than it holds under its power cap. From the times of steps in a row, and from
// clock, power and the energy counter while they ran, this tells which steps are which and what a step takes in energy.
//
// The controller works in a cycle of about a second: means over less sample its phase, means over whole seconds do not. So nothing here looks
// at a stretch shorter than one window.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/sustained.h"
#include "profiler/document/profile.h"
#include "profiler/records/records.h"

namespace profiler {

inline constexpr double kWindow_ns = stepscope::kPowerCycle_s * 1e9;
inline constexpr size_t kWindowSteps = 3;                                    // and no fewer steps
inline constexpr double kSettledStep_pct = 100 * stepscope::kSettledChange;  // two windows in a row: the precise witness
inline constexpr double kPowerMean_ns = 1e9;                                 // over so long NVML's power is a mean
inline constexpr double kSettledDevice_pct = 1.0;                            // clock and power, of which a window has ten samples
inline constexpr double kLongestSettling_ns = stepscope::kLongestSettle_s * 1e9;
inline constexpr double kWarmLeast_ns = stepscope::kSustainedMeasure_s * 1e9;  // a warm figure needs so long behind the settling
inline constexpr size_t kWarmLeastSteps = 8;
inline constexpr double kEnergyLeast_ns = 1e9;  // and a figure of energy so long between two changes of the counter
inline constexpr size_t kEnergyLeastChanges = 10;

struct StepInTime {
  int64_t begin_ns = 0;  // of the clock that samples have
  double time_ns = 0;
  bool counted = true;  // false: warm-up, which settles the device but is in no figure
};

struct DeviceStates {
  Text state;                // "cool" or "warm": what most of the counted steps are
  std::string why_none;      // why there is no state
  std::string why_not_warm;  // why no warm row
  std::vector<StateRow> rows;
  std::string why_no_energy;  // where a row has none
};

// `steps` in a row, from the first of the process on. `run`: a word for the rows, "timed" or "sustained".
DeviceStates device_states(const std::vector<StepInTime>& steps, const std::vector<EnvironmentSample>& samples,
                           const std::vector<EnergySample>& energy, const std::string& run, Number tokens_per_step);

// First step behind the settling: two windows in a row agree in step time, clock and power. The text says why there is none.
struct Settling {
  std::optional<size_t> first_warm;
  std::string why_none;
};
Settling settling_of(const std::vector<StepInTime>& steps, const std::vector<EnvironmentSample>& samples);

// Joules between two times, interpolated between the changes of the counter. Absent with the reason where the counter was not read, or the
// stretch is too short for it. Where it covers only a part of the stretch (at least nine tenths) that part speaks for the whole.
struct Energy {
  Number joules;
  std::string why_none;
};
Energy energy_between(const std::vector<EnergySample>& energy, double begin_ns, double end_ns);

}  // namespace profiler
