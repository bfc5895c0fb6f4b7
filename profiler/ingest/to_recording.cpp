#include "profiler/ingest/to_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string_view>

#include "base/errors.h"
#include "base/json_text.h"
#include "profiler/attribute/counters.h"
#include "profiler/attribute/words.h"
#include "profiler/ingest/read_metrics.h"

namespace profiler {
namespace {

// Device attribute "chip" (architecture and implementation id) -> the name that CUPTI gives it. Source: NVIDIA's open kernel modules,
// NV_PMC_BOOT_42; 384 was read off an H200.
const std::map<int64_t, const char*> kChips = {{354, "TU102"}, {368, "GA100"}, {370, "GA102"}, {384, "GH100"},
                                               {402, "AD102"}, {416, "GB100"}, {418, "GB102"}, {434, "GB202"}};

constexpr std::string_view kGpuName = "device__attribute_display_name";

bool asked_for(const IngestOptions& options, int64_t process) { return !options.process || process == *options.process; }

// Of the results `first` to `first + count` those of the process that was asked for.
std::vector<const ForeignResult*> chosen_results(const ForeignReport& report, const IngestOptions& options) {
  const auto total = static_cast<int64_t>(report.results.size());
  if (options.first < 0 || options.first >= total)
    throw stepscope::InputError(
        fmt::format("--first {}: {} holds {} result{}", options.first, report.source, total, total == 1 ? "" : "s"));
  const int64_t count = options.count < 0 ? total - options.first : std::min(options.count, total - options.first);
  std::vector<const ForeignResult*> chosen;
  std::set<int64_t> processes;
  for (const ForeignResult& r : std::span(report.results).subspan(static_cast<size_t>(options.first), static_cast<size_t>(count))) {
    processes.insert(r.process);
    if (asked_for(options, r.process)) chosen.push_back(&r);
  }
  if (chosen.empty())
    throw stepscope::InputError(fmt::format("{}: no result of process {}; the report has {}", report.source, options.process.value_or(0),
                                            fmt::join(processes, ", ")));
  return chosen;
}

class Converter {
 public:
  Converter(const ForeignReport& report, const IngestOptions& options) : in_(report), options_(options) {}

  Recording convert() {
    choose_results();
    describe_session();
    r_.missing.insert(r_.missing.end(), in_.missing.begin(), in_.missing.end());
    for (const auto& [id, process] : in_.processes)
      if (asked_for(options_, id)) r_.missing.insert(r_.missing.end(), process.missing.begin(), process.missing.end());
    choose_steps();
    add_launches();
    if (in_.tool == "ncu") {
      r_.measured_kernels = static_cast<int64_t>(chosen_.size());
      add_counters();
      r_.missing.push_back({"kernels_measured_alone", 1, in_.form});
    }
    explain_passes();
    return std::move(r_);
  }

 private:
  void choose_results() {
    std::set<int64_t> processes;
    for (const ForeignResult* r : chosen_results(in_, options_)) {
      processes.insert(r->process);
      chosen_.push_back(*r);
      // Names that only become equal in the document's text would be two rows of one name, which `report` refuses.
      chosen_.back().name = stepscope::as_json_holds(r->name);
      chosen_.back().path = stepscope::as_json_holds(r->path);
    }
    if (processes.size() > 1)
      r_.missing.push_back({"several_processes", static_cast<int64_t>(processes.size()), fmt::format("{}", fmt::join(processes, ", "))});
    std::set<int64_t> devices;
    for (const ForeignResult& r : chosen_)
      if (r.kind == ForeignKind::kernel) devices.insert(r.device);
    if (devices.size() > 1)
      r_.missing.push_back({"several_devices", static_cast<int64_t>(devices.size()), fmt::format("{}", fmt::join(devices, ", "))});
  }

  // Those of the results that were chosen: another process has steps of its own.
  void choose_steps() {
    std::set<int64_t> chosen;
    for (const ForeignResult& r : chosen_) chosen.insert(r.step);
    for (const StepRecord& s : in_.steps)
      if (chosen.contains(s.step)) r_.steps.push_back(s);
  }

  std::string text_of(std::string_view metric) const {
    if (const auto index = metric_index(in_, metric))
      for (const auto& [i, text] : chosen_.front().texts)
        if (i == *index) return text;
    return "";
  }
  std::optional<int64_t> number_of(const char* metric) const {
    const auto v = value_of(chosen_.front(), metric_index(in_, metric));
    return v && std::abs(*v) < 9e18 ? std::optional(static_cast<int64_t>(*v)) : std::nullopt;
  }

