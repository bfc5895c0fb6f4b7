// The record of one fresh process that had the device to itself, and what many of them say together.
//
// The value of a process is the total time of its counted steps over their number, never a median: at its power cap a GPU's clock
// cycles with a period of about a second, and a mean over whole seconds is what a user gets. The pair value is ln(B / A) of two
// processes of one round. Everything that was not to be had is absent, with the reason beside it.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/statistics/decision.h"

namespace experiments {

// The device between two moments, from NVML samples and from its energy counter.
struct DeviceWindow {
  std::optional<double> sm_clock_mhz;     // mean over the samples
  std::optional<double> power_w;          // joules over seconds; without the counter as sampled_power_w
  std::optional<double> sampled_power_w;  // the mean of NVML's own means over one second
  std::optional<double> temperature_c;    // highest
  std::optional<double> joules;           // by the energy counter, interpolated between its changes
  uint64_t throttle_reasons = 0;          // all bits seen, nvmlClocksEventReasons
  int samples = 0;
  std::string absent;         // why there is no sample; "" with samples
  std::string energy_absent;  // why there are no joules; "" with them
};

// What the device may do at most; absent where NVML does not say.
struct DeviceLimits {
  std::optional<double> max_sm_clock_mhz, power_limit_w;
};

struct AloneRun {
  char arm = 'A';      // 'A': the baseline, 'B': the change
  int pair = 0;        // from 0: the round, in which every arm runs once. A baseline that several experiments share has its run in each log
  int position = 0;    // in the round, from 0
  double at_s = 0;     // begin of the first step, since the measurement began
  double start_s = 0;  // from the start of the process until it could step; 0 of a command
  // The device's idle time since the process before it stopped stepping; absent: the first one, or a command.
  std::optional<double> rest_s;
  double settle_s = 0;  // the first steps, not counted
  int settle_steps = 0;
  int steps = 0;        // counted: settled and no stall
  double total_ns = 0;  // of the counted steps
  int stalls = 0;       // steps of more than kStall x the median after settling: left out of `steps` and `total_ns`
  double stalled_ns = 0;
  // Mean step time, stalls included, in as many whole seconds at the begin and at the end of the counted time as fit into half of it: whether
  // it had settled.
  std::optional<double> first_half_ns, second_half_ns;
  // Mean of steps 2 to 5 where they end within kFullClock_s of the first step's begin: no limiter has acted yet.
  std::optional<double> full_clock_ns;
  std::string full_clock_absent;
  DeviceWindow device;  // during the counted steps
  std::optional<double> joules_per_step;
  std::optional<double> last_loss;
  std::vector<double> tenths_ns;   // mean time of the steps that ended in each 0.1 s since the first step's begin; 0: none ended in it
  std::vector<double> tenths_mhz;  // mean SM clock in the same 0.1 s; 0: no sample fell into it
  // Spread (sd of ln) of the moving means over 0.25 s and 1 s inside the counted time: the clock's cycle, and what whole seconds leave of it.
  std::optional<double> spread_quarter_s, spread_second;
  bool burst = false;  // settled for less than kSustainedSettle_s or counted for less than kSustainedMeasure_s: not sustained

  double step_ns() const { return total_ns / steps; }  // the value
};

inline constexpr double kStall = 1.25;
inline constexpr double kFullClock_s = 0.040;
inline constexpr double kSustainedSettle_s = 2.0;
inline constexpr double kTenth_s = 0.1;

// The checks of a measurement on itself. A notice is a sentence for people; it changes no verdict.
enum class SelfCheck {
  settled,  // (a) the counted time's second half takes another ratio than its first
  cycle,    // (b) spread of means over 1 s is large: another period than the counted seconds forgive
  order,    // (c) AB pairs differ from BA pairs: drift per process
  power,    // (d) both arms at the power cap and yet at unlike power
  host,     // (e) the ratio alone is not that at equal clocks plus what the clocks say: the host is in it
  stalls,   // more than 1% of the steps were left out as stalls
  burst,    // whole programs too short to be sustained
  energy,   // the mean of NVML's power and joules over seconds disagree by more than 1%
  pieces,   // the rounds of the last command take another ratio than those that it went on from
};
std::string_view name(SelfCheck check);
std::optional<SelfCheck> self_check_from_name(std::string_view text);

struct SelfCheckResult {
  SelfCheck check = SelfCheck::settled;
  bool notice = false;
  std::optional<double> value, limit;  // in the unit of the sentence, most of them percent
  std::optional<double> p_value;
  std::string sentence;  // complete, with its figures, and with advice where it is a notice
};

// One arm over all its runs.
struct SustainedArm {
  double step_ns = 0;  // total time / steps over all runs
  int64_t steps = 0;
  int processes = 0;
  std::optional<double> sm_clock_mhz, power_w, joules_per_step, temperature_c, full_clock_ns;
  // Power of at least 97% of the limit and a mean clock of at least 30 MHz below the maximum. The power-cap bit alone says too much.
  std::optional<bool> clock_limited;
  // Sustained against full clock; absent where no step ran at full clock, or clock_limited is: what no power limits costs nothing.
  std::optional<double> cap_cost_pct;
  bool burst = false;  // any of its runs
};

// A ratio B / A over pairs, as ln, with the interval at the level of the decision that it stands beside.
struct PairedRatio {
  Estimate log_ratio;
  Interval interval;
};

// How the ratio at equal clocks was found.
enum class EqualClocksBy { turns, full_clock };  // resident pairs in turns | steps 2 to 5 of fresh processes
std::string_view name(EqualClocksBy by);
struct EqualClocks {
  EqualClocksBy by = EqualClocksBy::turns;
  PairedRatio ratio;
  std::optional<double> sm_clock_mhz;  // at which it was measured, where that is known
};

struct Sustained {
  SustainedArm a, b;
  std::optional<PairedRatio> joules_per_step, sm_clock, power;  // B / A over pairs; absent unless every pair has it
};

// Without the runs of a round in which only one arm ran; in the order in which they ran.
std::vector<AloneRun> whole_rounds(std::span<const AloneRun> runs);
// ln(B / A) of every round in which both ran.
std::vector<PairValue> sustained_values(std::span<const AloneRun> runs);
// nullopt without a round in which both arms ran. `alpha`: two-sided level of the intervals.
std::optional<Sustained> sustained(std::span<const AloneRun> runs, const DeviceLimits& limits, double alpha);
// By steps 2 to 5 of the runs; nullopt unless every pair has them.
std::optional<EqualClocks> equal_clocks_of(std::span<const AloneRun> runs, const DeviceLimits& limits, double alpha);
// Every check that these runs allow; (e) needs `equal_clocks`.
std::vector<SelfCheckResult> self_checks(std::span<const AloneRun> runs, const DeviceLimits& limits,
                                         const std::optional<EqualClocks>& equal_clocks, double alpha);

// One of them, which needs nothing but the runs; nullopt for those of one command. A command is seen where its clock begins anew or by its first
// process, which has no rest. Where another change's process was the first, a command that begins to count later than the one before it is not.
std::optional<SelfCheckResult> pieces_check(std::span<const AloneRun> runs);

}  // namespace experiments
