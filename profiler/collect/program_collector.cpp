#include "profiler/collect/program_collector.h"

#include <algorithm>
#include <cmath>

#include "profiler/collect/missing_names.h"

namespace profiler::collect {
namespace {

constexpr size_t kRememberedLaunches = 1u << 20;
constexpr size_t kEarlyRecords = 4096;

}  // namespace

int ProgramCollector::range_pop(uint64_t domain) {
  const auto popped = thread_ranges().pop(domain);
  return popped ? popped->level : -1;
}

void ProgramCollector::note(const Outcome& outcome) {
  if (outcome) recorder_.report(*outcome);
}

void ProgramCollector::describe_once() {
  if (described_) return;
  described_ = true;
  recorder_.write(backend_.describe());
}

void ProgramCollector::process_ends() {
  if (done_) return;
  flush_at_end();
  if (done_.exchange(true)) return;
  describe_once();
  recorder_.finish();
}

void ProgramCollector::abandon() {
  done_ = true;
  recorder_.abandon();
}

// ---- activity

void ProgramTracer::cuda_ready() {
  if (tracing_ || done_) return;
  note(backend_.callbacks(Callbacks::everything));
  if (const Outcome failed = backend_.start_tracing())
    recorder_.report(*failed);
  else
    tracing_ = true;
}

void ProgramTracer::launch_begins(const LaunchCall& call) {
  if (done_) return;
  const std::lock_guard lock(mutex_);
  Launch l{call.kind, 0, paths_.id(thread_ranges().path()), call.host_ns, 0};
  if (call.kind != LaunchKind::graph) {
    const size_t activity = call.kind == LaunchKind::kernel ? 0 : call.kind == LaunchKind::copy ? 1 : 2;
    l.index = next_[activity]++;
  }
  Launch& stored = launches_.insert_or_assign(call.correlation, l).first->second;
  order_.push_back(call.correlation);
  if (!early_.empty()) {
    const auto [begin, end] = early_.equal_range(call.correlation);
    for (auto it = begin; it != end; ++it) {
      it->second.first.name = it->second.second;
      write(it->second.first, stored);
    }
    early_.erase(begin, end);
  }
  while (order_.size() > kRememberedLaunches) {
    launches_.erase(order_.front());
    aliases_.erase(order_.front());
    order_.pop_front();
  }
}

void ProgramTracer::launch_alias(uint32_t correlation, uint32_t alias) {
  const std::lock_guard lock(mutex_);
  if (aliases_.emplace(alias, correlation).second) order_.push_back(alias);
}

void ProgramTracer::launch_ends(uint32_t correlation, LaunchKind kind, LaunchEnd end) {
  if (end == LaunchEnd::performed || done_) return;
  const std::lock_guard lock(mutex_);
  const auto it = launches_.find(correlation);
  if (it == launches_.end() || it->second.records > 0) return;
  // Give the number back if nobody took the next one, so that indices stay those of performed launches.
  if (kind != LaunchKind::graph) {
    int64_t& next = next_[kind == LaunchKind::kernel ? 0 : kind == LaunchKind::copy ? 1 : 2];
    if (it->second.index + 1 == next) --next;
  }
  launches_.erase(it);
}

void ProgramTracer::graph_node_created(uint64_t node) {
  const std::lock_guard lock(mutex_);
  node_paths_.created(node, paths_.id(thread_ranges().path()));
}

void ProgramTracer::graph_node_cloned(uint64_t node, uint64_t original) {
  const std::lock_guard lock(mutex_);
  node_paths_.cloned(node, original);
}

void ProgramTracer::activity(const ActivityEvent& event) {
  if (done_) return;
  const std::lock_guard lock(mutex_);
  auto it = launches_.find(event.correlation);
  if (it == launches_.end())
    if (const auto alias = aliases_.find(event.correlation); alias != aliases_.end()) it = launches_.find(alias->second);
  if (it != launches_.end()) {
    write(event, it->second);
  } else if (early_.size() < kEarlyRecords) {
    early_.emplace(event.correlation, std::pair(event, std::string(event.name)));
  } else {
    recorder_.count(missing::kUnmatched, 1, "records without a launch");
  }
}

void ProgramTracer::write(const ActivityEvent& event, Launch& launch) {
  const bool of_graph = launch.kind == LaunchKind::graph;
  const auto activity = static_cast<size_t>(event.activity);
  if (launch.records > 0 && !of_graph && launch.kind == LaunchKind::kernel) {
    recorder_.count(missing::kUnmatched, 1, "records that repeat the correlation id of an earlier one");
    return;
  }
  const bool numbered = !of_graph && launch.records == 0;
  ++launch.records;
  const int64_t kept = numbered ? launch.index : next_.at(activity) + static_cast<int64_t>(of_graphs_.size());
  if (kept >= plan_.max_launches) {
    ++beyond_limit_.at(activity);
    return;
  }
  LaunchRecord r;
  r.activity = event.activity;
  r.index = launch.index;
  auto [name, is_new] = names_.try_emplace(std::string(event.name));
  if (is_new) name->second = demangle(event.name);
  r.name = name->second;
  r.path = paths_.text(of_graph ? node_paths_.of(event.graph_node).value_or(launch.path) : launch.path);
  r.stream = event.stream;
  r.device = event.device;
  r.grid = event.grid;
  r.block = event.block;
  r.registers = event.registers;
  r.shared_static_bytes = event.shared_static_bytes;
  r.shared_dynamic_bytes = event.shared_dynamic_bytes;
  r.correlation = event.correlation;
  r.graph_node = static_cast<int64_t>(event.graph_node);
  r.launch_ns = launch.host_ns;
  r.bytes = event.bytes;
  if (event.start_ns > 0 && event.end_ns >= event.start_ns) {
    r.start_ns = event.start_ns;
    r.end_ns = event.end_ns;
  } else {
    recorder_.count(missing::kNoTime, 1,
                    event.start_ns > 0 && event.end_ns > 0 ? "records that end before they start" : "records with a zero time stamp");
  }
  if (numbered)
    recorder_.write(r);
  else
    of_graphs_.push_back(std::move(r));
}

void ProgramTracer::flush_at_end() {
  if (!tracing_) return;
  describe_once();
  note(backend_.synchronize());
  note(backend_.callbacks(Callbacks::none));
  note(backend_.stop_tracing());
  const std::lock_guard lock(mutex_);
  std::stable_sort(of_graphs_.begin(), of_graphs_.end(),
                   [](const LaunchRecord& a, const LaunchRecord& b) { return a.start_ns < b.start_ns; });
  for (LaunchRecord& r : of_graphs_) {
    r.index = next_.at(static_cast<size_t>(r.activity))++;
    recorder_.write(r);
  }
  of_graphs_.clear();
  int64_t lost_launches = 0;
  for (const auto& [correlation, l] : launches_)
    if (l.kind == LaunchKind::kernel && l.records == 0) ++lost_launches;
  if (lost_launches > 0) recorder_.count(missing::kRecordsLost, lost_launches, "kernel launches whose record never came");
  if (!early_.empty()) recorder_.count(missing::kUnmatched, static_cast<int64_t>(early_.size()), "records without a launch");
  constexpr std::array<std::string_view, 3> kWords = {"kernels", "copies", "memsets"};
  for (size_t i = 0; i < kWords.size(); ++i)
    if (beyond_limit_[i] > 0)
      recorder_.count(missing::kNotKept, beyond_limit_[i],
                      std::string(kWords[i]) + " after the first " + std::to_string(plan_.max_launches));
}

// ---- counters

ProgramCounter::ProgramCounter(const CollectPlan& plan, Backend& backend, Recorder& recorder, int64_t session_ranges)
    : ProgramCollector(plan, backend, recorder), wanted_(wanted_metrics(plan.metrics)), session_ranges_(session_ranges) {}

void ProgramCounter::cuda_ready() { note(backend_.callbacks(Callbacks::kernels)); }

void ProgramCounter::capture_changed(int change) {
  const std::lock_guard lock(mutex_);
  captures_ = std::max<int64_t>(0, captures_ + change);
}

void ProgramCounter::enable(const void* context) {
  tried_ = true;
  context_ = context;
  describe_once();
  const int64_t begin = now_ns();
  // One more than a session may hold, so that an overflow shows as a wrong count and not as a full image.
  if (const Outcome failed = backend_.enable_counters({wanted_, session_ranges_ + 1, false}, context)) {
    recorder_.report(*failed);
    return;
  }
  for (const auto& [what, why] : backend_.metrics().left_out) recorder_.count(missing::kCountersUnavailable, 1, what + ": " + why);
  enabled_ = true;
  setup_ns_ += static_cast<double>(now_ns() - begin);
}

void ProgramCounter::start_session() {
  const int64_t begin = now_ns();
  if (const Outcome failed = backend_.start_ranges()) {
    recorder_.report(*failed);
    backend_.disable_counters();
    enabled_ = false;
    return;
  }
  session_ = true;
  session_begin_ns_ = now_ns();
  setup_ns_ += static_cast<double>(session_begin_ns_ - begin);
}

void ProgramCounter::end_session() {
  if (!session_) return;
  session_ = false;
  note(backend_.synchronize());
  run_ns_ += static_cast<double>(now_ns() - session_begin_ns_);
  const SessionValues values = backend_.stop_ranges();
  decode_ns_ += values.decode_ns;
  std::vector<Pending> launches;
  launches.swap(pending_);
  const auto refuse = [&](const std::string& why) {
    ++failed_sessions_;
    recorder_.count(missing::kCounterSetFailed, static_cast<int64_t>(launches.size()), why);
  };
  if (values.failure) {
    recorder_.report(*values.failure);
    refuse("launches of a session that could not be read");
    backend_.disable_counters();
    enabled_ = false;
    tried_ = failed_sessions_ > 3;  // a new object works again; not for ever
    return;
  }
  if (values.ranges.size() != launches.size())
    return refuse("launches of sessions with " + std::to_string(launches.size()) + " launches but " + std::to_string(values.ranges.size()) +
                  " ranges");
  for (const RangeValues& range : values.ranges)
    if (range.values.size() != backend_.metrics().metrics.size() ||
        !(asked_by_name(plan_.metrics) || std::all_of(range.values.begin(), range.values.end(), [](double v) { return std::isfinite(v); })))
      return refuse("launches of sessions with values that are not numbers");
  if (!sets_) sets_.emplace("core", backend_.metrics().metrics);
  for (size_t i = 0; i < launches.size(); ++i) {
    CounterRecord r;
    r.index = launches[i].index;
    r.kernel = demangle(launches[i].symbol);
    r.path = launches[i].path;
    r.grid = launches[i].grid;
    sets_->fill(r, values.ranges[i].values);
    recorder_.write(r);
  }
}

void ProgramCounter::launch_begins(const LaunchCall& call) {
  if (done_) return;
  const std::lock_guard lock(mutex_);
  if (call.kind == LaunchKind::graph) {
    recorder_.count(missing::kGraphInCounters, 1, "graph launches; their kernels were not counted");
    if (captures_ == 0) end_session();
    return;
  }
  if (call.kind != LaunchKind::kernel) return;
  const int64_t index = next_index_++;
  if (index >= plan_.max_launches) {
    recorder_.count(missing::kNotKept, 1, "kernels after the first " + std::to_string(plan_.max_launches));
    if (captures_ == 0) end_session();
    return;
  }
  if (captures_ == 0) {
    if (static_cast<int64_t>(pending_.size()) >= session_ranges_) end_session();
    if (!tried_ && !enabled_) {
      note(backend_.synchronize());
      enable(call.context);
    }
    if (enabled_ && !session_) {
      note(backend_.synchronize());
      start_session();
    }
  }
  if (context_ && call.context && call.context != context_) {
    recorder_.count(missing::kCounterSetFailed, 1, "launches in another context than the first");
    return;
  }
  if (session_) pending_.push_back({call.correlation, index, std::string(call.symbol), thread_ranges().path(), call.grid});
}

void ProgramCounter::launch_ends(uint32_t correlation, LaunchKind kind, LaunchEnd end) {
  if (end == LaunchEnd::performed || done_ || kind != LaunchKind::kernel) return;
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(pending_.rbegin(), pending_.rend(), [&](const Pending& p) { return p.correlation == correlation; });
  const bool newest = it == pending_.rend() ? true : it == pending_.rbegin();
  if (it != pending_.rend()) pending_.erase(std::next(it).base());
  if (newest) --next_index_;
}

void ProgramCounter::context_ends(const void* context) {
  if (done_) return;
  const std::lock_guard lock(mutex_);
  if (context != context_ || !context_) return;
  end_session();
  if (enabled_) backend_.disable_counters();
  enabled_ = false;
  tried_ = false;  // the next context may be counted again
  context_ = nullptr;
}

void ProgramCounter::flush_at_end() {
  const std::lock_guard lock(mutex_);
  end_session();
  if (next_index_ == 0) return;
  CounterSet costs;
  costs.setup_ns = setup_ns_;
  costs.run_ns = run_ns_;
  costs.decode_ns = decode_ns_;
  if (!sets_) sets_.emplace("core", backend_.metrics().metrics);
  sets_->write(recorder_, costs, "kernels");  // sessions that failed are rows of the missing table, not of the set
  if (enabled_) backend_.disable_counters();
  enabled_ = false;
}

}  // namespace profiler::collect