  void describe_session() {
    SessionRecord& s = r_.session;
    s.producer = in_.tool;
    s.pid = chosen_.front().process;
    if (const auto process = in_.processes.find(s.pid); process != in_.processes.end()) {
      s.program = process->second.program;
      s.device = process->second.device;
    }
    s.versions = in_.versions;
    const auto set = [&](const char* key, const std::string& value) {
      if (!value.empty()) s.device.emplace(key, value);
    };
    set("name", text_of(kGpuName));
    if (const auto chip = number_of("device__attribute_chip"))
      if (const auto at = kChips.find(*chip); at != kChips.end()) set("chip", at->second);
    // The page details has no attributes of the device, but "# SMs" among its launch statistics.
    for (const char* metric : {"device__attribute_multiprocessor_count", "launch__sm_count"})
      if (const auto v = number_of(metric)) set("sm_count", fmt::to_string(*v));
    if (const auto v = number_of("device__attribute_l2_cache_size")) set("l2_bytes", fmt::to_string(*v));
    const auto major = number_of("device__attribute_compute_capability_major"),
               minor = number_of("device__attribute_compute_capability_minor");
    if (major && minor) set("compute_capability", fmt::format("{}.{}", *major, *minor));
  }

  static Activity activity(ForeignKind kind) {
    return kind == ForeignKind::copy ? Activity::copy : kind == ForeignKind::memset ? Activity::memset : Activity::kernel;
  }

  // Where the report keeps what a launch is described by.
  struct LaunchMetrics {
    std::vector<std::optional<uint32_t>> durations;  // in order of preference
    std::optional<uint32_t> registers, shared_static, shared_dynamic;
  };
  LaunchMetrics launch_metrics() const {
    LaunchMetrics m;
    for (const std::string_view name : kDurationMetrics) m.durations.push_back(metric_index(in_, name));
    m.registers = metric_index(in_, kRegisters);
    m.shared_static = metric_index(in_, kSharedStatic);
    m.shared_dynamic = metric_index(in_, kSharedDynamic);
    return m;
  }

  static LaunchRecord launch_of(const ForeignResult& f, const LaunchMetrics& m) {
    const auto whole = [&](std::optional<uint32_t> metric, int64_t otherwise) {
      return static_cast<int64_t>(value_of(f, metric).value_or(static_cast<double>(otherwise)));
    };
    LaunchRecord l;
    l.activity = activity(f.kind);
    l.step = f.step;
    l.name = f.name;
    l.path = f.path;
    l.stream = f.stream;
    l.device = f.device;
    l.grid = f.grid;
    l.block = f.block;
    l.bytes = f.bytes;
    l.graph_node = f.graph_node;
    l.registers = whole(m.registers, f.registers);
    l.shared_static_bytes = whole(m.shared_static, f.shared_static_bytes);
    l.shared_dynamic_bytes = whole(m.shared_dynamic, f.shared_dynamic_bytes);
    l.start_ns = f.start_ns;
    l.end_ns = f.end_ns;
    return l;
  }

  // Nanoseconds, of a result without time stamps: the first duration that the report has for it; 0 where it has none that can be true.
  static double duration_of(const ForeignResult& f, const LaunchMetrics& m) {
    for (const auto& metric : m.durations)
      if (const auto v = value_of(f, metric)) return *v > 0 && *v < 1e15 ? *v : 0;
    return 0;
  }

  // Where the report has the metric, it is not that nobody collected it.
  static std::string what_of_times(const LaunchMetrics& m, bool none_has_one) {
    if (!none_has_one) return fmt::format("; the report has {} for others", kDurationMetrics[0]);
    const bool in_report = std::any_of(m.durations.begin(), m.durations.end(), [](const auto& d) { return d.has_value(); });
    return in_report ? fmt::format("; the report has {} without a value", kDurationMetrics[0]) : "";
  }

