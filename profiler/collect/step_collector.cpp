#include "profiler/collect/step_collector.h"

#include <algorithm>

#include "profiler/collect/missing_names.h"
#include "profiler/records/step_name.h"

namespace profiler::collect {

RangeStack& thread_ranges() {
  thread_local RangeStack ranges;
  return ranges;
}

StepCollector::StepCollector(const CollectPlan& plan, Backend& backend, Recorder& recorder, Hooks hooks, bool one_of_several)
    : plan_(plan),
      wanted_(wanted_metrics(plan.metrics)),
      backend_(backend),
      recorder_(recorder),
      hooks_(std::move(hooks)),
      machine_(plan.phases),
      trace_(StepTrace::Limits{}, one_of_several) {
  if (machine_.steps_planned() == 0) throw std::runtime_error("collect plan has no steps in its phases");
  if (plan_.raw_trace.empty()) return;
  raw_ = std::make_unique<RecordingWriter>(plan_.raw_trace);
  trace_.set_raw_sink([this](const LaunchRecord& r) {
    if (!raw_) return;
    try {
      raw_->write(r);
    } catch (const std::exception& e) {
      raw_.reset();
      say(std::string("raw trace stopped: ") + e.what());
    }
  });
}

void StepCollector::note(const Outcome& outcome) {
  if (outcome) recorder_.report(*outcome);
}

// ---- ranges

int StepCollector::range_push(uint64_t domain, std::string_view name) {
  RangeStack& ranges = thread_ranges();
  if (!done_ && !step_open_ && is_step_name(name, plan_.step_range)) {
    // All steps under one name, so that "step 17" does not make a path of its own.
    const int level = ranges.push(domain, plan_.step_range);
    const std::lock_guard lock(step_mutex_);
    if (!done_ && !step_open_) begin_step(ranges);
    return level;
  }
  if (machine_unused_ && ranges.depth() == 0) remember_name(name);
  const int level = ranges.push(domain, name);
  if (passes_wanted_ && step_thread_ == std::this_thread::get_id()) {
    const auto pass = component_below(step_path_, ranges.path());
    if (pass) enter_pass(*pass);
  }
  return level;
}

// Names of ranges that are no step, while none was: what --step-range could have been.
void StepCollector::remember_name(std::string_view name) {
  constexpr size_t kMost = 5, kLongest = 60;
  const std::lock_guard lock(path_mutex_);
  if (names_seen_.size() < kMost) names_seen_.emplace(name.substr(0, kLongest));
}

std::string StepCollector::other_names() {
  const std::lock_guard lock(path_mutex_);
  std::string text;
  for (const std::string& name : names_seen_) text += (text.empty() ? "; it opened '" : ", '") + name + "'";
  return text;
}

int StepCollector::range_pop(uint64_t domain) {
  const auto popped = thread_ranges().pop(domain);
  if (!popped) return -1;
  if (step_open_ && popped->serial == step_serial_ && step_thread_ == std::this_thread::get_id()) {
    const std::lock_guard lock(step_mutex_);
    end_step();
  }
  return popped->level;
}

// Backward passes of PyTorch launch from a thread of their own, without ranges: such launches belong to the
// step at least.
std::string StepCollector::launch_path() {
  const RangeStack& ranges = thread_ranges();
  if (ranges.depth() > 0) return ranges.path();
  if (!step_open_) return {};
  const std::lock_guard lock(path_mutex_);
  return step_path_;
}

// ---- steps

// A program may open its first step before its first CUDA call, so a process without a device is asked again at both ends of every step.
// `last`: what is known now must do.
void StepCollector::describe_once(bool last) {
  if (described_) return;
  const SessionRecord session = backend_.describe();
  if (session.device.empty() && !last) return;
  described_ = true;
  recorder_.write(session);
  if (machine_.steps_begun() > 0 && hooks_.described) hooks_.described(session);
}

void StepCollector::begin_step(const RangeStack& ranges) {
  const auto orders = machine_.begin_step();
  if (!orders) return;
  machine_unused_ = false;
  orders_ = *orders;
  describe_once(false);
  {
    const std::lock_guard lock(path_mutex_);
    step_path_ = ranges.path();
  }
  step_thread_ = std::this_thread::get_id();
  step_serial_ = ranges.top_serial();
  step_ = StepRecord{};
  step_.step = orders_.step;
  step_.phase = orders_.recorded;
  if (hooks_.phase) hooks_.phase(orders_.recorded);
  // Before anything is set up: this is when the step before it was over, for the program.
  step_.host_begin_ns = now_ns();

  switch (orders_.collecting) {
    case Phase::counters:
      begin_counters(false);
      break;
    case Phase::pass_counters:
      begin_counters(true);
      break;
    case Phase::activity:
      begin_activity();
      break;
    case Phase::warmup:
      if (orders_.count_launches) {
        note(backend_.callbacks(Callbacks::kernels));
        counted_launches_ = counted_graphs_ = 0;
        pass_changes_ = 0;
        pass_.clear();
        passes_wanted_ = true;
        listening_ = Listening::counting;
      }
      break;
    default:
      break;
  }
  if (tracing_on_) trace_.begin_step(step_, orders_.recorded == Phase::activity);
  step_open_ = true;
}

void StepCollector::end_step() {
  step_.host_end_ns = now_ns();
  switch (orders_.collecting) {
    case Phase::counters:
      end_kernel_counters();
      break;
    case Phase::pass_counters:
      end_pass_counters();
      break;
    case Phase::warmup:
      if (orders_.count_launches) {
        listening_ = Listening::nothing;
        passes_wanted_ = false;
        most_pass_changes_ = pass_changes_;
        passes_counted_ = true;
        note(backend_.callbacks(Callbacks::none));
      }
      break;
    default:
      break;
  }
  step_open_ = false;
  describe_once(orders_.last_of_plan);
  if (tracing_on_) trace_.end_step(step_.step, step_.host_end_ns);
  if (tracing_on_ && step_.phase == Phase::activity) {
    ++traced_steps_;
    for (const StepRecord& s : trace_.take_old_steps()) recorder_.write(s);  // the others when their records have come
  } else {
    recorder_.write(step_);
  }
  if (orders_.last_of_phase) {
    if (orders_.collecting == Phase::activity) end_activity();
    if (counters_on_) {
      backend_.disable_counters();
      counters_on_ = false;
    }
  }
  if (orders_.last_of_plan) finish();
}

// ---- activity

void StepCollector::begin_activity() {
  if (!orders_.first_of_phase) return;
  traced_ = true;
  note(backend_.synchronize(context_));
  note(backend_.callbacks(Callbacks::everything));
  listening_ = Listening::trace;
  if (const Outcome failed = backend_.start_tracing()) {
    recorder_.report(*failed);
    listening_ = Listening::nothing;
    note(backend_.callbacks(Callbacks::none));
    return;
  }
  tracing_on_ = true;
}

void StepCollector::end_activity() {
  if (!tracing_on_) return;
  note(backend_.synchronize(context_));
  note(backend_.callbacks(Callbacks::none));
  note(backend_.stop_tracing());
  listening_ = Listening::nothing;
  tracing_on_ = false;
  const StepTrace::Result result = trace_.finish();
  for (const StepRecord& s : result.steps) recorder_.write(s);
  for (const LaunchRecord& l : result.launches) recorder_.write(l);
  for (const LaunchStats& s : result.stats) recorder_.write(s);
  for (const MissingRecord& m : result.missing) recorder_.count(m.name, m.count, m.detail);
  if (raw_) {
    try {
      raw_->finish();
    } catch (const std::exception& e) {
      say(std::string("raw trace: ") + e.what());
    }
    raw_.reset();
  }
}

void StepCollector::finish() {
  if (done_.exchange(true)) return;
  if (hooks_.finished) hooks_.finished();
  recorder_.finish();
}

// A plan of timed steps only is fulfilled without a trace.
bool StepCollector::wants_traces() const {
  return std::any_of(plan_.phases.begin(), plan_.phases.end(), [](const PhasePlan& p) { return p.phase == Phase::activity; });
}

void StepCollector::process_ends() {
  const std::lock_guard lock(step_mutex_);
  if (done_) return;
  step_open_ = false;
  listening_ = tracing_on_ ? Listening::trace : Listening::nothing;
  if (session_on_) {
    session_on_ = false;
    note(backend_.synchronize(context_));
    backend_.stop_ranges();
  }
  if (counters_on_) backend_.disable_counters();
  counters_on_ = false;
  end_activity();
  if (machine_.steps_begun() == 0)
    recorder_.report(
        {std::string(missing::kNotTraced), "the program opened no NVTX range named '" + plan_.step_range + "'" + other_names()});
  else if (traced_steps_ == 0 && wants_traces())
    recorder_.report({std::string(missing::kNotTraced), "the program ended in step " + std::to_string(step_.step) + " of the " +
                                                            std::to_string(machine_.steps_planned()) + " that the plan needs"});
  describe_once(true);
  finish();
}

void StepCollector::abandon() {
  done_ = true;
  listening_ = Listening::nothing;
  recorder_.abandon();
}

// ---- launches and records

void StepCollector::context_ends(const void* context) { context_.compare_exchange_strong(context, nullptr); }

void StepCollector::launch_begins(const LaunchCall& call) {
  if (call.context && listening_ != Listening::nothing) context_ = call.context;
  switch (listening_.load()) {
    case Listening::nothing:
      return;
    case Listening::counting:
      if (call.kind == LaunchKind::kernel) ++counted_launches_;
      if (call.kind == LaunchKind::graph) ++counted_graphs_;
      return;
    case Listening::counters: {
      std::string path = launch_path();
      const std::lock_guard lock(counters_mutex_);
      if (call.kind == LaunchKind::graph) ++graph_launches_;
      if (call.kind == LaunchKind::kernel)
        counter_launches_.push_back({call.correlation, std::string(call.symbol), std::move(path), call.grid});
      return;
    }
    case Listening::trace:
      trace_.launch(call, launch_path());
      return;
  }
}

void StepCollector::launch_alias(uint32_t correlation, uint32_t alias) {
  if (listening_ == Listening::trace) trace_.alias(correlation, alias);
}

void StepCollector::launch_ends(uint32_t correlation, LaunchKind kind, LaunchEnd end) {
  if (end == LaunchEnd::performed) return;
  if (listening_ == Listening::trace) trace_.launch_ended(correlation, end);
  if (listening_ == Listening::counting && kind == LaunchKind::kernel) --counted_launches_;
  if (listening_ == Listening::counting && kind == LaunchKind::graph) --counted_graphs_;
  if (listening_ != Listening::counters || kind != LaunchKind::kernel) return;
  const std::lock_guard lock(counters_mutex_);
  const auto it = std::find_if(counter_launches_.rbegin(), counter_launches_.rend(),
                               [&](const CounterLaunch& l) { return l.correlation == correlation; });
  if (it != counter_launches_.rend()) counter_launches_.erase(std::next(it).base());
}

void StepCollector::graph_node_created(uint64_t node) { trace_.node_created(node, launch_path()); }
void StepCollector::graph_node_cloned(uint64_t node, uint64_t original) { trace_.node_cloned(node, original); }

void StepCollector::activity(const ActivityEvent& event) {
  if (listening_ == Listening::trace) trace_.activity(event);
}

void StepCollector::lost(std::string_view what, int64_t n, std::string_view detail) { recorder_.count(what, n, detail); }

}  // namespace profiler::collect
