// The counted steps: one range per kernel, then one per pass.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "profiler/collect/counted_sets.h"
#include "profiler/collect/missing_names.h"
#include "profiler/collect/step_collector.h"

namespace profiler::collect {
namespace {

constexpr int64_t kRangesIfUnknown = 2048;
constexpr int64_t kSparePassRanges = 8;

int64_t a_tenth_more(int64_t ranges) { return ranges + ranges / 10; }

// A record for each range, behind the sets that they name.
void write_counted(Recorder& recorder, const CounterSet& set, std::vector<CounterRecord> records, const SessionValues& values,
                   std::string_view what) {
  CountedSets sets(set.name, set.metrics);
  for (size_t i = 0; i < records.size(); ++i) sets.fill(records[i], values.ranges[i].values);
  sets.write(recorder, set, what);
  for (const CounterRecord& r : records) recorder.write(r);
}

}  // namespace

// Room for the kernels of a counted step. It launches one by one what the warm-up step may have launched as graphs, of which each is taken for
// the largest.
int64_t StepCollector::kernel_ranges() const {
  const int64_t kernels = counted_launches_, graphs = counted_graphs_;
  if (graphs > 0) return std::max(kRangesIfUnknown, a_tenth_more(kernels + graphs * trace_.most_nodes_of_a_graph()) + 1);
  return kernels > 0 ? a_tenth_more(kernels) + 1 : kRangesIfUnknown;
}

void StepCollector::begin_counters(bool user_ranges) {
  if (traced_) {
    if (orders_.first_of_phase)
      recorder_.report({std::string(missing::kCountersUnavailable),
                        "the plan asks for counters after the activity phase, whose tracing has patched the "
                        "kernels; put counters first"});
    return;
  }
  // A step without ranges in it is one pass, whose sum the kernels give; the profiler refuses a session without a range.
  if (user_ranges && passes_counted_ && most_pass_changes_ == 0) return;
  setup_begin_ns_ = now_ns();
  note(backend_.synchronize(context_));
  if (orders_.first_of_phase) {
    CounterRequest request;
    request.wanted = wanted_;
    request.user_ranges = user_ranges;
    request.max_ranges = user_ranges ? a_tenth_more(most_pass_changes_) + kSparePassRanges : kernel_ranges();
    if (const Outcome failed = backend_.enable_counters(request, context_)) {
      recorder_.report(*failed);
    } else {
      counters_on_ = true;
      if (!user_ranges)
        for (const auto& [what, why] : backend_.metrics().left_out) recorder_.count(missing::kCountersUnavailable, 1, what + ": " + why);
    }
  }
  if (!counters_on_) return;
  {
    const std::lock_guard lock(counters_mutex_);
    counter_launches_.clear();
    graph_launches_ = 0;
  }
  pass_.clear();
  passes_seen_.clear();
  note(backend_.callbacks(Callbacks::kernels));
  if (const Outcome failed = backend_.start_ranges()) {
    recorder_.report(*failed);
    note(backend_.callbacks(Callbacks::none));
    backend_.disable_counters();
    counters_on_ = false;
    return;
  }
  session_on_ = true;
  passes_wanted_ = user_ranges;
  run_begin_ns_ = now_ns();
  setup_ns_ = run_begin_ns_ - setup_begin_ns_;
  listening_ = Listening::counters;
}

// Ranges that are not as many as expected, or values of our own metrics that are not numbers: the whole set is worth nothing.
bool StepCollector::usable(const std::string& set, const SessionValues& values, int64_t expected) {
  const auto refuse = [&](const std::string& why) {
    recorder_.report({std::string(missing::kCounterSetFailed), "set " + set + ", step " + std::to_string(step_.step) + ": " + why});
    return false;
  };
  if (graph_launches_ > 0 && orders_.collecting == Phase::counters) {
    recorder_.report({std::string(missing::kGraphInCounters),
                      std::to_string(graph_launches_) + " graph launches in step " + std::to_string(step_.step)});
    return false;
  }
  if (values.failure) {
    recorder_.report(*values.failure);
    return false;
  }
  if (static_cast<int64_t>(values.ranges.size()) != expected)
    return refuse(std::to_string(expected) + " ranges expected, " + std::to_string(values.ranges.size()) + " came");
  for (size_t i = 0; i < values.ranges.size(); ++i) {
    const auto& v = values.ranges[i].values;
    if (v.size() != backend_.metrics().metrics.size()) return refuse("range " + std::to_string(i) + " has too few values");
    if (asked_by_name(plan_.metrics)) continue;
    for (size_t m = 0; m < v.size(); ++m)
      if (!std::isfinite(v[m])) return refuse(backend_.metrics().metrics[m] + " of range " + std::to_string(i) + " is not a number");
  }
  return true;
}

void StepCollector::end_kernel_counters() {
  listening_ = Listening::nothing;
  if (!session_on_) return;
  session_on_ = false;
  note(backend_.synchronize(context_));
  const int64_t run_ns = now_ns() - run_begin_ns_;
  const SessionValues values = backend_.stop_ranges();
  note(backend_.callbacks(Callbacks::none));

  std::vector<CounterLaunch> launches;
  {
    const std::lock_guard lock(counters_mutex_);
    launches.swap(counter_launches_);
  }
  const int n = ++sets_written_["core"];
  const std::string name = n == 1 ? "core" : "core." + std::to_string(n);
  const bool good = usable(name, values, static_cast<int64_t>(launches.size()));
  CounterSet set;
  set.name = name;
  set.metrics = backend_.metrics().metrics;
  set.setup_ns = static_cast<double>(setup_ns_);
  set.run_ns = static_cast<double>(run_ns);
  set.decode_ns = values.decode_ns;
  set.launches = static_cast<int64_t>(launches.size());
  set.ranges = static_cast<int64_t>(values.ranges.size());
  step_.kernels = set.launches;
  if (!good) {
    recorder_.write(set);
    if (values.failure || graph_launches_ > 0) {
      backend_.disable_counters();  // after a failed decode only a new object works again
      counters_on_ = false;
    }
    return;
  }
  std::vector<CounterRecord> records;
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < launches.size(); ++i) {
    auto [name_of, is_new] = names.try_emplace(launches[i].symbol);
    if (is_new) name_of->second = demangle(launches[i].symbol);
    CounterRecord& r = records.emplace_back();
    r.step = step_.step;
    r.index = static_cast<int64_t>(i);
    r.kernel = name_of->second;
    r.path = launches[i].path;
    r.grid = launches[i].grid;
  }
  write_counted(recorder_, set, std::move(records), values, "kernels");
}

