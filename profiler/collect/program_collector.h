// Collects from a program without step ranges, over its whole life, in two runs of the program: one with
// activity records, one with counters. Launches are numbered in launch order over the process; the two runs
// of a deterministic program agree in that number.
//
// The traps: kernels of a CUDA graph have no launch call, so in the activity run they are numbered after all
// direct launches, and in the counter run they cannot be counted at all (a graph launch inside an auto range
// breaks the session): the session stops before the graph launch and a new one starts at the next kernel
// launch. Sessions also end when full, because an image for a whole program would not fit; a session never
// switches while a stream is being captured, which a synchronization would break.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/collect/backend.h"
#include "profiler/collect/collector.h"
#include "profiler/collect/counted_sets.h"
#include "profiler/collect/recorder.h"
#include "profiler/collect/step_trace.h"
#include "profiler/records/collect_plan.h"

namespace profiler::collect {

// Ranges of NVTX, if the program has any, and the life of the recording.
class ProgramCollector : public Collector {
 public:
  ProgramCollector(const CollectPlan& plan, Backend& backend, Recorder& recorder) : plan_(plan), backend_(backend), recorder_(recorder) {}
  int range_push(uint64_t domain, std::string_view name) override { return thread_ranges().push(domain, name); }
  int range_pop(uint64_t domain) override;
  void process_ends() override;
  void abandon() override;
  void lost(std::string_view missing, int64_t count, std::string_view detail) override { recorder_.count(missing, count, detail); }
  void graph_node_created(uint64_t) override {}
  void graph_node_cloned(uint64_t, uint64_t) override {}

 protected:
  virtual void flush_at_end() = 0;
  void note(const Outcome& outcome);
  void describe_once();
  const CollectPlan plan_;
  Backend& backend_;
  Recorder& recorder_;
  std::atomic<bool> done_ = false;
  bool described_ = false;
};

class ProgramTracer : public ProgramCollector {
 public:
  using ProgramCollector::ProgramCollector;
  void cuda_ready() override;
  void launch_begins(const LaunchCall& call) override;
  void launch_alias(uint32_t correlation, uint32_t alias) override;
  void launch_ends(uint32_t correlation, LaunchKind kind, LaunchEnd end) override;
  void activity(const ActivityEvent& event) override;
  void context_ends(const void*) override {}
  void graph_node_created(uint64_t node) override;
  void graph_node_cloned(uint64_t node, uint64_t original) override;

 protected:
  void flush_at_end() override;

 private:
  struct Launch {
    LaunchKind kind;
    int64_t index;  // among the launch calls of the kind
    uint32_t path;
    int64_t host_ns;
    uint32_t records = 0;
  };
  void write(const ActivityEvent& event, Launch& launch);
  std::mutex mutex_;
  bool tracing_ = false;
  Interned paths_;
  std::unordered_map<std::string, std::string> names_;
  std::unordered_map<uint32_t, Launch> launches_;
  std::unordered_map<uint32_t, uint32_t> aliases_;
  std::deque<uint32_t> order_;
  NodePaths node_paths_;
  std::unordered_multimap<uint32_t, std::pair<ActivityEvent, std::string>> early_;
  std::array<int64_t, 3> next_{};  // index of the next direct kernel, copy, memset
  std::array<int64_t, 3> beyond_limit_{};
  std::vector<LaunchRecord> of_graphs_;  // numbered at the end
};

class ProgramCounter : public ProgramCollector {
 public:
  static constexpr int64_t kSessionRanges = 512;
  ProgramCounter(const CollectPlan& plan, Backend& backend, Recorder& recorder, int64_t session_ranges = kSessionRanges);
  void cuda_ready() override;
  void launch_begins(const LaunchCall& call) override;
  void launch_alias(uint32_t, uint32_t) override {}
  void launch_ends(uint32_t correlation, LaunchKind kind, LaunchEnd end) override;
  void activity(const ActivityEvent&) override {}
  void context_ends(const void* context) override;
  void capture_changed(int change) override;

 protected:
  void flush_at_end() override;

 private:
  struct Pending {
    uint32_t correlation;
    int64_t index;
    std::string symbol, path;
    std::array<int64_t, 3> grid;
  };
  void enable(const void* context);
  void start_session();
  void end_session();

  const std::vector<Quantity> wanted_;
  const int64_t session_ranges_;
  std::recursive_mutex mutex_;
  bool tried_ = false, enabled_ = false, session_ = false;
  const void* context_ = nullptr;
  int64_t captures_ = 0;
  int64_t next_index_ = 0;
  int64_t failed_sessions_ = 0;
  std::optional<CountedSets> sets_;  // there from the first session that could be read
  double setup_ns_ = 0, run_ns_ = 0, decode_ns_ = 0;
  int64_t session_begin_ns_ = 0;
  std::vector<Pending> pending_;
};

}  // namespace profiler::collect
