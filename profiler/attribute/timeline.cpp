#include "profiler/attribute/timeline.h"

#include <algorithm>
#include <cstddef>

namespace profiler {
namespace {

void add_gap(Timeline& t, int64_t length_ns) {
  size_t bucket = 0;
  while (bucket < kGapLimits_ns.size() && length_ns > kGapLimits_ns[bucket]) ++bucket;
  ++t.gaps[bucket].count;
  t.gaps[bucket].time_ns += static_cast<double>(length_ns);
  t.idle_ns += static_cast<double>(length_ns);
}

int64_t inside(int64_t begin, int64_t end, Interval window) {
  return std::max<int64_t>(0, std::min(end, window.end_ns) - std::max(begin, window.begin_ns));
}

}  // namespace

Timeline make_timeline(const std::vector<Interval>& intervals, Interval window) {
  struct Event {
    int64_t time_ns;
    size_t interval;
    bool begins;
  };
  Timeline t;
  t.window_ns = static_cast<double>(window.end_ns - window.begin_ns);
  t.share_ns.assign(intervals.size(), 0.0);
  std::vector<Event> events;
  for (size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].end_ns <= intervals[i].begin_ns) continue;
    events.push_back({intervals[i].begin_ns, i, true});
    events.push_back({intervals[i].end_ns, i, false});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });

  // fair(t) = integral of 1/k; an interval's share is fair(end) - fair(begin).
  double fair_ns = 0;
  int64_t running = 0, last_ns = window.begin_ns;
  for (const Event& e : events) {
    if (running == 0) {
      if (const int64_t gap = inside(last_ns, e.time_ns, window); gap > 0) add_gap(t, gap);
    } else {
      const auto length = static_cast<double>(e.time_ns - last_ns);
      fair_ns += length / static_cast<double>(running);
      t.busy_ns += length;
      if (running > 1) t.overlap_ns += length;
      t.outside_ns += length - static_cast<double>(inside(last_ns, e.time_ns, window));
    }
    last_ns = e.time_ns;
    if (e.begins) {
      ++running;
      t.share_ns[e.interval] -= fair_ns;
    } else {
      --running;
      t.share_ns[e.interval] += fair_ns;
    }
  }
  if (const int64_t gap = inside(last_ns, window.end_ns, window); gap > 0) add_gap(t, gap);
  return t;
}

}  // namespace profiler
