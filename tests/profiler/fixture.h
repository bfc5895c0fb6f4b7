// A hand-made recording of a small GPT-2 step on an invented GPU: every duration and counter is a round
// number, so that tests can state sums that were added up on paper. No GPU wrote any of it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "profiler/attribute/attribution.h"
#include "profiler/document/build_profile.h"
#include "profiler/recording/recording.h"

namespace fixture {

struct Kernel {
  std::string path;  // below "step/"; "" = outside every range
  std::string name;
  int64_t duration_ns;
  double read_bytes, write_bytes, tensor_pct;
};

// One stream (7), kernels back to back with 1000 ns between them, from time 1'000'000'000 on, over one traced
// step (number 12). Counters in the set "core", one per kernel, SM cycles = duration in ns (a clock of 1
// GHz).
profiler::Recording recording(const std::vector<Kernel>& kernels);

// The step of the golden files: 2 layers, 20 kernels, a memset, a copy; 3 traced steps; environment samples;
// whole-pass counters.
std::vector<Kernel> gpt2_kernels();
profiler::Recording gpt2_recording();
profiler::RunInfo gpt2_run();

// The same step on a CPU: ops instead of kernels, no counters.
profiler::Recording cpu_recording();
profiler::RunInfo cpu_run();

// 1000 GB/s copy, 1000 read, 1000 write; matmul 10, 40, 80 TFLOP/s.
profiler::Ceilings round_ceilings();
profiler::AttributionInput input();
profiler::ProfileOptions options();  // 10 warm-up steps, 8 timed ones

bool is_missing(const std::vector<profiler::MissingRecord>& list, const std::string& name);
const profiler::MissingRow* missing_row(const profiler::ProfileDocument& document, const std::string& name);
const profiler::Group* pass_group(const profiler::Attribution& a, const std::string& pass);

}  // namespace fixture