void StepCollector::enter_pass(std::string_view pass) {
  if (pass_ == pass) return;
  if (listening_ == Listening::counting) {
    ++pass_changes_;
    pass_ = pass;
    return;
  }
  leave_pass();
  if (!session_on_) return;
  pass_ = pass;
  if (const Outcome failed = backend_.push_range(pass_)) {
    recorder_.report(*failed);
    pass_.clear();
    return;
  }
  ++passes_seen_[pass_];
}

void StepCollector::leave_pass() {
  if (!pass_.empty() && session_on_) note(backend_.pop_range());
  pass_.clear();
}

void StepCollector::end_pass_counters() {
  passes_wanted_ = false;
  listening_ = Listening::nothing;
  if (!session_on_) return;
  leave_pass();
  session_on_ = false;
  note(backend_.synchronize(context_));
  const int64_t run_ns = now_ns() - run_begin_ns_;
  SessionValues values = backend_.stop_ranges();
  note(backend_.callbacks(Callbacks::none));
  std::set<std::string> with_kernels;  // passes
  {
    const std::lock_guard lock(counters_mutex_);
    step_.kernels = static_cast<int64_t>(counter_launches_.size());
    for (const CounterLaunch& l : counter_launches_)
      if (const auto pass = component_below(step_path_, l.path)) with_kernels.emplace(*pass);
    counter_launches_.clear();
  }
  // A pass without a kernel, such as the communication of ranks that exchange nothing, may have no ratios: that spoils no other pass.
  const auto empty = std::erase_if(values.ranges, [&](const RangeValues& range) {
    return !with_kernels.contains(range.name) &&
           std::any_of(range.values.begin(), range.values.end(), [](double v) { return !std::isfinite(v); });
  });
  const int n = ++sets_written_["passes"];
  CounterSet set;
  set.name = n == 1 ? "passes" : "passes." + std::to_string(n);
  set.metrics = backend_.metrics().metrics;
  set.setup_ns = static_cast<double>(setup_ns_);
  set.run_ns = static_cast<double>(run_ns);
  set.decode_ns = values.decode_ns;
  set.launches = static_cast<int64_t>(passes_seen_.size() - empty);  // equal names merge into one range
  set.ranges = static_cast<int64_t>(values.ranges.size());
  const bool good = usable(set.name, values, set.launches);
  if (!good) {
    recorder_.write(set);
    return;
  }
  std::vector<CounterRecord> records;
  for (const RangeValues& range : values.ranges) {
    CounterRecord& r = records.emplace_back();
    r.step = step_.step;
    r.pass = range.name;
  }
  write_counted(recorder_, set, std::move(records), values, "passes");
}

}  // namespace profiler::collect
