// What a collector hands on: plain owned values, no vendor types, no pointers into vendor buffers. From here
// on no GPU, no CUDA header and no lock is needed. Times are nanoseconds of CLOCK_MONOTONIC on the machine
// that recorded; sizes are bytes.
//
// The vocabulary of a step: kernels of a step are numbered 0, 1, … in launch order over all streams
// ("index"). The trainer is deterministic, so index i of one step and index i of the next are the same
// launch; attribution checks that they are.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace profiler {

enum class Activity : int { kernel, copy, memset, cpu_op };
enum class Phase : int { warmup, timed, activity, counters, pass_counters, program };

// Who and where. One per recording.
struct SessionRecord {
  std::string producer;  // "cupti" | "cpu"
  std::string program;   // command line of the profiled process
  int64_t pid = 0;
  std::map<std::string, std::string> device;    // name, uuid, chip, sm_count, l2_bytes, memory_bytes, compute_capability
  std::map<std::string, std::string> versions;  // driver, cuda_runtime, cupti
};

// Which of how many processes of one run wrote this recording. Absent in the recording of a run of one process.
struct RankRecord {
  int64_t rank = 0, size = 1;  // 0 <= rank < size, size >= 2
  std::string job;             // the same on all ranks of one run
  std::string host;
  std::string boot_id, time_namespace;  // equal in two recordings: their clocks are one clock
  std::string build;                    // build id of the executable
};

// One GPU operation. A collector that sees many steps writes each launch of one traced step in full
// ("launch" lines; shown_step.h says of which) and per-index statistics over all traced steps ("stats"); the raw trace (every launch of
// every step) is opt-in.
struct LaunchRecord {
  Activity activity = Activity::kernel;
  int64_t step = -1;   // -1: the program has no steps
  int64_t index = -1;  // position among the kernels of the step, or among its copies, or among its memsets
  std::string name;    // demangled kernel name; "copy HtoD", "memset"
  std::string path;    // open ranges when launched, outermost first, joined by '/'; "" = none
  int64_t stream = 0;
  int64_t device = 0;
  std::array<int64_t, 3> grid{};
  std::array<int64_t, 3> block{};
  int64_t registers = 0;  // per thread; of a kernel, here and below -1: the report of another tool does not tell
  int64_t shared_static_bytes = 0;
  int64_t shared_dynamic_bytes = 0;
  int64_t correlation = 0;
  int64_t graph_node = 0;  // 0 = not from a CUDA graph
  int64_t launch_ns = 0;   // host time of the launch call; 0 unknown
  int64_t start_ns = 0;    // 0 = lost (counted as missing)
  int64_t end_ns = 0;
  int64_t bytes = 0;  // of a copy or memset
};

// Durations of one index over all traced steps.
struct LaunchStats {
  Activity activity = Activity::kernel;
  int64_t index = -1;
  int64_t samples = 0;
  double median_ns = 0, mean_ns = 0, min_ns = 0, max_ns = 0;
};

struct StepRecord {
  int64_t step = -1;  // 0-based count of step ranges seen in the process
  Phase phase = Phase::warmup;
  int64_t host_begin_ns = 0, host_end_ns = 0;
  int64_t gpu_begin_ns = 0,
          gpu_end_ns = 0;  // first start and last end of the step's operations; 0 when not traced
  int64_t kernels = 0, copies = 0, memsets = 0;
};

// Hardware counters of one kernel (index >= 0) or of one pass (index == -1, pass set). values[i] belongs to
// metrics[i] of the CounterSet with the same name. NaN is never stored: a failed set is a MissingRecord
// instead.
struct CounterSet {
  std::string name;                                // "core"
  std::vector<std::string> metrics;                // CUPTI metric names
  double setup_ns = 0, run_ns = 0, decode_ns = 0;  // what collecting it cost
  int64_t launches = 0, ranges = 0;                // both must be equal, or the set is not used
};
struct CounterRecord {
  std::string set;
  int64_t step = -1;
  int64_t index = -1;
  std::string pass;
  std::string kernel;  // name at launch, to check against the timing run
  std::string path;
  std::array<int64_t, 3> grid{};
  std::vector<double> values;
};

// NVML, about every 20 ms while the steps run.
struct EnvironmentSample {
  int64_t time_ns = 0;
  Phase phase = Phase::warmup;
  double sm_clock_mhz = 0, memory_clock_mhz = 0, power_w = 0, temperature_c = 0;
  uint64_t throttle_reasons = 0;  // nvmlClocksEventReasons bits
};

// The GPU's energy counter when it changed. It moves in jumps, about ten a second, so that single readings say little.
struct EnergySample {
  int64_t time_ns = 0;     // the middle of the two readings between which it changed
  uint64_t energy_mj = 0;  // since the driver was loaded
};

// Something that was lost or could not be had. `name` is one of profiler/records/missing.h.
struct MissingRecord {
  std::string name;
  int64_t count = 1;
  std::string detail;
};

}  // namespace profiler
