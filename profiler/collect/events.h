// What happens in the profiled process, as plain values: launches seen by callbacks on the launching thread,
// and activity records read from CUPTI's buffers on some other thread, later, in any order. The border
// between CUPTI and the pure logic of this folder.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "profiler/records/records.h"

namespace profiler::collect {

enum class LaunchKind : int { kernel, graph, copy, memset };

struct LaunchCall {
  LaunchKind kind = LaunchKind::kernel;
  uint32_t correlation = 0;
  const void* context = nullptr;  // CUcontext, an identity only
  std::string_view symbol;        // mangled; valid during the call
  std::array<int64_t, 3> grid{};  // 0 when the call does not say
  std::array<int64_t, 3> block{};
  int64_t host_ns = 0;
};

// How a launch call ended. Only a performed one ran on the GPU: a failed one did not, a captured one became a
// graph node.
enum class LaunchEnd : int { performed, failed, captured };

struct ActivityEvent {
  Activity activity = Activity::kernel;
  uint32_t correlation = 0;
  uint64_t graph_node = 0;  // 0: not from a graph; else exec graph in the upper half, node in the lower
  std::string_view name;    // mangled kernel name, or "copy HtoD"; valid during the call
  int64_t start_ns = 0, end_ns = 0;
  int64_t device = 0, stream = 0;
  std::array<int64_t, 3> grid{};
  std::array<int64_t, 3> block{};
  int64_t registers = 0, shared_static_bytes = 0, shared_dynamic_bytes = 0;
  int64_t bytes = 0;
};

// Hears everything. Called from CUPTI callbacks and worker threads: must neither throw nor call CUDA unless
// it says so.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void launch_begins(const LaunchCall& call) = 0;
  // The same launch under a second id: a runtime call nests a driver call, and either id may appear in the
  // activity record.
  virtual void launch_alias(uint32_t correlation, uint32_t alias) = 0;
  virtual void launch_ends(uint32_t correlation, LaunchKind kind, LaunchEnd end) = 0;
  // A node was made on this thread (during capture), or copied from another (instantiation).
  virtual void graph_node_created(uint64_t node) = 0;
  virtual void graph_node_cloned(uint64_t node, uint64_t original) = 0;
  virtual void activity(const ActivityEvent& event) = 0;
  virtual void lost(std::string_view missing, int64_t count, std::string_view detail) = 0;
  virtual void context_ends(const void* context) = 0;
  // A stream capture opened (+1) or closed (-1).
  virtual void capture_changed(int) {}
};

// CLOCK_MONOTONIC, the clock of every time in a recording.
int64_t now_ns();
// _Z4axpyPfPKfm → axpy(float*, float const*, unsigned long); the text itself when it is no mangled name.
std::string demangle(std::string_view symbol);

// From the name of a CUDA API function, as CUPTI spells it ("cudaLaunchKernel_ptsz_v7000",
// "cuMemcpyHtoDAsync_v2"), to what it launches; nullopt = nothing that runs on the GPU.
std::optional<LaunchKind> launch_kind_of_api(std::string_view function);
// +1 the function opens a stream capture, -1 it closes one, 0 neither.
int capture_change_of_api(std::string_view function);

// One API call may show as two nested callbacks (runtime and driver). Per thread: decides which callback is
// the launch.
class CallNesting {
 public:
  struct Entered {
    bool is_launch = false;                 // tell the observer
    std::optional<uint32_t> alias_of;       // this id is another name of that launch
    std::optional<uint32_t> earlier_alias;  // an outer call's id, to be made an alias of this launch
  };
  // `usable`: the callback says which context the launch goes to (the first runtime call of a thread may not
  // know yet).
  Entered enter(uint32_t correlation, bool usable);
  struct Left {
    bool outermost = false;
    std::optional<uint32_t> launch;  // reported correlation id, when this exit ends it
    bool captured = false;
  };
  Left exit();
  void node_created() { captured_ = depth_ > 0; }
  // The id under which the open launch was reported.
  std::optional<uint32_t> open_launch() const { return launch_; }

 private:
  int depth_ = 0;
  bool captured_ = false;
  std::optional<uint32_t> launch_;
  std::optional<uint32_t> outer_;
};

}  // namespace profiler::collect