  void add_launches() {
    std::vector<std::optional<RulePlace>> places(chosen_.size());
    if (options_.rules) places = place_by_rules(*options_.rules, chosen_);
    const LaunchMetrics metrics = launch_metrics();
    std::map<std::pair<int64_t, Activity>, int64_t> next_index;
    int64_t clock = 1, without_time = 0, multiplied = 0;
    std::string first_multiplied;
    for (size_t i = 0; i < chosen_.size(); ++i) {
      LaunchRecord l = launch_of(chosen_[i], metrics);
      const bool measured_alone = l.end_ns == 0;
      const double duration = measured_alone ? duration_of(chosen_[i], metrics) : 0;
      without_time += measured_alone && duration == 0;
      const auto& place = places[i];
      const int64_t times = place ? place->times : 1;
      // Copies of one time stamp would share its time, while each row said that it took all of it.
      if (times > 1 && !measured_alone)
        throw stepscope::InputError(fmt::format(
            "rules '{}': 'times: {}' fits '{}', which {} shows where it ran in a trace; expected durations alone, as ncu has them",
            options_.rules->name, times, l.name, in_.source));
      if (place && l.activity == Activity::kernel) placed_by_rules_ += times;
      for (int64_t copy = 0; copy < times; ++copy) {
        if (place) {
          const std::optional<int64_t> layer = times > 1 ? std::optional(copy) : place->layer;
          l.path = fmt::format("step/{}/{}/{}", place->pass, layer ? fmt::to_string(*layer) : "-", place->op);
        }
        l.index = next_index[{l.step, l.activity}]++;
        if (duration > 0) {
          // A kernel of less than a nanosecond is still one that ran.
          l.start_ns = clock;
          l.end_ns = clock += std::max<int64_t>(1, std::llround(duration));
          r_.stats.push_back({l.activity, l.index, 1, duration, duration, duration, duration});
        }
        r_.launches.push_back(l);
        source_.push_back(i);
      }
      if (times > 1 && multiplied++ == 0) first_multiplied = fmt::format("'{}' {} times", l.name, times);
    }
    if (without_time && in_.tool == "ncu")
      r_.missing.push_back(
          {"results_without_time", without_time, fmt::format("of {} results{}", chosen_.size(), what_of_times(metrics, r_.stats.empty()))});
    if (multiplied)
      r_.missing.push_back({"launches_multiplied", multiplied,
                            fmt::format("rules '{}' let {} launches stand for several layers, first {}", options_.rules->name, multiplied,
                                        first_multiplied)});
  }

  using NamedMetric = std::pair<std::string, uint32_t>;
  std::vector<NamedMetric> counters_in_report() const {
    std::vector<NamedMetric> found;
    const auto add = [&](std::string_view metric) {
      const auto index = metric_index(in_, metric);
      if (index && std::none_of(found.begin(), found.end(), [&](const auto& r) { return r.first == metric; }))
        found.emplace_back(metric, *index);
    };
    for (const CounterQuantity& q : counter_quantities())
      for (const std::string_view metric : q.metrics) add(metric);
    for (const TensorMetric& t : tensor_metrics()) add(t.metric);
    return found;
  }

  struct Lack {
    int64_t kernels = 0;        // that have none of a quantity's metrics
    int64_t without_value = 0;  // of them, which the report has without a number
  };
  using Lacking = std::map<std::string_view, Lack>;  // quantities that a user may have asked for in vain, by name
  void note_lacking(const ForeignResult& f, const std::vector<std::string>& metrics, Lacking& lacking) const {
    const auto has = [&](std::string_view m) { return std::find(metrics.begin(), metrics.end(), m) != metrics.end(); };
    const bool any_tensor =
        std::any_of(tensor_metrics().begin(), tensor_metrics().end(), [&](const TensorMetric& t) { return has(t.metric); });
    for (const CounterQuantity& q : counter_quantities()) {
      const bool is_tensor = q.member == &KernelCounters::tensor_active_pct;
      if (!q.asked_for || (is_tensor && any_tensor) || std::any_of(q.metrics.begin(), q.metrics.end(), has)) continue;
      Lack& lack = lacking[q.name];
      ++lack.kernels;
      lack.without_value += std::any_of(q.metrics.begin(), q.metrics.end(), [&](std::string_view m) {
        const auto index = metric_index(in_, m);
        return index && std::find(f.no_value.begin(), f.no_value.end(), *index) != f.no_value.end();
      });
    }
  }
  void say_what_is_lacking(const Lacking& lacking) {
    if (lacking.empty()) return;
    std::string collect, without;
    for (const CounterQuantity& q : counter_quantities()) {
      const auto found = lacking.find(q.name);
      if (found == lacking.end()) continue;
      const int64_t kernels = found->second.kernels;
      if (found->second.without_value == kernels)  // collecting it again would not help
        without += fmt::format("{}{} of {} kernels", without.empty() ? "" : ", ", q.metrics.front(), kernels);
      else
        collect += fmt::format("{}{}{}", collect.empty() ? "" : ",", q.metrics.front(),
                               kernels < static_cast<int64_t>(r_.counters.size()) ? fmt::format(" (of {} kernels)", kernels) : "");
    }
    std::string detail = collect.empty() ? "" : "collect with ncu --metrics " + collect;
    if (!without.empty()) detail += (detail.empty() ? "" : "; ") + ("the report has no value (n/a) for " + without);
    r_.missing.push_back({"metrics_not_in_report", static_cast<int64_t>(lacking.size()), detail});
  }

