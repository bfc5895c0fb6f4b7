#include "profiler/ingest/to_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/errors.h"
#include "profiler/attribute/counters.h"
#include "profiler/attribute/words.h"
#include "profiler/ingest/read_metrics.h"

namespace profiler {
namespace {

// Device attribute "chip" (architecture and implementation id) -> the name that CUPTI gives it. Source: NVIDIA's open kernel modules,
// NV_PMC_BOOT_42; 384 was read off an H200.
const std::map<int64_t, const char*> kChips = {{352, "TU102"}, {368, "GA100"}, {370, "GA102"}, {384, "GH100"},
                                               {402, "AD102"}, {416, "GB100"}, {418, "GB102"}, {434, "GB202"}};

class Converter {
 public:
  Converter(const ForeignReport& report, const IngestOptions& options) : in_(report), options_(options) {}

  Recording convert() {
    choose_results();
    describe_session();
    r_.missing.insert(r_.missing.end(), in_.missing.begin(), in_.missing.end());
    r_.steps = in_.steps;
    add_launches();
    if (in_.tool == "ncu") {
      add_counters();
      r_.missing.push_back({"kernels_measured_alone", 1, in_.form});
    }
    explain_passes();
    return std::move(r_);
  }

 private:
  void choose_results() {
    const auto total = static_cast<int64_t>(in_.results.size());
    if (options_.first < 0 || options_.first >= total)
      throw stepscope::InputError(fmt::format("{}: --first {} of {} results", in_.source, options_.first, total));
    const int64_t end = options_.count < 0 ? total : std::min(total, options_.first + options_.count);
    std::set<int64_t> processes;
    for (int64_t i = options_.first; i < end; ++i) {
      const ForeignResult& r = in_.results[static_cast<size_t>(i)];
      processes.insert(r.process);
      if (!options_.process || r.process == *options_.process) chosen_.push_back(r);
    }
    if (chosen_.empty())
      throw stepscope::InputError(fmt::format("{}: no result of process {}; the report has {}", in_.source, options_.process.value_or(0),
                                              fmt::join(processes, ", ")));
    if (!options_.process && processes.size() > 1)
      r_.missing.push_back({"several_processes", static_cast<int64_t>(processes.size()), fmt::format("{}", fmt::join(processes, ", "))});
  }

  std::string text_of(const char* metric) const {
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
    s.program = in_.program;
    s.pid = chosen_.front().process;
    s.device = in_.device;
    s.versions = in_.versions;
    const auto set = [&](const char* key, const std::string& value) {
      if (!value.empty()) s.device.emplace(key, value);
    };
    set("name", text_of("device__attribute_display_name"));
    if (const auto chip = number_of("device__attribute_chip"))
      if (const auto at = kChips.find(*chip); at != kChips.end()) set("chip", at->second);
    if (const auto v = number_of("device__attribute_multiprocessor_count")) set("sm_count", fmt::to_string(*v));
    if (const auto v = number_of("device__attribute_l2_cache_size")) set("l2_bytes", fmt::to_string(*v));
    const auto major = number_of("device__attribute_compute_capability_major"),
               minor = number_of("device__attribute_compute_capability_minor");
    if (major && minor) set("compute_capability", fmt::format("{}.{}", *major, *minor));
  }

  static Activity activity(ForeignKind kind) {
    return kind == ForeignKind::copy ? Activity::copy : kind == ForeignKind::memset ? Activity::memset : Activity::kernel;
  }

