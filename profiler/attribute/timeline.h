// What the device did when, over one step: busy and idle by interval union, so that two streams that overlap
// are not counted twice.
//
// Where k operations run at the same time, each is given 1/k of that time. The shares of all operations plus
// the idle time are therefore exactly the window, whatever the number of streams.
//
// Communication is the exception: where anything else runs it costs nothing, because the step would have taken
// as long without it. It is given only the time in which nothing else ran (exposed); the rest is hidden. The sum
// of shares and idle time is still the window.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace profiler {

struct Interval {
  int64_t begin_ns = 0, end_ns = 0;
  bool communication = false;
};

// Idle stretches by length: up to each limit; the last bucket has none.
inline constexpr std::array<int64_t, 4> kGapLimits_ns = {1000, 5000, 20000, 100000};
struct GapBucket {
  int64_t count = 0;
  double time_ns = 0;
};

struct Timeline {
  double window_ns = 0;
  double busy_ns = 0;     // at least one operation runs
  double overlap_ns = 0;  // at least two run
  double idle_ns = 0;
  std::array<GapBucket, kGapLimits_ns.size() + 1> gaps;
  std::vector<double> share_ns;   // per interval, in the order given
  std::vector<double> hidden_ns;  // likewise: communication beside other work, 1/k each where k collectives run; 0 for all else
  double exposed_all_ns = 0;      // communication runs and nothing else does
  double hidden_all_ns = 0;       // communication runs and so does something else
};

// `window`: begin < end. Intervals in any order; an interval with end <= begin has no time.
Timeline make_timeline(const std::vector<Interval>& intervals, Interval window);

}  // namespace profiler
