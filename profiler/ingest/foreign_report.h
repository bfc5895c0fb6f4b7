// What a report of another tool holds, whichever file it came from: Nsight Compute's .ncu-rep, its CSV, Nsight Systems' SQLite export.
// Readers fill it, to_recording.h turns it into the records that our own collector writes, and from there on nothing knows the difference.
//
// Values are in base units (bytes, ns, Hz, %), whatever the file was printed in. A metric that a result does not have is simply not
// among its values; it is never 0.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/records/records.h"

namespace profiler {

// What one result stands for. A range or a graph is several kernels measured as one.
enum class ForeignKind { kernel, range, graph, command_list, copy, memset };

struct ForeignResult {
  ForeignKind kind = ForeignKind::kernel;
  std::string name;  // of a kernel as ncu's CSV prints it: see simplified_kernel_name
  std::string path;  // open push/pop ranges of the launching thread, outermost first, joined by '/'
  int64_t process = 0, thread = 0, context = 0, stream = 0, device = 0;
  std::array<int64_t, 3> grid{}, block{};
  int64_t registers = -1, shared_static_bytes = -1, shared_dynamic_bytes = -1;  // -1: it does not tell, unless a metric does
  int64_t bytes = 0;                                                            // of a copy or memset
  int64_t graph_node = 0;                                                       // 0: not from a CUDA graph
  int64_t start_ns = 0, end_ns = 0;                     // a trace has them; 0: only a duration is known, as a metric
  int64_t step = -1;                                    // which step range it was launched in, where the report tells
  std::vector<std::pair<uint32_t, double>> values;      // index into ForeignReport::metrics, base units
  std::vector<std::pair<uint32_t, std::string>> texts;  // metrics whose value is a text
  std::vector<uint32_t> no_value;  // metrics for which the report says "n/a", NaN, nothing, or only values per instance
};

// What a report says of one of its processes: `--process` asks for one, and then nothing of another may stand in the document.
struct ForeignProcess {
  std::string program;                        // "": the report does not tell
  std::map<std::string, std::string> device;  // as SessionRecord::device; of several GPUs that of its first kernel
  std::map<int64_t, std::string> gpus;        // ForeignResult::device -> name, where no metric of the result names its GPU
  std::vector<MissingRecord> missing;         // of its own results alone
};

struct ForeignReport {
  std::string tool;                             // "ncu" | "nsys": the producer of the recording
  std::string form;                             // "ncu-rep" | "ncu CSV, raw" | "ncu CSV, details" | "nsys SQLite"
  std::string source;                           // file name, for messages
  std::map<std::string, std::string> versions;  // as SessionRecord::versions
  std::vector<std::string> metrics;
  std::vector<ForeignResult> results;           // in launch order
  std::vector<StepRecord> steps;                // of a trace with step ranges
  bool has_ranges = false;                      // NVTX state was collected
  std::map<int64_t, ForeignProcess> processes;  // by id
  std::vector<MissingRecord> missing;           // of the report as a whole
};

// The value of a metric of one result; names are looked up once, not per result.
std::optional<uint32_t> metric_index(const ForeignReport& report, std::string_view name);
std::optional<double> value_of(const ForeignResult& result, std::optional<uint32_t> metric);

// Of a damaged report: "the 5 results before it are shown".
std::string shown_before_damage(size_t results);

// What ncu's CSV prints for the demangled name that its report stores: no casts before literals, of a chain of scopes the first and the
// last. "void a::b::f<(int)4, (a::b::E)1>(float *)" -> "void a::f<4, 1>(float *)".
std::string simplified_kernel_name(std::string_view demangled);

}  // namespace profiler