  // The metrics that a result has differ from report to report, and within one where it was collected twice: results with the same ones
  // make a set.
  CounterSet& set_of(const std::vector<std::string>& metrics) {
    auto& sets = r_.counter_sets;
    const auto found = std::find_if(sets.begin(), sets.end(), [&](const CounterSet& s) { return s.metrics == metrics; });
    if (found != sets.end()) return *found;
    CounterSet s;
    s.name = fmt::format("report {}", sets.size());
    s.metrics = metrics;
    return sets.emplace_back(std::move(s));
  }

  void add_counters() {
    const std::vector<NamedMetric> in_report = counters_in_report();
    Lacking lacking;
    for (size_t k = 0; k < r_.launches.size(); ++k) {
      const LaunchRecord& l = r_.launches[k];
      if (l.activity != Activity::kernel) continue;
      const ForeignResult& f = chosen_[source_[k]];
      CounterRecord c;
      std::vector<std::string> metrics;
      for (const auto& [name, index] : in_report) {
        const auto v = value_of(f, index);
        if (!v) continue;
        // Readers let a percentage pass that ncu took slightly below 0; a document has none.
        c.values.push_back(is_percentage(name) ? std::max(0.0, *v) : *v);
        metrics.push_back(name);
      }
      note_lacking(f, metrics, lacking);
      if (metrics.empty()) continue;
      CounterSet& set = set_of(metrics);
      ++set.launches;
      ++set.ranges;
      c.set = set.name;
      c.step = l.step;
      c.index = l.index;
      c.kernel = l.name;
      c.path = l.path;
      c.grid = l.grid;
      r_.counters.push_back(std::move(c));
    }
    say_what_is_lacking(lacking);
  }

  void explain_passes() {
    int64_t placed = 0, kernels = 0;
    std::string first;
    for (const LaunchRecord& l : r_.launches) {
      if (l.activity != Activity::kernel) continue;
      ++kernels;
      if (parse_range_path(l.path).place)
        ++placed;
      else if (first.empty())
        first = l.name;
    }
    if (options_.rules) {
      if (placed_by_rules_ > 0)
        r_.missing.push_back(
            {"passes_from_rules", placed_by_rules_, fmt::format("rules '{}', by kernel name and launch order", options_.rules->name)});
      else if (placed > 0)
        r_.missing.push_back({"rules_not_used", placed, fmt::format("rules '{}'", options_.rules->name)});
      if (placed < kernels) r_.missing.push_back({"kernels_without_rule", kernels - placed, fmt::format("first: '{}'", first)});
    } else if (placed < kernels) {
      r_.missing.push_back(
          {"passes_unknown", kernels - placed,
           fmt::format("{}; first: '{}'",
                       in_.has_ranges ? "their NVTX ranges are not of the form step/PASS/LAYER/OP" : "the report has no NVTX ranges",
                       first)});
    }
  }

  const ForeignReport& in_;
  const IngestOptions& options_;
  std::vector<ForeignResult> chosen_;
  int64_t placed_by_rules_ = 0;  // kernels
  std::vector<size_t> source_;   // per launch of the recording: which of chosen_
  Recording r_;
};

}  // namespace

Recording to_recording(const ForeignReport& report, const IngestOptions& options) { return Converter(report, options).convert(); }

std::set<std::string> gpus_of(const ForeignReport& report, const IngestOptions& options) {
  std::set<std::string> names;
  const auto metric = metric_index(report, kGpuName);
  for (const ForeignResult* r : chosen_results(report, options)) {
    for (const auto& [index, text] : r->texts)
      if (index == metric) names.insert(text);
    const auto process = report.processes.find(r->process);
    if (process == report.processes.end()) continue;
    if (const auto gpu = process->second.gpus.find(r->device); gpu != process->second.gpus.end()) names.insert(gpu->second);
  }
  return names;
}

std::vector<std::string> read_metrics() {
  std::vector<std::string> list;
  for (const CounterQuantity& q : counter_quantities())
    if (q.asked_for) list.emplace_back(q.metrics.front());
  for (const std::string_view m : {kRegisters, kSharedStatic, kSharedDynamic}) list.emplace_back(m);
  return list;
}

std::string metrics_command() {
  return fmt::format("ncu --nvtx --clock-control none --cache-control none --metrics {} -o report PROGRAM ARGUMENTS",
                     fmt::join(read_metrics(), ","));
}

}  // namespace profiler
