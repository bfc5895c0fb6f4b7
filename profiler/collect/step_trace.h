// Kernel, copy and memset records of the traced steps, matched to their launches and aggregated while they
// stream: memory is bounded by the operations of a few steps, however many steps are traced. Thread-safe.
//
// An operation is identified by (ordinal of its launch call in the step, node of the graph if the call
// launched one); positions per kind ("index") are given at the end by sorting these, so that they do not
// depend on the order in which records arrive. The trap: records come late, in any order, even before their
// launch was entered; only the correlation id tells whose they are.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/collect/events.h"
#include "profiler/records/records.h"

namespace profiler::collect {

// Strings by number; each distinct one is kept once. Not thread-safe.
class Interned {
 public:
  uint32_t id(std::string_view text);
  const std::string& text(uint32_t id) const { return texts_[id]; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> ids_;
  std::deque<std::string> texts_;
};

// Which ranges were open when the nodes of CUDA graphs were made, by the number of their path. Not thread-safe.
class NodePaths {
 public:
  void created(uint64_t node, uint32_t path);
  void cloned(uint64_t node, uint64_t original);  // keeps the path of the node that it was made from
  std::optional<uint32_t> of(uint64_t node) const;
  int64_t most_of_a_graph() const;  // nodes, of the graph that has most of them

 private:
  std::unordered_map<uint64_t, uint32_t> paths_;
};

// Durations of one operation over all steps: exact count, mean, min, max; the median is of at most kReservoir
// samples.
class DurationSample {
 public:
  static constexpr size_t kReservoir = 64;
  void add(int64_t ns);
  LaunchStats stats() const;

 private:
  int64_t count_ = 0, min_ = 0, max_ = 0;
  double sum_ = 0;
  uint64_t random_ = 0x9e3779b97f4a7c15ull;
  std::vector<int64_t> kept_;
};

class StepTrace {
 public:
  struct Limits {
    size_t launches = 1u << 18;   // correlation ids remembered; older ones are forgotten
    size_t early_records = 4096;  // records waiting for their launch
    size_t steps = 64;            // steps whose records may still be on their way
    size_t full_steps = 8;        // steps kept launch by launch
  };
  StepTrace() : StepTrace(Limits{}) {}
  explicit StepTrace(Limits limits, bool one_of_several = false) : limits_(limits), one_of_several_(one_of_several) {}

  // `raw` gets every operation of every kept step as it comes; its index is the launch call's position among
  // the calls of its kind.
  void set_raw_sink(std::function<void(const LaunchRecord&)> raw) { raw_ = std::move(raw); }

  // Steps that are not kept (warm-up with tracing on) are matched and dropped.
  void begin_step(const StepRecord& step, bool kept);
  void end_step(int64_t step, int64_t host_end_ns);

  void launch(const LaunchCall& call, std::string_view path);  // into the open step
  void alias(uint32_t correlation, uint32_t alias);
  void launch_ended(uint32_t correlation, LaunchEnd end);
  void node_created(uint64_t node, std::string_view path);
  void node_cloned(uint64_t node, uint64_t original);
  int64_t most_nodes_of_a_graph() const;
  void activity(const ActivityEvent& event);
  void lost(std::string_view missing, int64_t count, std::string_view detail);

  struct Result {
    std::vector<LaunchRecord> launches;  // of the step that is shown (shown_step.h), sorted by kind and index
    std::vector<LaunchStats> stats;
    std::vector<StepRecord> steps;  // of the kept steps not yet taken
    std::vector<MissingRecord> missing;
  };
  std::vector<StepRecord> take_old_steps();  // those whose records can no longer be on their way
  Result finish();

 private:
  struct Key {
    int64_t ordinal;
    uint32_t node;
    auto operator<=>(const Key&) const = default;
  };
  struct Launch {
    int64_t step = -1;
    int64_t ordinal = 0;
    LaunchKind kind{};
    int64_t index_of_kind = 0;
    uint32_t path = 0;
    int64_t host_ns = 0;
    bool kept = false;
    uint32_t records = 0;  // that came for it
  };
  struct Operation {
    LaunchRecord record;  // without name and path
    uint32_t name = 0, path = 0;
    bool recorded = false;
  };
  struct Open {
    StepRecord step;
    bool kept = false;
    int64_t ordinals = 0;
    std::array<int64_t, 4> of_kind{};
  };
  struct Seen {
    uint32_t name = 0;
    Activity activity{};
    DurationSample durations;
  };

  void remember(uint32_t correlation, const Launch& launch);
  Launch* find(uint32_t correlation);
  bool take(const ActivityEvent& event);  // false: no launch with this id yet
  uint32_t path_of(const Launch& launch, const ActivityEvent& event);
  static void add_to_step(StepRecord& step, const Launch& launch, const ActivityEvent& event, bool timed);
  void add_duration(const Key& key, uint32_t name, const ActivityEvent& event);
  static LaunchRecord record_of(const Launch& launch, const ActivityEvent& event, bool timed);  // without name, path and index
  std::map<Key, Operation>* full_step(int64_t step);
  StepRecord* step_record(int64_t step);
  void count(std::string_view missing, int64_t n, std::string_view detail);

  mutable std::mutex mutex_;
  Limits limits_;
  bool one_of_several_;  // ranks
  std::function<void(const LaunchRecord&)> raw_;
  Interned names_, paths_;
  std::unordered_map<uint32_t, std::string> demangled_;
  Open open_;
  bool step_open_ = false;
  std::unordered_map<uint32_t, Launch> launches_;
  std::unordered_map<uint32_t, uint32_t> aliases_;
  std::deque<uint32_t> launch_order_;
  struct Early {
    ActivityEvent event;
    std::string name;
  };
  std::unordered_multimap<uint32_t, Early> early_;
  std::map<int64_t, StepRecord> steps_;  // kept ones
  int64_t newest_step_ = -1;
  std::map<int64_t, std::map<Key, Operation>> full_;
  std::map<Key, Seen> seen_;
  NodePaths node_paths_;
  std::map<std::pair<std::string, std::string>, int64_t> missing_;
};

}  // namespace profiler::collect