  void add_launches() {
    std::vector<std::optional<RulePlace>> places(chosen_.size());
    if (options_.rules) places = place_by_rules(*options_.rules, chosen_);
    std::vector<std::optional<uint32_t>> durations;
    for (const std::string_view name : kDurationMetrics) durations.push_back(metric_index(in_, name));
    const auto registers = metric_index(in_, "launch__registers_per_thread");
    const auto shared_static = metric_index(in_, "launch__shared_mem_per_block_static");
    const auto shared_dynamic = metric_index(in_, "launch__shared_mem_per_block_dynamic");
    std::map<std::pair<int64_t, Activity>, int64_t> next_index;
    int64_t clock = 1, without_time = 0, multiplied = 0;
    std::string first_multiplied;
    for (size_t i = 0; i < chosen_.size(); ++i) {
      const ForeignResult& f = chosen_[i];
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
      l.registers = static_cast<int64_t>(value_of(f, registers).value_or(static_cast<double>(f.registers)));
      l.shared_static_bytes = static_cast<int64_t>(value_of(f, shared_static).value_or(static_cast<double>(f.shared_static_bytes)));
      l.shared_dynamic_bytes = static_cast<int64_t>(value_of(f, shared_dynamic).value_or(static_cast<double>(f.shared_dynamic_bytes)));
      std::optional<double> duration;
      for (const auto& d : durations)
        if (!duration) duration = value_of(f, d);
      const bool measured_alone = f.end_ns == 0;
      if (measured_alone && !(duration && *duration > 0 && *duration < 1e15)) {
        ++without_time;
        duration = 0;
      }
      const auto& place = places[i];
      const int64_t times = place ? place->times : 1;
      for (int64_t copy = 0; copy < times; ++copy) {
        if (place) {
          const std::optional<int64_t> layer = times > 1 ? std::optional(copy) : place->layer;
          l.path = fmt::format("step/{}/{}/{}", place->pass, layer ? fmt::to_string(*layer) : "-", place->op);
        }
        l.index = next_index[{l.step, l.activity}]++;
        l.start_ns = f.start_ns;
        l.end_ns = f.end_ns;
        if (measured_alone && *duration > 0) {
          // A kernel of less than a nanosecond is still one that ran.
          l.start_ns = clock;
          l.end_ns = clock += std::max<int64_t>(1, std::llround(*duration));
          r_.stats.push_back({l.activity, l.index, 1, *duration, *duration, *duration, *duration});
        }
        r_.launches.push_back(l);
        source_.push_back(i);
      }
      if (times > 1) {
        if (multiplied++ == 0) first_multiplied = fmt::format("'{}' {} times", l.name, times);
      }
    }
    if (without_time) {
      const bool in_report = std::any_of(durations.begin(), durations.end(), [](const auto& d) { return d.has_value(); });
      r_.missing.push_back(
          {"metrics_not_in_report", without_time,
           in_report
               ? fmt::format("time of {} results: the report has {} for others and no value for these", without_time, kDurationMetrics[0])
               : fmt::format("time of {} results: collect with ncu --metrics {}", without_time, kDurationMetrics[0])});
    }
    if (multiplied)
      r_.missing.push_back({"launches_multiplied", multiplied,
                            fmt::format("rules '{}' let {} launches stand for several layers, first {}", options_.rules->name, multiplied,
                                        first_multiplied)});
  }

