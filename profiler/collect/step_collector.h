// Collects from a program whose training steps are NVTX ranges: each step begins and ends in a callback on
// the launching thread, and there the phases are switched (phase_machine.h). Nothing is on between phases: a
// timed step costs a few NVTX callbacks.
//
// The order matters: counters before activity, because kernel tracing patches the kernels and the counters
// would count the patch.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "profiler/collect/backend.h"
#include "profiler/collect/collector.h"
#include "profiler/collect/phase_machine.h"
#include "profiler/collect/recorder.h"
#include "profiler/collect/step_trace.h"
#include "profiler/records/collect_plan.h"

namespace profiler::collect {

class StepCollector : public Collector {
 public:
  struct Hooks {
    // Once, in the first step that finds a CUDA device; where none does, at the end, without one. E.g. starts sampling the environment.
    std::function<void(const SessionRecord&)> described;
    std::function<void(Phase)> phase;
    std::function<void()> finished;
  };
  // `backend` and `recorder` outlive the collector. `one_of_several`: a rank, whose recording is joined with others. Throws
  // std::runtime_error for a plan that cannot be followed.
  StepCollector(const CollectPlan& plan, Backend& backend, Recorder& recorder, Hooks hooks, bool one_of_several = false);

  int range_push(uint64_t domain, std::string_view name) override;
  int range_pop(uint64_t domain) override;
  void cuda_ready() override {}
  void process_ends() override;
  void abandon() override;

  void launch_begins(const LaunchCall& call) override;
  void launch_alias(uint32_t correlation, uint32_t alias) override;
  void launch_ends(uint32_t correlation, LaunchKind kind, LaunchEnd end) override;
  void graph_node_created(uint64_t node) override;
  void graph_node_cloned(uint64_t node, uint64_t original) override;
  void activity(const ActivityEvent& event) override;
  void lost(std::string_view missing, int64_t count, std::string_view detail) override;
  void context_ends(const void* context) override;

  bool done() const { return done_; }

 private:
  enum class Listening : int { nothing, counting, counters, trace };
  struct CounterLaunch {
    uint32_t correlation;
    std::string symbol, path;
    std::array<int64_t, 3> grid;
  };

  void describe_once(bool last);
  void begin_step(const RangeStack& ranges);
  void end_step();
  void begin_counters(bool user_ranges);
  int64_t kernel_ranges() const;
  void end_kernel_counters();
  void end_pass_counters();
  void begin_activity();
  void end_activity();
  bool usable(const std::string& set, const SessionValues& values, int64_t expected);
  void enter_pass(std::string_view pass);
  void leave_pass();
  bool wants_traces() const;
  void finish();
  void remember_name(std::string_view name);
  std::string other_names();
  std::string launch_path();
  void note(const Outcome& outcome);

  const CollectPlan plan_;
  const std::vector<Quantity> wanted_;
  Backend& backend_;
  Recorder& recorder_;
  Hooks hooks_;
  PhaseMachine machine_;
  StepTrace trace_;
  std::unique_ptr<RecordingWriter> raw_;

  std::mutex step_mutex_;  // phases switch under it
  std::atomic<bool> step_open_ = false;
  std::atomic<bool> done_ = false;
  std::atomic<Listening> listening_ = Listening::nothing;
  std::atomic<bool> passes_wanted_ = false;
  std::thread::id step_thread_;
  uint64_t step_serial_ = 0;
  std::mutex path_mutex_;
  std::string step_path_;

  std::atomic<const void*> context_ = nullptr;  // of the newest launch: the thread of the steps may have none of its own
  std::atomic<bool> machine_unused_ = true;     // no step yet
  std::set<std::string> names_seen_;

  StepOrders orders_;
  StepRecord step_;
  bool described_ = false;
  bool counters_on_ = false, session_on_ = false, tracing_on_ = false, traced_ = false;
  int64_t traced_steps_ = 0;
  std::atomic<int64_t> counted_launches_ = 0, counted_graphs_ = 0;  // of the warm-up step that sizes the counter image
  int64_t pass_changes_ = 0, most_pass_changes_ = 0;
  bool passes_counted_ = false;
  std::string pass_;
  std::map<std::string, int> passes_seen_;
  int64_t setup_begin_ns_ = 0, setup_ns_ = 0, run_begin_ns_ = 0;
  std::map<std::string, int> sets_written_;
  std::mutex counters_mutex_;
  std::vector<CounterLaunch> counter_launches_;
  int64_t graph_launches_ = 0;
};

}  // namespace profiler::collect
