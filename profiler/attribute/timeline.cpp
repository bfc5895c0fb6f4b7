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
  t.hidden_ns.assign(intervals.size(), 0.0);
  std::vector<Event> events;
  for (size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].end_ns <= intervals[i].begin_ns) continue;
    events.push_back({intervals[i].begin_ns, i, true});
    events.push_back({intervals[i].end_ns, i, false});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });

  // fair(t) = integral of 1/k over the time in which operations of that kind count; a share is fair(end) - fair(begin).
  double fair_ns = 0, fair_exposed_ns = 0, fair_hidden_ns = 0;
  int64_t working = 0, communicating = 0, last_ns = window.begin_ns;
  for (const Event& e : events) {
    if (working + communicating == 0) {
      if (const int64_t gap = inside(last_ns, e.time_ns, window); gap > 0) add_gap(t, gap);
    } else {
      const auto length = static_cast<double>(e.time_ns - last_ns);
      if (working > 0) fair_ns += length / static_cast<double>(working);
      if (communicating > 0) {
        (working > 0 ? fair_hidden_ns : fair_exposed_ns) += length / static_cast<double>(communicating);
        (working > 0 ? t.hidden_all_ns : t.exposed_all_ns) += length;
      }
      t.busy_ns += length;
      if (working + communicating > 1) t.overlap_ns += length;
    }
    last_ns = e.time_ns;
    const bool communication = intervals[e.interval].communication;
    (communication ? communicating : working) += e.begins ? 1 : -1;
    const double sign = e.begins ? -1 : 1;
    t.share_ns[e.interval] += sign * (communication ? fair_exposed_ns : fair_ns);
    if (communication) t.hidden_ns[e.interval] += sign * fair_hidden_ns;
  }
  if (const int64_t gap = inside(last_ns, window.end_ns, window); gap > 0) add_gap(t, gap);
  return t;
}

}  // namespace profiler
