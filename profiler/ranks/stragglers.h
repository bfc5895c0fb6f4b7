// Who comes last to a collective, and why.
//
// A rank that fell behind stays behind: its streams of work do not wait for the other ranks before the optimizer does. So the reason is looked
// for not only since the collective before but since the last one at which the rank was not the last.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "profiler/ranks/exposure.h"

namespace profiler {

struct Arrival {               // at one collective
  std::optional<size_t> last;  // position in `ranks`; absent: the skew is not above the uncertainty of the clocks
  double late_ns = 0;          // behind the last but one
  std::string because;  // op that took longer on it than on the others (median), "work": of no op, "host": it was idle; "" = not known
};
// `uncertainty_ns` absent: nobody is late. Two ranks or more with equally many collectives.
std::vector<Arrival> arrivals_of(const std::vector<RankStep>& ranks, std::optional<double> uncertainty_ns);

// What else is known of a rank.
struct RankCondition {
  std::optional<double> sm_clock_mhz;
  bool power_capped = false;
  std::optional<double> between_steps_ns;  // host time from step to step: loading data
};
struct Slowest {
  size_t rank = 0;
  double late_ns = 0;  // at the collective at which it was latest
  std::string why;     // of that collective: "power", "clock", "op NAME", "work", "host", "data"; "" = not known
};
// The rank that was late for longest over all collectives; nullopt: none was.
std::optional<Slowest> slowest_of(const std::vector<RankStep>& ranks, const std::vector<RankExposure>& exposures,
                                  const std::vector<Arrival>& arrivals, const std::vector<RankCondition>& conditions);

}  // namespace profiler
