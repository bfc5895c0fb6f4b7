#include "profiler/attribute/traced_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/errors.h"
#include "base/statistics.h"
#include "profiler/records/names.h"
#include "profiler/records/shown_step.h"

namespace profiler {
namespace {

using LaunchKey = std::pair<Activity, int64_t>;  // activity, index

constexpr double kStepsOverlap_pct = 0.5;  // of the step shown, from which on its neighbours are told of

bool timed(const LaunchRecord& r) { return r.start_ns > 0 && r.end_ns >= r.start_ns; }
bool timed(const StepRecord& s) { return s.gpu_begin_ns > 0 && s.gpu_end_ns > s.gpu_begin_ns; }
double length_ns(const LaunchRecord& r) { return static_cast<double>(r.end_ns - r.start_ns); }

bool already_reported(const Recording& r, std::string_view name) {
  return std::any_of(r.missing.begin(), r.missing.end(), [&](const MissingRecord& m) { return m.name == name; });
}

using Step = std::map<LaunchKey, const LaunchRecord*>;
std::map<int64_t, Step> by_step(const Recording& r) {
  std::map<int64_t, Step> steps;
  for (const LaunchRecord& l : r.launches)
    if (!steps[l.step].emplace(LaunchKey{l.activity, l.index}, &l).second)
      throw stepscope::InputError(fmt::format("{} {} of step {} is there twice in the recording", name(l.activity), l.index, l.step));
  return steps;
}

// Copies and memsets are counted by their records, as kernels of a graph are: where records were lost, the counts are not of what was launched.
bool counts_are_of_launches(const Recording& r) {
  return !already_reported(r, "dropped_activity_records") && !already_reported(r, "torn_activity_buffer") &&
         !already_reported(r, "unmatched_correlation");
}

// The other steps must have launched the same. Of those that were not kept in full, only the counts are known. `record`: of the step shown.
void compare_sequences(const Recording& r, const std::vector<StepRecord>& traced, const std::map<int64_t, Step>& steps, const Step& shown,
                       const StepRecord* record, TracedStep& t) {
  int64_t differing = 0;
  std::string first;
  for (const auto& [number, step] : steps) {
    if (&step == &shown) continue;
    std::string why;
    if (step.size() != shown.size()) why = fmt::format("{} operations, {} in step {}", step.size(), shown.size(), *t.step);
    for (const auto& [key, l] : step) {
      const auto other = shown.find(key);
      if (other != shown.end() && other->second->name != l->name && why.empty())
        why = fmt::format("{} {} is '{}', in step {} '{}'", name(key.first), key.second, l->name, *t.step, other->second->name);
    }
    if (why.empty()) continue;
    if (differing++ == 0) first = fmt::format("step {}: {}", number, why);
  }
  if (record && counts_are_of_launches(r))
    for (const StepRecord& s : traced) {
      if (steps.contains(s.step) || std::tie(s.kernels, s.copies, s.memsets) == std::tie(record->kernels, record->copies, record->memsets))
        continue;
      if (differing++ == 0)
        first = fmt::format("step {}: kernels {}, copies {}, memsets {}; step {}: {}, {}, {}", s.step, s.kernels, s.copies, s.memsets,
                            *t.step, record->kernels, record->copies, record->memsets);
    }
  if (differing) t.missing.push_back({"kernel_sequence_changed", differing, first});
}

int64_t count_of(const Step& step, std::set<Activity> kinds) {
  return std::count_if(step.begin(), step.end(), [&](const auto& e) { return kinds.contains(e.first.first); });
}

// Against the step's own count, and against the statistics, which know indices of every traced step.
void count_lost(const Recording& r, const StepRecord* record, const Step& shown, TracedStep& t) {
  if (record) {
    t.lost += std::max<int64_t>(0, record->kernels - count_of(shown, {Activity::kernel, Activity::cpu_op}));
    t.lost += std::max<int64_t>(0, record->copies - count_of(shown, {Activity::copy}));
    t.lost += std::max<int64_t>(0, record->memsets - count_of(shown, {Activity::memset}));
  }
  int64_t only_in_stats = 0;
  for (const LaunchStats& s : r.stats) only_in_stats += !shown.contains({s.activity, s.index});
  t.lost = std::max(t.lost, only_in_stats);
  if (t.lost) t.missing.push_back({"records_lost_in_step", t.lost, t.step ? fmt::format("step {}", *t.step) : ""});
}

// Where the host runs ahead, a stream of its own (prefetched copies, say) begins the next step while this one still runs. Neighbours are not
// kept launch by launch: what runs of them shows as idle time of the step shown. Kernels that start early by a few us (programmatic dependent
// launch) are nothing of it.
void tell_overlap(const std::vector<StepRecord>& traced, const StepRecord& shown, TracedStep& t) {
  double overlap_ns = 0;
  int64_t neighbours = 0;
  for (const StepRecord& s : traced) {
    if (s.step == shown.step) continue;
    const auto both = static_cast<double>(std::min(s.gpu_end_ns, shown.gpu_end_ns) - std::max(s.gpu_begin_ns, shown.gpu_begin_ns));
    if (both <= device_time_ns(shown) * kStepsOverlap_pct / 100) continue;
    ++neighbours;
    overlap_ns = std::max(overlap_ns, both);
  }
  if (neighbours)
    t.missing.push_back({"steps_overlap", neighbours,
                         fmt::format("step {} of {:.3f} ms on the GPU and a neighbour run at once for up to {:.3f} ms", shown.step,
                                     device_time_ns(shown) * 1e-6, overlap_ns * 1e-6)});
}

}  // namespace

std::optional<TracedStep> find_traced_step(const Recording& r) {
  const auto steps = by_step(r);
  if (steps.empty()) return std::nullopt;
  TracedStep t;
  std::vector<StepRecord> traced;
  for (const StepRecord& s : r.steps)
    if (s.phase == Phase::activity && timed(s)) traced.push_back(s);
  std::sort(traced.begin(), traced.end(), [](const StepRecord& a, const StepRecord& b) { return a.step < b.step; });
  // A program without steps has only -1, and a recording without windows is of its last one.
  const int64_t number = shown_step(
                             traced, [&](int64_t step) { return steps.contains(step); }, r.rank.has_value())
                             .value_or(steps.rbegin()->first);
  const Step& shown = steps.at(number);
  if (number >= 0) t.step = number;

  std::map<LaunchKey, const LaunchStats*> stats;
  for (const LaunchStats& s : r.stats) stats[{s.activity, s.index}] = &s;

  int64_t without_time = 0;
  for (const auto& [key, l] : shown) {
    TracedOperation o;
    o.record = l;
    o.has_time = timed(*l);
    without_time += !o.has_time;
    if (o.has_time) o.own_ns = length_ns(*l);
    const auto s = stats.find(key);
    if (s != stats.end() && s->second->samples > 0) {
      o.median_ns = s->second->median_ns;
      o.samples = s->second->samples;
    } else {
      std::vector<double> samples;
      for (const auto& [n, step] : steps)
        if (const auto at = step.find(key); (n >= 0) == (number >= 0) && at != step.end() && timed(*at->second))
          samples.push_back(length_ns(*at->second));
      o.samples = static_cast<int64_t>(samples.size());
      if (!samples.empty()) o.median_ns = stepscope::median(std::move(samples));
    }
    t.operations.push_back(o);
    if (key.first == Activity::kernel || key.first == Activity::cpu_op) t.kernels.push_back(l);
  }
  if (std::none_of(t.operations.begin(), t.operations.end(), [](const auto& o) { return o.has_time; })) return std::nullopt;
  if (without_time && !already_reported(r, "kernels_without_time") && !already_reported(r, "results_without_time"))
    t.missing.push_back({"kernels_without_time", without_time, ""});
  std::stable_sort(t.operations.begin(), t.operations.end(),
                   [](const TracedOperation& a, const TracedOperation& b) { return a.record->start_ns < b.record->start_ns; });

  const StepRecord* record = nullptr;
  std::vector<double> windows;
  for (const StepRecord& s : traced) windows.push_back(device_time_ns(s));
  for (const StepRecord& s : r.steps)
    if (t.step && s.step == *t.step && timed(s)) record = &s;
  if (record) {
    t.window = {record->gpu_begin_ns, record->gpu_end_ns};
    if (!already_reported(r, "several_processes")) tell_overlap(traced, *record, t);  // which may have a GPU each
  } else {
    t.window = {INT64_MAX, INT64_MIN};
    for (const TracedOperation& o : t.operations) {
      if (!o.has_time) continue;
      t.window.begin_ns = std::min(t.window.begin_ns, o.record->start_ns);
      t.window.end_ns = std::max(t.window.end_ns, o.record->end_ns);
    }
  }
  const auto own_window = static_cast<double>(t.window.end_ns - t.window.begin_ns);
  t.traced_steps = windows.empty() ? 1 : static_cast<int64_t>(windows.size());
  t.median_window_ns = windows.empty() ? own_window : stepscope::median(std::move(windows));
  if (t.step) compare_sequences(r, traced, steps, shown, record, t);
  count_lost(r, record, shown, t);
  return t;
}

}  // namespace profiler