  // Which of the metrics a result has differs from report to report, and within one where it was collected twice: results with the same
  // ones make a set.
  void add_counters() {
    std::vector<std::pair<std::string, uint32_t>> read;
    const auto add = [&](std::string_view metric) {
      const auto index = metric_index(in_, metric);
      if (index && std::none_of(read.begin(), read.end(), [&](const auto& r) { return r.first == metric; }))
        read.emplace_back(metric, *index);
    };
    for (const CounterQuantity& q : counter_quantities())
      for (const std::string_view metric : q.metrics) add(metric);
    for (const TensorMetric& t : tensor_metrics()) add(t.metric);
    std::map<std::vector<bool>, std::string> sets;
    std::map<std::string_view, int64_t> absent;         // quantity -> kernels without it
    std::map<std::string_view, int64_t> without_value;  // ... of them, for which the report says "n/a" or nothing
    for (size_t k = 0; k < r_.launches.size(); ++k) {
      const LaunchRecord& l = r_.launches[k];
      if (l.activity != Activity::kernel) continue;
      const ForeignResult& f = chosen_[source_[k]];
      CounterRecord c;
      std::vector<bool> has;
      std::vector<std::string> names;
      for (const auto& [name, index] : read) {
        const auto v = value_of(f, index);
        has.push_back(v.has_value());
        if (!v) continue;
        c.values.push_back(*v);
        names.push_back(name);
      }
      const auto has_metric = [&](std::string_view m) { return std::find(names.begin(), names.end(), m) != names.end(); };
      const bool any_tensor =
          std::any_of(tensor_metrics().begin(), tensor_metrics().end(), [&](const TensorMetric& t) { return has_metric(t.metric); });
      for (const CounterQuantity& q : counter_quantities()) {
        if (!q.asked_for) continue;
        const bool is_tensor = q.member == &KernelCounters::tensor_active_pct;
        const bool lacking = !(is_tensor && any_tensor) && std::none_of(q.metrics.begin(), q.metrics.end(), has_metric);
        absent[q.name] += lacking;
        without_value[q.name] += lacking && std::any_of(q.metrics.begin(), q.metrics.end(), [&](std::string_view m) {
                                   const auto index = metric_index(in_, m);
                                   return index && std::find(f.no_value.begin(), f.no_value.end(), *index) != f.no_value.end();
                                 });
      }
      if (c.values.empty()) continue;
      const auto [set, is_new] = sets.emplace(has, fmt::format("report {}", sets.size()));
      if (is_new) {
        CounterSet s;
        s.name = set->second;
        s.metrics = names;
        r_.counter_sets.push_back(std::move(s));
      }
      CounterSet& s = *std::find_if(r_.counter_sets.begin(), r_.counter_sets.end(),
                                    [&, name = set->second](const CounterSet& x) { return x.name == name; });
      ++s.launches;
      ++s.ranges;
      c.set = set->second;
      c.step = l.step;
      c.index = l.index;
      c.kernel = l.name;
      c.path = l.path;
      c.grid = l.grid;
      r_.counters.push_back(std::move(c));
    }
    std::string lacking, without;
    int64_t quantities = 0;
    for (const CounterQuantity& q : counter_quantities()) {
      if (absent[q.name] == 0) continue;
      ++quantities;
      if (without_value[q.name] == absent[q.name]) {  // collecting it again would not help
        without += fmt::format("{}{} of {} kernels", without.empty() ? "" : ", ", q.metrics.front(), absent[q.name]);
        continue;
      }
      lacking +=
          fmt::format("{}{}{}", lacking.empty() ? "" : ",", q.metrics.front(),
                      absent[q.name] < static_cast<int64_t>(r_.counters.size()) ? fmt::format(" (of {} kernels)", absent[q.name]) : "");
    }
    if (quantities) {
      std::string detail = lacking.empty() ? "" : "collect with ncu --metrics " + lacking;
      if (!without.empty()) detail += (detail.empty() ? "" : "; ") + ("the report has no value (n/a) for " + without);
      r_.missing.push_back({"metrics_not_in_report", quantities, detail});
    }
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
      r_.missing.push_back({"passes_from_rules", placed, fmt::format("rules '{}', by kernel name and launch order", options_.rules->name)});
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
  std::vector<size_t> source_;  // per launch of the recording: which of chosen_
  Recording r_;
};

}  // namespace

Recording to_recording(const ForeignReport& report, const IngestOptions& options) { return Converter(report, options).convert(); }

std::vector<std::string> read_metrics() {
  std::vector<std::string> list;
  for (const CounterQuantity& q : counter_quantities())
    if (q.asked_for) list.emplace_back(q.metrics.front());
  for (const char* m : {"launch__registers_per_thread", "launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"})
    list.emplace_back(m);
  return list;
}

std::string metrics_command() {
  return fmt::format("ncu --nvtx --clock-control none --cache-control none --metrics {} -o report PROGRAM ARGUMENTS",
                     fmt::join(read_metrics(), ","));
}

}  // namespace profiler
