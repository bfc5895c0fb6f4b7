#include "profiler/collect/step_trace.h"

#include <algorithm>

#include "base/statistics.h"
#include "profiler/collect/missing_names.h"
#include "profiler/records/shown_step.h"

namespace profiler::collect {

uint32_t Interned::id(std::string_view text) {
  if (const auto it = ids_.find(text); it != ids_.end()) return it->second;
  const auto id = static_cast<uint32_t>(texts_.size());
  texts_.emplace_back(text);
  ids_.emplace(texts_.back(), id);
  return id;
}

void NodePaths::created(uint64_t node, uint32_t path) {
  constexpr size_t kMost = 1u << 20;  // a program that builds graphs without end
  if (paths_.size() >= kMost) paths_.clear();
  paths_[node] = path;  // ids are reused after a graph is destroyed: the newest owner counts
}

void NodePaths::cloned(uint64_t node, uint64_t original) {
  if (const auto path = of(original))
    paths_[node] = *path;
  else
    paths_.erase(node);
}

std::optional<uint32_t> NodePaths::of(uint64_t node) const {
  const auto it = paths_.find(node);
  return it == paths_.end() ? std::nullopt : std::optional(it->second);
}

int64_t NodePaths::most_of_a_graph() const {
  std::unordered_map<uint64_t, int64_t> nodes;  // by graph, which is the upper half of a node's id
  int64_t most = 0;
  for (const auto& [node, path] : paths_) most = std::max(most, ++nodes[node >> 32]);
  return most;
}

void DurationSample::add(int64_t ns) {
  if (count_ == 0) min_ = max_ = ns;
  min_ = std::min(min_, ns);
  max_ = std::max(max_, ns);
  sum_ += static_cast<double>(ns);
  ++count_;
  if (kept_.size() < kReservoir) {
    kept_.push_back(ns);
    return;
  }
  // Every sample so far stays with equal probability. A fixed generator, so that the same records give the
  // same median.
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const uint64_t slot = random_ % static_cast<uint64_t>(count_);
  if (slot < kReservoir) kept_[slot] = ns;
}

LaunchStats DurationSample::stats() const {
  LaunchStats s;
  s.samples = count_;
  if (count_ == 0) return s;
  s.min_ns = static_cast<double>(min_);
  s.max_ns = static_cast<double>(max_);
  s.mean_ns = sum_ / static_cast<double>(count_);
  s.median_ns = stepscope::median(kept_);
  return s;
}

void StepTrace::begin_step(const StepRecord& step, bool kept) {
  const std::lock_guard lock(mutex_);
  open_ = Open{step, kept, 0, {}};
  step_open_ = true;
  newest_step_ = std::max(newest_step_, step.step);
  if (!kept) return;
  steps_[step.step] = step;
  full_.try_emplace(step.step);
  while (full_.size() > limits_.full_steps) full_.erase(full_.begin());
}

void StepTrace::end_step(int64_t step, int64_t host_end_ns) {
  const std::lock_guard lock(mutex_);
  step_open_ = false;
  if (StepRecord* r = step_record(step)) r->host_end_ns = host_end_ns;
}

StepRecord* StepTrace::step_record(int64_t step) {
  const auto it = steps_.find(step);
  return it == steps_.end() ? nullptr : &it->second;
}

std::map<StepTrace::Key, StepTrace::Operation>* StepTrace::full_step(int64_t step) {
  const auto it = full_.find(step);
  return it == full_.end() ? nullptr : &it->second;
}

void StepTrace::count(std::string_view missing, int64_t n, std::string_view detail) {
  missing_[{std::string(missing), std::string(detail)}] += n;
}

void StepTrace::lost(std::string_view missing, int64_t n, std::string_view detail) {
  const std::lock_guard lock(mutex_);
  count(missing, n, detail);
}

void StepTrace::remember(uint32_t correlation, const Launch& launch) {
  launches_[correlation] = launch;
  launch_order_.push_back(correlation);
  while (launch_order_.size() > limits_.launches) {
    const auto it = launches_.find(launch_order_.front());
    if (it != launches_.end()) {
      if (it->second.kept && it->second.kind == LaunchKind::kernel && it->second.records == 0)
        count(missing::kRecordsLost, 1, "kernel launches whose record never came");
      launches_.erase(it);
    }
    aliases_.erase(launch_order_.front());
    launch_order_.pop_front();
  }
}

StepTrace::Launch* StepTrace::find(uint32_t correlation) {
  auto it = launches_.find(correlation);
  if (it == launches_.end()) {
    const auto alias = aliases_.find(correlation);
    if (alias == aliases_.end()) return nullptr;
    it = launches_.find(alias->second);
  }
  return it == launches_.end() ? nullptr : &it->second;
}

void StepTrace::launch(const LaunchCall& call, std::string_view path) {
  const std::lock_guard lock(mutex_);
  if (launches_.contains(call.correlation)) return;
  Launch l;
  l.kind = call.kind;
  l.host_ns = call.host_ns;
  l.path = paths_.id(path);
  if (step_open_) {
    l.step = open_.step.step;
    l.kept = open_.kept;
    l.ordinal = open_.ordinals++;
    l.index_of_kind = open_.of_kind[static_cast<size_t>(call.kind)]++;
  }
  remember(call.correlation, l);
  if (l.kept && call.kind == LaunchKind::kernel) {
    if (StepRecord* r = step_record(l.step)) ++r->kernels;
    if (auto* operations = full_step(l.step)) {
      Operation& op = (*operations)[{l.ordinal, 0}];
      op.record.step = l.step;
      op.record.correlation = call.correlation;
      op.record.launch_ns = call.host_ns;
      op.record.grid = call.grid;
      op.record.block = call.block;
      op.name = names_.id(call.symbol);
      op.path = l.path;
    }
  }
  if (!early_.empty()) {
    auto [begin, end] = early_.equal_range(call.correlation);
    std::vector<Early> waiting;
    for (auto it = begin; it != end; ++it) waiting.push_back(std::move(it->second));
    early_.erase(begin, end);
    for (Early& e : waiting) {
      e.event.name = e.name;
      take(e.event);
    }
  }
}

void StepTrace::alias(uint32_t correlation, uint32_t alias) {
  const std::lock_guard lock(mutex_);
  if (alias == correlation || !aliases_.emplace(alias, correlation).second) return;
  launch_order_.push_back(alias);  // forgotten with the launches of its time
}

void StepTrace::launch_ended(uint32_t correlation, LaunchEnd end) {
  if (end == LaunchEnd::performed) return;
  const std::lock_guard lock(mutex_);
  const auto it = launches_.find(correlation);
  if (it == launches_.end() || it->second.records > 0) return;
  const Launch& l = it->second;
  if (l.kept && l.kind == LaunchKind::kernel) {
    if (StepRecord* r = step_record(l.step)) --r->kernels;
    if (auto* operations = full_step(l.step)) operations->erase({l.ordinal, 0});
  }
  launches_.erase(it);
}

void StepTrace::node_created(uint64_t node, std::string_view path) {
  const std::lock_guard lock(mutex_);
  node_paths_.created(node, paths_.id(path));
}

void StepTrace::node_cloned(uint64_t node, uint64_t original) {
  const std::lock_guard lock(mutex_);
  node_paths_.cloned(node, original);
}

int64_t StepTrace::most_nodes_of_a_graph() const {
  const std::lock_guard lock(mutex_);
  return node_paths_.most_of_a_graph();
}

void StepTrace::activity(const ActivityEvent& event) {
  const std::lock_guard lock(mutex_);
  if (take(event)) return;
  if (early_.size() >= limits_.early_records) {
    count(missing::kUnmatched, 1, "records without a launch");
    return;
  }
  early_.emplace(event.correlation, Early{event, std::string(event.name)});
}

bool StepTrace::take(const ActivityEvent& event) {
  Launch* l = find(event.correlation);
  if (!l) return false;
  const bool of_graph = l->kind == LaunchKind::graph;
  if (l->records > 0 && !of_graph && (l->kind == LaunchKind::kernel || event.activity == Activity::kernel)) {
    count(missing::kUnmatched, 1, "records that repeat the correlation id of an earlier one");
    return true;
  }
  const uint32_t sub = of_graph ? static_cast<uint32_t>(event.graph_node) : l->records;  // one copy call may make several copies
  ++l->records;
  if (!l->kept) return true;

  const Key key{l->ordinal, sub};
  const uint32_t name = names_.id(event.name), path = path_of(*l, event);
  const bool timed = event.start_ns > 0 && event.end_ns >= event.start_ns;
  if (!timed)
    count(missing::kNoTime, 1,
          event.start_ns > 0 && event.end_ns > 0 ? "records that end before they start" : "records with a zero time stamp");
  if (StepRecord* r = step_record(l->step)) add_to_step(*r, *l, event, timed);
  if (timed) add_duration(key, name, event);

  auto* operations = full_step(l->step);
  if (!operations && !raw_) return true;
  LaunchRecord record = record_of(*l, event, timed);
  if (operations) (*operations)[key] = Operation{record, name, path, true};
  if (raw_) {
    record.index = l->index_of_kind;
    auto [plain, is_new] = demangled_.try_emplace(name);
    if (is_new) plain->second = demangle(event.name);
    record.name = plain->second;
    record.path = paths_.text(path);
    raw_(record);
  }
  return true;
}

uint32_t StepTrace::path_of(const Launch& launch, const ActivityEvent& event) {
  if (launch.kind != LaunchKind::graph) return launch.path;
  if (const auto path = node_paths_.of(event.graph_node)) return *path;
  count(missing::kUnknownRange, 1,
        "graph nodes captured before the collector listened; shown under the range that launched the "
        "graph");
  return launch.path;
}

void StepTrace::add_to_step(StepRecord& step, const Launch& launch, const ActivityEvent& event, bool timed) {
  if (event.activity == Activity::kernel && launch.kind != LaunchKind::kernel) ++step.kernels;
  if (event.activity == Activity::copy) ++step.copies;
  if (event.activity == Activity::memset) ++step.memsets;
  if (!timed) return;
  step.gpu_begin_ns = step.gpu_begin_ns == 0 ? event.start_ns : std::min(step.gpu_begin_ns, event.start_ns);
  step.gpu_end_ns = std::max(step.gpu_end_ns, event.end_ns);
}

void StepTrace::add_duration(const Key& key, uint32_t name, const ActivityEvent& event) {
  auto [seen, is_new] = seen_.try_emplace(key);
  if (is_new) {
    seen->second.name = name;
    seen->second.activity = event.activity;
  }
  if (seen->second.name == name && seen->second.activity == event.activity)
    seen->second.durations.add(event.end_ns - event.start_ns);
  else
    count(missing::kSequenceChanged, 1, "operations differ from the first traced step at the same place");
}

LaunchRecord StepTrace::record_of(const Launch& launch, const ActivityEvent& event, bool timed) {
  LaunchRecord record;
  record.activity = event.activity;
  record.step = launch.step;
  record.stream = event.stream;
  record.device = event.device;
  record.grid = event.grid;
  record.block = event.block;
  record.registers = event.registers;
  record.shared_static_bytes = event.shared_static_bytes;
  record.shared_dynamic_bytes = event.shared_dynamic_bytes;
  record.correlation = event.correlation;
  record.graph_node = static_cast<int64_t>(event.graph_node);
  record.launch_ns = launch.host_ns;
  record.start_ns = timed ? event.start_ns : 0;
  record.end_ns = timed ? event.end_ns : 0;
  record.bytes = event.bytes;
  return record;
}

std::vector<StepRecord> StepTrace::take_old_steps() {
  const std::lock_guard lock(mutex_);
  std::vector<StepRecord> old;
  while (!steps_.empty() && steps_.begin()->first + static_cast<int64_t>(limits_.steps) <= newest_step_) {
    old.push_back(steps_.begin()->second);
    steps_.erase(steps_.begin());
  }
  return old;
}

StepTrace::Result StepTrace::finish() {
  const std::lock_guard lock(mutex_);
  Result result;
  for (const auto& [correlation, l] : launches_)
    if (l.kept && l.kind == LaunchKind::kernel && l.records == 0)
      count(missing::kRecordsLost, 1, "kernel launches whose record never came");
  if (!early_.empty()) count(missing::kUnmatched, static_cast<int64_t>(early_.size()), "records without a launch");
  early_.clear();

  std::vector<StepRecord> ended;
  for (const auto& [step, record] : steps_)
    if (record.host_end_ns > 0) ended.push_back(record);
  if (const auto shown = shown_step(
          ended, [&](int64_t step) { return full_.contains(step); }, one_of_several_)) {
    std::array<int64_t, 3> next{};
    for (const auto& [key, op] : full_.at(*shown)) {
      LaunchRecord r = op.record;
      r.index = next.at(static_cast<size_t>(r.activity))++;
      r.name = demangle(names_.text(op.name));
      r.path = paths_.text(op.path);
      const auto seen = seen_.find(key);
      if (seen != seen_.end()) {
        if (seen->second.name == op.name && seen->second.activity == r.activity) {
          LaunchStats s = seen->second.durations.stats();
          s.activity = r.activity;
          s.index = r.index;
          result.stats.push_back(s);
        } else {
          count(missing::kSequenceChanged, 1, "operations of the step shown differ from the first traced one at the same place");
        }
      }
      result.launches.push_back(std::move(r));
    }
    const auto order = [](const auto& a, const auto& b) { return std::pair(a.activity, a.index) < std::pair(b.activity, b.index); };
    std::sort(result.launches.begin(), result.launches.end(), order);
    std::sort(result.stats.begin(), result.stats.end(), order);
  }
  result.steps = std::move(ended);
  steps_.clear();
  for (const auto& [what, n] : missing_) result.missing.push_back({what.first, n, what.second});
  missing_.clear();
  return result;
}

}  // namespace profiler::collect
