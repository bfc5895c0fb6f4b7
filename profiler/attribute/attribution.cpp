#include "profiler/attribute/attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "profiler/attribute/communication.h"
#include "profiler/attribute/counters.h"
#include "profiler/attribute/traced_step.h"

namespace profiler {
namespace {

// Collects what is missing by name: one row with a count and the first detail.
void add_missing(std::vector<MissingRecord>& list, const std::string& name, int64_t count, const std::string& detail) {
  if (count > 0) list.push_back({name, count, detail});
}

void place_launches(Attribution& a, bool foreign) {
  int64_t outside = 0, unknown = 0;
  std::string first_outside, first_unknown;
  for (AttributedLaunch& l : a.launches) {
    const ParsedPath parsed = parse_range_path(l.record->path);
    l.place = parsed.place;
    if (!a.step) continue;  // a program without steps promised no ranges
    if (parsed.kind == PathKind::no_leaf && outside++ == 0) first_outside = l.record->name;
    if (parsed.kind == PathKind::unknown_words && unknown++ == 0) first_unknown = l.record->path;
  }
  a.has_leaf_ranges = std::any_of(a.launches.begin(), a.launches.end(), [](const AttributedLaunch& l) { return l.place.has_value(); });
  if (foreign && !a.has_leaf_ranges) return;
  add_missing(a.missing, "unattributed_kernels", outside, fmt::format("first: '{}'", first_outside));
  add_missing(a.missing, "unknown_range_path", unknown, fmt::format("first: '{}'", first_unknown));
}

// Durations are medians over the traced steps if those and the idle time of the step shown add up to the
// median step; else all come from the step shown, which adds up by construction unless records are lost.
void set_times(Attribution& a, const TracedStep& t, bool steps_differ) {
  std::vector<Interval> intervals;
  for (const TracedOperation& o : t.operations)
    intervals.push_back(o.has_time ? Interval{o.record->start_ns, o.record->end_ns, is_communication(*o.record)} : Interval{});
  a.timeline = make_timeline(intervals, t.window);
  a.idle_ns = a.timeline.idle_ns;

  const auto fill = [&](bool medians) {
    double sum = 0;
    for (size_t i = 0; i < t.operations.size(); ++i) {
      const TracedOperation& o = t.operations[i];
      AttributedLaunch& l = a.launches[i];
      l.duration_ns = medians ? o.median_ns : o.own_ns;
      const double share = o.own_ns > 0 ? a.timeline.share_ns[i] / o.own_ns : 1.0;
      l.time_ns = l.duration_ns * share;
      sum += l.time_ns;
    }
    a.from_medians = medians;
    a.time_ns = medians ? t.median_window_ns : a.timeline.window_ns;
    a.conservation_error_ns = sum + a.idle_ns - a.time_ns;
  };
  const auto conserved = [&] { return std::abs(a.conservation_error_ns) <= a.time_ns * kConservation_pct / 100; };

  // Operation i of one step is then not operation i of another: a median over them would be of different kernels.
  if (steps_differ) {
    fill(false);
    if (!conserved())
      add_missing(a.missing, "pass_sum_mismatch", 1,
                  fmt::format("passes + unattributed + idle differ from the step by {:+.2f}%", a.conservation_error_ns / a.time_ns * 100));
    return;
  }
  fill(true);
  if (conserved()) return;
  const double error_of_medians = a.conservation_error_ns;
  fill(false);
  if (conserved()) {
    add_missing(a.missing, "traced_steps_vary", 1,
                fmt::format("medians over {} steps add up to {:.2f}% {} than the median step, {:.3f} ms; the step shown took {:.3f} ms",
                            t.traced_steps, std::abs(error_of_medians / t.median_window_ns * 100), error_of_medians < 0 ? "less" : "more",
                            t.median_window_ns * 1e-6, a.timeline.window_ns * 1e-6));
    return;
  }
  add_missing(a.missing, "pass_sum_mismatch", 1,
              fmt::format("passes + unattributed + idle differ from the step by {:+.2f}%", a.conservation_error_ns / a.time_ns * 100));
}

void merge(Attribution& a, const TracedStep& t, const Recording& r, std::vector<PassCounters>& whole_passes) {
  MergedCounters merged = merge_counters(r, t.kernels);
  a.counted_steps = merged.counted_steps;
  a.tensor_metric = merged.tensor_metric;
  a.tensor_instructions_metric = merged.tensor_instructions_metric;
  a.missing.insert(a.missing.end(), merged.missing.begin(), merged.missing.end());
  whole_passes = std::move(merged.per_pass);
  if (merged.per_kernel.empty()) return;
  std::map<const LaunchRecord*, size_t> position;
  for (size_t i = 0; i < t.kernels.size(); ++i) position[t.kernels[i]] = i;
  for (AttributedLaunch& l : a.launches)
    if (const auto at = position.find(l.record); at != position.end()) l.counters = merged.per_kernel[at->second];
}

// Which launches are in a pass, or in a step, that shows a tensor use above 100%.
std::vector<bool> in_rows_above_100(const Attribution& a) {
  const auto is_above = [](const MeasuredKernels& row) { return row.tensor_active_pct.value_or(0) > kTensorUseOfRow_pct; };
  std::vector<bool> in(a.launches.size(), is_above(a.all));
  for (const Group& pass : a.passes)
    if (is_above(pass.sums))
      for (const size_t i : pass.launches) in[i] = true;
  return in;
}

void check_tensor_use(Attribution& a) {
  const std::vector<bool> in_row_above = in_rows_above_100(a);
  int64_t above = 0;
  std::string first;
  for (size_t i = 0; i < a.launches.size(); ++i) {
    const AttributedLaunch& l = a.launches[i];
    // Counters of a short kernel can read somewhat above 100, which is worth a word only where a sum shows it.
    const double most = in_row_above[i] ? 100 : l.duration_ns >= kCheckedDuration_ns ? kTensorUse_pct : kTensorUseOfShort_pct;
    if (l.counters.tensor_active_pct.value_or(0) > most && above++ == 0)
      first = fmt::format("kernel {} '{}' at {:.1f}%", l.record->index, l.record->name, *l.counters.tensor_active_pct);
  }
  add_missing(a.missing, "tensor_use_above_100", above, first);
}

// SM clocks at which the steps ran that were timed and traced.
struct Clocks {
  double lowest_hz = 0, highest_hz = 0;
};
std::optional<Clocks> clocks_of_steps(const Recording& r) {
  std::optional<Clocks> out;
  for (const EnvironmentSample& s : r.environment) {
    if (s.phase != Phase::timed && s.phase != Phase::activity && s.phase != Phase::program) continue;
    const double hz = s.sm_clock_mhz * 1e6;
    out = out ? Clocks{std::min(out->lowest_hz, hz), std::max(out->highest_hz, hz)} : Clocks{hz, hz};
  }
  return out;
}

// Whether a kernel took another time while it was counted than its clock there explains. One that computes takes as many cycles at any clock, one
// that waits for memory as much time, so all in between is explained. At the power limit a step of all kernels runs at a lower clock than its
// attention counted alone. Without the clocks of both nothing is explained.
bool took_another_time(const KernelCounters& counted, double duration_ns, const std::optional<Clocks>& clocks) {
  double shortest = duration_ns, longest = duration_ns;
  if (clocks && counted.sm_clock_hz.value_or(0) > 0) {
    shortest *= std::min(1.0, clocks->lowest_hz / *counted.sm_clock_hz);
    longest *= std::max(1.0, clocks->highest_hz / *counted.sm_clock_hz);
  }
  constexpr double kMore = kCountedTime_pct / 100;
  return !(*counted.counted_time_ns >= shortest * (1 - kMore) && *counted.counted_time_ns <= longest * (1 + kMore));
}

void check_kernels(Attribution& a, const std::optional<Clocks>& clocks) {
  int64_t differs = 0, above = 0;
  std::string first_differs, first_above;
  for (const AttributedLaunch& l : a.launches) {
    if (l.record->activity != Activity::kernel || !(l.duration_ns >= kCheckedDuration_ns)) continue;
    if (l.counters.counted_time_ns && took_another_time(l.counters, l.duration_ns, clocks) && differs++ == 0)
      first_differs = fmt::format("kernel {} '{}' took {:+.0f}%", l.record->index, l.record->name,
                                  (*l.counters.counted_time_ns / l.duration_ns - 1) * 100);
    if (l.roofline.dram_ns && *l.roofline.dram_ns / l.duration_ns * 100 > kAboveCeiling_pct && above++ == 0)
      first_above = fmt::format("kernel {} '{}' at {:.0f}% of the ceiling", l.record->index, l.record->name,
                                *l.roofline.dram_ns / l.duration_ns * 100);
  }
  add_missing(a.missing, "kernel_time_differs_in_counter_run", differs, first_differs);
  add_missing(a.missing, "above_ceiling", above, first_above);
  check_tensor_use(a);
}

using RowKey = std::tuple<int, int, int, int,
                          std::string>;  // pass, layer, op, activity, name; -1 and "" where not grouped by

template <class KeyOf>
std::vector<Group> group_by(const Attribution& a, KeyOf key_of) {
  std::map<RowKey, Group> groups;
  for (size_t i = 0; i < a.launches.size(); ++i) {
    const std::optional<RowKey> key = key_of(a.launches[i]);
    if (!key) continue;
    Group& g = groups[*key];
    g.launches.push_back(i);
    const auto part = [](int v) { return v < 0 ? std::nullopt : std::optional(v); };
    g.pass = part(std::get<0>(*key));
    g.layer = part(std::get<1>(*key));
    g.op = part(std::get<2>(*key));
  }
  std::vector<Group> list;
  for (auto& [key, g] : groups) {
    std::vector<const AttributedLaunch*> members;
    for (const size_t i : g.launches) members.push_back(&a.launches[i]);
    g.sums = sum_launches(members);
    list.push_back(std::move(g));
  }
  return list;
}

void make_groups(Attribution& a) {
  a.passes = group_by(a, [](const AttributedLaunch& l) -> std::optional<RowKey> {
    if (!l.place) return std::nullopt;
    return RowKey{l.place->pass, -1, -1, -1, ""};
  });
  a.ops = group_by(a, [](const AttributedLaunch& l) -> std::optional<RowKey> {
    if (!l.place) return std::nullopt;
    return RowKey{l.place->pass, -1, l.place->op, -1, ""};
  });
  a.layers = group_by(a, [](const AttributedLaunch& l) -> std::optional<RowKey> {
    if (!l.place || !l.place->layer) return std::nullopt;
    return RowKey{l.place->pass, *l.place->layer, -1, -1, ""};
  });
  a.kernels = group_by(a, [](const AttributedLaunch& l) -> std::optional<RowKey> {
    return RowKey{l.place ? l.place->pass : -1, -1, l.place ? l.place->op : -1, static_cast<int>(l.record->activity), l.record->name};
  });
  std::stable_sort(a.kernels.begin(), a.kernels.end(), [](const Group& x, const Group& y) { return x.sums.time_ns > y.sums.time_ns; });
  std::vector<const AttributedLaunch*> everything;
  for (const AttributedLaunch& l : a.launches) {
    everything.push_back(&l);
    if (!l.place) a.unattributed_ns += l.time_ns;
  }
  a.all = sum_launches(everything);
}

// Floors per (pass, layer, op) entry, so that a slow layer is not hidden by a fast one; ops that ran nothing
// add no time and no floor.
void add_work(Attribution& a, const AttributionInput& in) {
  if (in.work.empty()) return;
  std::map<Place, double> time;
  for (const AttributedLaunch& l : a.launches)
    if (l.place) time[*l.place] += l.time_ns;
  const auto sum_over = [&](Group& g, auto belongs) {
    WorkSum sum;
    bool any = false, floors = true;
    double floor_sum = 0, headroom_sum = 0;
    for (const auto& [place, work] : in.work) {
      const auto spent = time.find(place);
      if (!belongs(place) || spent == time.end()) continue;
      any = true;
      sum.flops += work.flops;
      sum.min_bytes += work.min_bytes;
      const auto floor = work_floor_ns(work.flops, work.min_bytes, in.roofline.ceilings, in.work_precision);
      if (!floor) {
        floors = false;
        continue;
      }
      floor_sum += *floor;
      headroom_sum += std::max(0.0, spent->second - *floor);
    }
    if (!any) return;
    if (floors) {
      sum.floor_ns = floor_sum;
      sum.headroom_ns = headroom_sum;
    }
    g.work = sum;
  };
  for (Group& g : a.passes) sum_over(g, [&](const Place& p) { return p.pass == *g.pass; });
  for (Group& g : a.ops) sum_over(g, [&](const Place& p) { return p.pass == *g.pass && p.op == *g.op; });
  for (Group& g : a.layers) sum_over(g, [&](const Place& p) { return p.pass == *g.pass && p.layer == g.layer; });
}

// A whole pass as one range sees its kernels unserialized, and its copies and memsets, which have no range of
// their own.
void check_whole_passes(Attribution& a, const std::vector<PassCounters>& whole_passes) {
  for (const PassCounters& whole : whole_passes) {
    const auto g = std::find_if(a.passes.begin(), a.passes.end(),
                                [&](const Group& x) { return pass_words()[static_cast<size_t>(*x.pass)] == whole.pass; });
    if (g == a.passes.end()) {
      add_missing(a.missing, "pass_counters_mismatch", 1, fmt::format("pass '{}' was counted but not traced", whole.pass));
      continue;
    }
    g->whole_pass = whole.counters;
    const auto& c = whole.counters;
    if (!c.dram_read_bytes || !c.dram_write_bytes || !g->sums.dram_read_bytes || !g->sums.dram_write_bytes) continue;
    double expected = *g->sums.dram_read_bytes + *g->sums.dram_write_bytes;
    for (const size_t i : g->launches) {
      const LaunchRecord& l = *a.launches[i].record;
      if (l.activity == Activity::memset) expected += static_cast<double>(l.bytes);
      if (l.activity == Activity::copy) expected += static_cast<double>(l.bytes) * (l.name.find("DtoD") != std::string::npos ? 2 : 1);
    }
    const double counted = *c.dram_read_bytes + *c.dram_write_bytes, gap = counted - expected;
    if (std::abs(gap) <= std::max(kPassCounters_bytes, expected * kPassCounters_pct / 100)) continue;
    add_missing(a.missing, "pass_counters_mismatch", 1,
                fmt::format("{}: {:.1f} MB as a whole, {:.1f} MB as the sum of its parts", whole.pass, counted / 1e6, expected / 1e6));
  }
}

}  // namespace

std::optional<Attribution> attribute(const Recording& recording, const AttributionInput& input) {
  auto traced = find_traced_step(recording);
  if (!traced) return std::nullopt;
  Attribution a;
  a.step = traced->step;
  a.traced_steps = traced->traced_steps;
  a.begin_ns = traced->window.begin_ns;
  a.missing = traced->missing;
  std::set<std::pair<int64_t, int64_t>> streams;
  for (const TracedOperation& o : traced->operations) {
    AttributedLaunch l;
    l.record = o.record;
    l.samples = o.samples;
    l.has_time = o.has_time;
    a.launches.push_back(l);
    streams.insert({o.record->device, o.record->stream});
  }
  a.streams = static_cast<int64_t>(streams.size());

  place_launches(a, input.foreign);
  const auto is_sequence = [](const MissingRecord& m) { return m.name == "kernel_sequence_changed"; };
  set_times(a, *traced,
            std::any_of(a.missing.begin(), a.missing.end(), is_sequence) ||
                std::any_of(recording.missing.begin(), recording.missing.end(), is_sequence));
  std::vector<PassCounters> whole_passes;
  merge(a, *traced, recording, whole_passes);
  RooflineInput roofline = input.roofline;
  roofline.tensor_measured = a.tensor_metric || a.tensor_instructions_metric;
  for (AttributedLaunch& l : a.launches) l.roofline = kernel_roofline(*l.record, l.duration_ns, l.counters, roofline);
  make_groups(a);
  check_kernels(a, clocks_of_steps(recording));
  add_work(a, input);
  // Ranges below the step of a program without our words are no passes.
  if (a.has_leaf_ranges || !input.foreign) check_whole_passes(a, whole_passes);
  return a;
}

}  // namespace profiler
