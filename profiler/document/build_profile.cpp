#include "profiler/document/build_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/nvml.h"
#include "profiler/attribute/attribution.h"
#include "profiler/document/device_state.h"
#include "profiler/document/missing_rows.h"
#include "profiler/document/states.h"
#include "profiler/document/statistics.h"
#include "profiler/records/missing.h"
#include "profiler/records/names.h"

namespace profiler {
namespace {

// Nsight Compute runs kernels one at a time: there is no timeline, only durations laid end to end.
bool measured_alone(const Recording& r) { return r.session.producer == "ncu"; }

Text text_or_none(const std::string& s) { return s.empty() ? std::nullopt : Text(s); }
Number finite_or_none(double v) { return std::isfinite(v) ? Number(v) : std::nullopt; }

Text device_word(const Recording& r, const char* key) {
  const auto at = r.session.device.find(key);
  return at == r.session.device.end() ? std::nullopt : text_or_none(at->second);
}
Count device_count(const Recording& r, const char* key) {
  const Text word = device_word(r, key);
  int64_t v = 0;
  if (!word) return std::nullopt;
  const auto [end, error] = std::from_chars(word->data(), word->data() + word->size(), v);
  return error == std::errc() && end == word->data() + word->size() ? Count(v) : std::nullopt;
}

// Profiled by us, but no trainer of ours: those write a run.json.
bool is_foreign(const Recording& r, const std::optional<RunInfo>& run) { return !run && r.session.producer == "cupti"; }

// A trainer of ours repeats its step, so one that does not is wrong; another program may do as it likes.
MissingRecord of_foreign(MissingRecord m) {
  if (m.name == "kernel_sequence_changed" || m.name == "counter_sequence_mismatch") m.name = "steps_differ";
  return m;
}

// What the collector saw happen is seen again in its records; counted twice it would look like two faults.
bool reported_by_collector(const Recording& r, const std::string& name) {
  return std::any_of(r.missing.begin(), r.missing.end(), [&](const MissingRecord& m) { return m.name == name; });
}

// ---- run, environment, ceilings, collection
// ----------------------------------------------------------------------------
void fill_run(ProfileDocument& d, const Recording& r, const std::optional<RunInfo>& run, const ProfileOptions& o) {
  RunSection& s = d.run;
  s.command = r.session.program;
  s.profiled_at = text_or_none(o.profiled_at);
  if (!run) return;
  s.git_revision = text_or_none(o.git_revision);
  s.build_type = text_or_none(o.build_type);
  static_cast<stepscope::RunFields&>(s) = *run;
  if (s.model_flops && !std::isfinite(*s.model_flops)) s.model_flops.reset();
  s.stopped = text_or_none(run->stopped);
  s.steps = static_cast<int64_t>(run->steps.size());
  if (!run->steps.empty()) {
    s.first_loss = run->steps.front().loss;
    s.last_loss = run->steps.back().loss;
  }
  s.memory_bytes = run->memory_bytes;
}

void fill_environment(ProfileDocument& d, const Recording& r, const ProfileOptions& o) {
  EnvironmentSection& e = d.environment;
  e.gpu = device_word(r, "name");
  e.uuid = device_word(r, "uuid");
  e.chip = device_word(r, "chip");
  e.compute_capability = device_word(r, "compute_capability");
  e.sm_count = device_count(r, "sm_count");
  e.memory_bytes = device_count(r, "memory_bytes");
  e.l2_bytes = device_count(r, "l2_bytes");
  e.versions = r.session.versions;
  e.versions.insert(o.versions.begin(), o.versions.end());
  if (r.session.producer != "cupti") return;

  std::vector<double> sm, memory, power, temperature;
  uint64_t reasons = 0;
  int64_t throttled = 0;
  std::optional<int64_t> first_ns;
  for (const EnvironmentSample& s : r.environment) {
    if (s.phase != Phase::timed && s.phase != Phase::program) continue;
    if (!first_ns) first_ns = s.time_ns;
    sm.push_back(s.sm_clock_mhz);
    memory.push_back(s.memory_clock_mhz);
    if (static_cast<double>(s.time_ns - *first_ns) >= kPowerMean_ns) power.push_back(s.power_w);
    temperature.push_back(s.temperature_c);
    reasons |= s.throttle_reasons;
    throttled += stepscope::nvml::slowdowns(s.throttle_reasons) != 0;
  }
  if (sm.empty()) {
    const bool any_timed = std::any_of(r.steps.begin(), r.steps.end(), [](const StepRecord& step) { return step.phase == Phase::timed; });
    if (!is_missing(d, "environment_not_sampled") && (any_timed || !is_missing(d, "plan_shortened")))
      add_missing(d, {"environment_not_sampled", 1, "no sample during the timed steps"});
    return;
  }
  e.samples = static_cast<int64_t>(sm.size());
  e.sm_clock_mhz_median = quantile(sm, 0.5);
  e.sm_clock_mhz_min = quantile(sm, 0);
  e.sm_clock_mhz_max = quantile(sm, 1);
  e.memory_clock_mhz_median = quantile(memory, 0.5);
  e.power_w_median = quantile(power, 0.5);
  e.power_w_max = quantile(power, 1);
  e.temperature_c_max = quantile(temperature, 1);
  e.throttled_samples = throttled;
  e.throttle_reasons = stepscope::nvml::throttle_words(reasons);
  if (throttled)
    add_missing(d, {"clocks_throttled", throttled, fmt::format("of {} samples: {}", sm.size(), fmt::join(e.throttle_reasons, ", "))});
}

void fill_ceilings(ProfileDocument& d, const Recording& r, const Ceilings& c) {
  d.ceilings = {c.copy_bytes_per_s,     c.read_bytes_per_s,   c.write_bytes_per_s,    c.matmul_flops_per_s,
                text_or_none(c.device), text_or_none(c.uuid), text_or_none(c.driver), text_or_none(c.measured_at)};
  if (!c.copy_bytes_per_s && r.session.producer != "cpu") add_missing(d, {"ceilings_not_measured", 1, ""});
  // `profile` measures device 0. Another program, or the rank that the tables are of, may run on another; `ingest` judges by names.
  const Text& here = d.environment.uuid;
  if (c.copy_bytes_per_s && r.session.producer == "cupti" && here && !c.uuid.empty() && *here != c.uuid)
    add_missing(d, {"ceilings_of_other_gpu", 1,
                    fmt::format("measured on {} {}, the step ran on {} {}", c.device, c.uuid, d.environment.gpu.value_or("an unnamed GPU"),
                                *here)});
}

// Pitches, because a step range only spans the host's work of queueing it.
Number median_pitch_ns(const Recording& r, Phase phase) { return quantile(step_pitches_ns(r, phase), 0.5); }

void fill_collection(ProfileDocument& d, const Recording& r, const std::optional<Attribution>& a) {
  CollectionSection& c = d.collection;
  c.producer = r.session.producer;
  c.program = r.session.program;
  c.measured_kernels = r.measured_kernels;
  c.time_basis = "none";
  if (a) {
    c.traced_steps = a->traced_steps;
    c.counted_steps = a->counted_steps;
    c.tensor_metric = a->tensor_metric;
    c.tensor_instructions_metric = a->tensor_instructions_metric;
    c.shown_step = a->step;
    c.time_basis = measured_alone(r) ? "each_kernel_alone" : a->from_medians ? "median_over_traced_steps" : "one_traced_step";
    const auto from_graph =
        std::count_if(a->launches.begin(), a->launches.end(), [](const AttributedLaunch& l) { return l.record->graph_node != 0; });
    if (from_graph > 0) c.graph_launches = from_graph;
  }
  double spent = 0;
  for (const CounterSet& s : r.counter_sets) {
    c.counter_sets.push_back({s.name, s.metrics, s.launches, s.ranges, s.setup_ns, s.run_ns, s.decode_ns});
    spent += s.setup_ns + s.run_ns + s.decode_ns;
  }
  if (!r.counter_sets.empty() && !measured_alone(r)) c.collecting_ns = spent;
  const Number timed = median_pitch_ns(r, Phase::timed);
  Number traced = median_pitch_ns(r, Phase::activity);
  // A host that runs ahead of the device begins a few steps sooner than the device can: no step is shorter than its work there. A single
  // traced step has no distance to a next one, only this work.
  if (a && !measured_alone(r) && (traced || (timed && a->time_ns > *timed))) traced = std::max(traced.value_or(0), a->time_ns);
  if (timed && traced && *timed > 0) {
    c.traced_overhead_pct = (*traced / *timed - 1) * 100;
    if (*c.traced_overhead_pct > kTracedOverhead_pct && !is_missing(d, "collector_overhead_high"))
      add_missing(d, {"collector_overhead_high", 1, fmt::format("{:+.1f}%", *c.traced_overhead_pct)});
    if (*c.traced_overhead_pct < -kTracedOverhead_pct)
      add_missing(d, {"timed_steps_disturbed", 1, fmt::format("{:+.1f}%", *c.traced_overhead_pct)});
  }
}

// ---- timing
// ---------------------------------------------------------------------------------------------------------
// What the samples of the timed steps say together.
void fill_step_times(ProfileDocument& d) {
  TimingSection& t = d.timing;
  const std::vector<double>& samples = t.step_time_ns.samples;
  t.step_time_ns.median = quantile(samples, 0.5);
  t.step_time_ns.mean = mean(samples);
  t.step_time_ns.p05 = quantile(samples, 0.05);
  t.step_time_ns.p95 = quantile(samples, 0.95);
  if (const auto interval = median_interval(samples)) {
    t.step_time_ns.interval_low = interval->first;
    t.step_time_ns.interval_high = interval->second;
  } else {
    add_missing(d, {"too_few_timed_steps", 1, fmt::format("{} timed steps", samples.size())});
  }
}

void fill_timing(ProfileDocument& d, const RunInfo& run, const Ceilings& ceilings, const ProfileOptions& o) {
  TimingSection& t = d.timing;
  const auto count = static_cast<int64_t>(run.steps.size());
  const int64_t first = std::clamp<int64_t>(o.first_timed_step, 0, count);
  const int64_t last = std::clamp<int64_t>(first + std::max<int64_t>(o.timed_steps, 0), first, count);
  for (int64_t i = first; i < last; ++i) t.step_time_ns.samples.push_back(run.steps[static_cast<size_t>(i)].time_ns);
  const std::vector<double>& samples = t.step_time_ns.samples;
  d.run.first_timed_step = first;
  d.run.timed_steps = static_cast<int64_t>(samples.size());
  if (samples.empty()) {
    add_missing(d, {"timed_steps_missing", 1, fmt::format("{} steps in run.json, timed from {}", count, o.first_timed_step)});
    return;
  }
  fill_step_times(d);
  const double seconds = *t.step_time_ns.median * 1e-9;
  if (!(seconds > 0)) return;
  if (run.tokens_per_step) t.tokens_per_s = static_cast<double>(*run.tokens_per_step) / seconds;
  if (run.model_flops) t.model_flops_per_s = finite_or_none(*run.model_flops / seconds);
  const auto ceiling = ceilings.matmul_flops_per_s.find(run.precision());
  if (ceiling == ceilings.matmul_flops_per_s.end() || !(ceiling->second > 0) || !t.model_flops_per_s) return;
  t.matmul_ceiling = run.precision();
  t.of_matmul_ceiling_pct = *t.model_flops_per_s / ceiling->second * 100;
}

// Of a program that wrote no run.json: from step begin to step begin, which is a step's whole time as the host of the program knows it.
void fill_timing_from_steps(ProfileDocument& d, const Recording& r) {
  std::vector<double>& samples = d.timing.step_time_ns.samples;
  samples = step_pitches_ns(r, Phase::timed);
  if (samples.empty()) return;
  d.run.steps = static_cast<int64_t>(r.steps.size());
  d.run.timed_steps = static_cast<int64_t>(samples.size());
  int64_t first = INT64_MAX;
  for (const StepRecord& s : r.steps)
    if (s.phase == Phase::timed) first = std::min(first, s.step);
  d.run.first_timed_step = std::count_if(r.steps.begin(), r.steps.end(), [&](const StepRecord& s) { return s.step < first; });
  fill_step_times(d);
}

// ---- rows
// -------------------------------------------------------------------------------------------------------------
std::string pass_word(int pass) { return std::string(pass_words()[static_cast<size_t>(pass)]); }
std::string op_word(int op) { return std::string(op_words()[static_cast<size_t>(op)]); }

// Share of the step, which the sums do not know.
template <class Sums>
Sums of_step(Sums sums, double step_ns) {
  sums.share_pct = step_ns > 0 ? sums.time_ns / step_ns * 100 : 0;
  return sums;
}

void fill_floored(Floored& f, const Group& g, double step_ns) {
  static_cast<Measured&>(f) = of_step<Measured>(g.sums, step_ns);
  f.kernel_floor_ns = g.sums.floor_ns;
  f.kernel_headroom_ns = g.sums.headroom_ns;
  if (!g.work) return;
  f.flops = g.work->flops;
  f.min_bytes = g.work->min_bytes;
  f.floor_ns = g.work->floor_ns;
  f.headroom_ns = g.work->headroom_ns;
}

LaunchRow launch_row(const AttributedLaunch& l, int64_t begin_ns, bool on_a_timeline, const std::vector<std::string>& asked) {
  const LaunchRecord& r = *l.record;
  LaunchRow row;
  row.name = r.name;
  row.activity = std::string(name(r.activity));
  row.index = r.index;
  if (l.place) {
    row.pass = pass_word(l.place->pass);
    row.op = op_word(l.place->op);
    if (l.place->layer) row.layer = *l.place->layer;
  }
  row.path = r.path;
  row.stream = r.stream;
  row.device = r.device;
  row.grid = r.grid;
  row.block = r.block;
  if (r.activity == Activity::kernel) {
    if (r.registers >= 0) row.registers = r.registers;
    if (r.shared_static_bytes >= 0 && r.shared_dynamic_bytes >= 0) row.shared_bytes = r.shared_static_bytes + r.shared_dynamic_bytes;
  }
  if (r.graph_node) row.graph_node = r.graph_node;
  if (l.has_time && on_a_timeline) row.start_ns = static_cast<double>(r.start_ns - begin_ns);
  if (l.has_time) row.shown_ns = static_cast<double>(r.end_ns - r.start_ns);
  if (l.samples > 0) {
    row.time_ns = l.duration_ns;
    row.share_ns = l.time_ns;
  }
  row.samples = l.samples;
  if (r.activity == Activity::copy || r.activity == Activity::memset) row.bytes = r.bytes;
  const Launches alone{&l};
  for (const NumberRow& n : number_rows())
    if (n.beside & kLaunches) row.*n.member = n.of(alone);
  row.counted_time_ns = l.counters.counted_time_ns;
  std::map<std::string, double> others;
  for (const std::string& metric : asked)
    if (const auto value = l.counters.all.find(metric); value != l.counters.all.end()) others.insert(*value);
  if (!others.empty()) row.other_counters = std::move(others);
  if (l.roofline.bound) row.bound = std::string(name(*l.roofline.bound));
  row.floor_ns = l.roofline.floor_ns;
  row.headroom_ns = l.headroom_ns();
  return row;
}

// NVML answers about every 20 ms, a step may be shorter: its neighbours on both sides belong to the picture.
void fill_timeline_environment(TimelineSection& t, const Recording& r, const Attribution& a) {
  std::vector<EnvironmentSample> samples = r.environment;
  std::stable_sort(samples.begin(), samples.end(), [](const auto& x, const auto& y) { return x.time_ns < y.time_ns; });
  const int64_t begin = a.begin_ns, end = begin + static_cast<int64_t>(a.timeline.window_ns);
  for (size_t i = 0; i < samples.size(); ++i) {
    const bool before = samples[i].time_ns < begin && !(i + 1 < samples.size() && samples[i + 1].time_ns <= begin);
    const bool behind = samples[i].time_ns > end && !(i > 0 && samples[i - 1].time_ns >= end);
    const bool inside = samples[i].time_ns >= begin && samples[i].time_ns <= end;
    if (!before && !behind && !inside) continue;
    const EnvironmentSample& s = samples[i];
    t.environment.push_back({static_cast<double>(s.time_ns - begin), s.sm_clock_mhz, s.memory_clock_mhz, s.power_w, s.temperature_c});
  }
}

void fill_timeline(ProfileDocument& d, const Recording& r, const Attribution& a) {
  TimelineSection& t = d.timeline;
  t.window_ns = a.timeline.window_ns;
  t.busy_ns = a.timeline.busy_ns;
  t.idle_ns = a.timeline.idle_ns;
  t.overlap_ns = a.timeline.overlap_ns;
  t.streams = a.streams;
  for (size_t i = 0; i < a.timeline.gaps.size(); ++i) {
    const GapBucket& g = a.timeline.gaps[i];
    t.gaps.push_back({i < kGapLimits_ns.size() ? Count(kGapLimits_ns[i]) : std::nullopt, g.count, g.time_ns});
  }
  std::map<std::string, CopyRow> copies;
  for (const AttributedLaunch& l : a.launches) {
    if (l.record->activity != Activity::copy && l.record->activity != Activity::memset) continue;
    CopyRow& c = copies[l.record->name];
    c.name = l.record->name;
    ++c.count;
    c.bytes += l.record->bytes;
    c.time_ns += l.duration_ns;
  }
  for (auto& [key, c] : copies) t.copies.push_back(std::move(c));
  fill_timeline_environment(t, r, a);
}

void fill_rows(ProfileDocument& d, const Recording& r, const Attribution& a, const ProfileOptions& o) {
  for (const Group& g : a.passes) {
    PassRow row;
    row.name = pass_word(*g.pass);
    fill_floored(row, g, a.time_ns);
    const auto top = std::find_if(a.kernels.begin(), a.kernels.end(), [&](const Group& k) { return k.pass == g.pass; });
    if (top != a.kernels.end()) {
      row.top_kernel = a.launches[top->launches.front()].record->name;
      row.top_kernel_ns = top->sums.time_ns;
    }
    if (g.whole_pass) {
      row.whole_dram_read_bytes = g.whole_pass->dram_read_bytes;
      row.whole_dram_write_bytes = g.whole_pass->dram_write_bytes;
      row.whole_tensor_active_pct = g.whole_pass->tensor_active_pct;
    }
    d.passes.push_back(std::move(row));
  }
  for (const Group& g : a.ops) {
    OpRow row;
    row.pass = pass_word(*g.pass);
    row.op = op_word(*g.op);
    fill_floored(row, g, a.time_ns);
    d.ops.push_back(std::move(row));
  }
  for (const Group& g : a.layers) {
    LayerRow row;
    row.pass = pass_word(*g.pass);
    row.layer = *g.layer;
    fill_floored(row, g, a.time_ns);
    d.layers.push_back(std::move(row));
  }
  for (const Group& g : a.kernels) {
    KernelRow row;
    const LaunchRecord& first = *a.launches[g.launches.front()].record;
    row.name = first.name;
    row.activity = std::string(name(first.activity));
    if (g.pass) row.pass = pass_word(*g.pass);
    if (g.op) row.op = op_word(*g.op);
    static_cast<MeasuredKernels&>(row) = of_step(g.sums, a.time_ns);
    d.kernels.push_back(std::move(row));
  }
  for (const AttributedLaunch& l : a.launches) d.launches.push_back(launch_row(l, a.begin_ns, !measured_alone(r), o.metrics));
}

// Of the kernels whose tensor work is known; how much has no floor stands beside them, so that a part does not look like the whole.
void fill_kernel_floors(TotalsSection& t, const Attribution& a) {
  Launches known;
  int64_t unknown = 0;
  double unknown_ns = 0;
  for (const AttributedLaunch& l : a.launches) {
    if (!l.roofline.tensor_unknown) {
      known.push_back(&l);
      continue;
    }
    ++unknown;
    unknown_ns += l.time_ns;
  }
  const MeasuredKernels sums = sum_launches(known);
  t.kernel_floor_ns = sums.floor_ns;
  t.kernel_headroom_ns = sums.headroom_ns;
  if (unknown == 0 || !sums.floor_ns) return;
  t.launches_without_floor = unknown;
  t.without_floor_ns = unknown_ns;
}

void fill_totals(ProfileDocument& d, const Recording& r, const Attribution& a) {
  TotalsSection& t = d.totals;
  t.time_ns = a.time_ns;
  t.passes_ns = 0;
  for (const PassRow& p : d.passes) *t.passes_ns += p.time_ns;
  if (!measured_alone(r)) t.idle_ns = a.idle_ns;
  t.unattributed_ns = a.unattributed_ns;
  if (a.time_ns > 0) t.conservation_error_pct = a.conservation_error_ns / a.time_ns * 100;
  t.launches = a.all.launches;
  t.copies = a.all.copies;
  for (const NumberRow& n : number_rows())
    if (n.beside & kTotals) t.*n.member = a.all.*n.member;
  fill_kernel_floors(t, a);
  t.floor_ns = sum_passes(d.passes, &Floored::floor_ns);
  t.headroom_ns = sum_passes(d.passes, &Floored::headroom_ns);
}

AttributionInput attribution_input(const Recording& r, const std::optional<RunInfo>& run, const Ceilings& ceilings) {
  AttributionInput in;
  in.foreign = is_foreign(r, run);
  in.roofline.ceilings = ceilings;
  in.roofline.chip = device_word(r, "chip").value_or("");
  in.roofline.sm_count = device_count(r, "sm_count");
  if (!run) return in;
  in.work_precision = run->precision();
  if (run->precision() == "tf32") in.roofline.precision = "tf32";
  for (const RunWork& w : run->work)
    if (const auto place = parse_leaf(w.path)) {
      OpFloor& floor = in.work[*place];
      floor.flops += w.flops;
      floor.min_bytes += w.min_bytes;
    }
  return in;
}

bool recording_without_counters(const Recording& r) { return r.session.producer == "nsys"; }

// The reader of a foreign report has said so itself, with the GPUs of all its kernels.
void say_several_devices(ProfileDocument& d, const Attribution& a) {
  if (is_missing(d, "several_devices")) return;
  std::set<int64_t> devices;
  for (const AttributedLaunch& l : a.launches)
    if (l.record->activity == Activity::kernel) devices.insert(l.record->device);
  if (devices.size() > 1)
    add_missing(d, {"several_devices", static_cast<int64_t>(devices.size()), fmt::format("{}", fmt::join(devices, ", "))});
}

// Counters that are absent are absent for a reason; when nobody gave one, that is said.
void explain_absent_counters(ProfileDocument& d, const Recording& r) {
  if (r.session.producer == "cpu") {
    if (!is_missing(d, "no_gpu_counters")) add_missing(d, {"no_gpu_counters", 1, "recorded on a CPU"});
    return;
  }
  if (recording_without_counters(r)) {
    add_missing(d, {"trace_without_counters", 1, ""});
    return;
  }
  const bool any = std::any_of(d.launches.begin(), d.launches.end(), [](const LaunchRow& l) { return l.dram_read_bytes.has_value(); });
  for (const char* reason : {"counters_unavailable", "counter_set_failed", "counter_sequence_mismatch", "graph_launch_in_counter_run",
                             "other_subscriber", "truncated_recording", "metrics_not_in_report", "plan_shortened", "steps_differ",
                             "kernel_counters_left_out", "ranks_not_counted", "counters_not_asked"})
    if (is_missing(d, reason)) return;
  if (any || d.launches.empty()) return;
  if (d.collection.counted_steps > 0)
    add_missing(d, {"built_in_metrics_not_asked", 1, fmt::format("counted: {}", fmt::join(r.counter_sets.front().metrics, " "))});
  else
    add_missing(d, {"counters_unavailable", 1, "the recording holds no DRAM counters of this step"});
}

}  // namespace

std::vector<double> step_pitches_ns(const Recording& r, Phase phase) {
  std::map<int64_t, const StepRecord*> steps;
  for (const StepRecord& s : r.steps) steps[s.step] = &s;
  std::vector<double> pitches;
  for (const auto& [number, step] : steps)
    if (const auto next = steps.find(number + 1); step->phase == phase && next != steps.end())
      pitches.push_back(static_cast<double>(next->second->host_begin_ns - step->host_begin_ns));
  return pitches;
}

Number sum_passes(const std::vector<PassRow>& passes, Number Floored::*member) {
  Number sum;
  for (const PassRow& p : passes)
    if (p.*member) sum = sum.value_or(0) + *(p.*member);
  return sum;
}

bool has_severe_missing(const ProfileDocument& d) {
  return std::any_of(d.missing.begin(), d.missing.end(), [](const MissingRow& m) { return m.severity == name(Severity::severe); });
}

ProfileDocument build_profile(const Recording& recording, const std::optional<RunInfo>& run, const Ceilings& ceilings,
                              const ProfileOptions& options) {
  ProfileDocument d;
  // What an export of Nsight Systems shows may be a trainer of ours, but is not known to be.
  const bool may_differ = is_foreign(recording, run) || recording.session.producer == "nsys";
  for (const MissingRecord& m : recording.missing) add_missing(d, may_differ ? of_foreign(m) : m);
  fill_run(d, recording, run, options);
  fill_environment(d, recording, options);
  fill_ceilings(d, recording, ceilings);

  const auto attribution = attribute(recording, attribution_input(recording, run, ceilings));
  fill_collection(d, recording, attribution);
  if (attribution) {
    for (const MissingRecord& m : attribution->missing)
      if (!reported_by_collector(recording, m.name)) add_missing(d, may_differ ? of_foreign(m) : m);
    say_several_devices(d, *attribution);
    fill_rows(d, recording, *attribution, options);
    fill_totals(d, recording, *attribution);
    if (!measured_alone(recording)) fill_timeline(d, recording, *attribution);
    if (!run && attribution->step && recording.session.producer == "cupti") add_missing(d, {"run_info_missing", 1, ""});
  } else {
    if (!is_missing(d, "phases_not_traced") && !is_missing(d, "results_without_time"))
      add_missing(d, {"phases_not_traced", 1, fmt::format("{} steps seen", recording.steps.size())});
  }
  if (run)
    fill_timing(d, *run, ceilings, options);
  else
    fill_timing_from_steps(d, recording);
  fill_states(d, recording, run, options);
  explain_absent_counters(d, recording);
  sort_missing(d);
  return d;
}

}  // namespace profiler
