// When a GPU's steps count as sustained, and when its power limit holds it back: the rules that profiles, verdicts and joules per op share.
#pragma once
#include <cstddef>
#include <optional>
#include <span>

namespace stepscope {

// One cycle of the power controller of an H200 at its cap. Means over less sample its phase.
inline constexpr double kPowerCycle_s = 1.03;
// Two means over a cycle in a row that differ by less, as a share: settled. Nobody waits longer than kLongestSettle_s for it.
inline constexpr double kSettledChange = 0.003;
inline constexpr double kLongestSettle_s = 10;
// A sustained figure needs so much behind the settling.
inline constexpr double kSustainedMeasure_s = 3;

// A clock that the power limit holds back is so much below the highest.
inline constexpr double kCappedClockGap_mhz = 30;
// At the power limit or not, by power (at least 97% of the limit) and clock (kCappedClockGap_mhz below the highest) together: the throttle bit
// says only that a limiter is active. nullopt where one of the four is unknown.
std::optional<bool> clock_limited(std::optional<double> power_w, std::optional<double> sm_clock_mhz, std::optional<double> power_limit_w,
                                  std::optional<double> max_sm_clock_mhz);

// The first of `in_a_row` steps in a row that take less than 1.5 x the median of the last half: a program may compile, search or read data
// first. 0 where there is none.
size_t first_steady_step(std::span<const double> times_ns, size_t in_a_row);

}  // namespace stepscope
