// run.json ("stepscope.run/1") as a trainer wrote it: the numbers of the timed steps and the work of each op.
// What was run stands in base/run_fields.h. Read leniently where a field is not known here (a younger trainer wrote it),
// strictly about the type of those that are.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/run_fields.h"

namespace profiler {

struct RunStep {
  int64_t step = 0;
  std::optional<double> loss, grad_norm;  // absent: not finite
  double time_ns = 0;
};
struct RunWork {
  std::string path;  // "backward/11/attention"
  double flops = 0, min_bytes = 0;
};

struct RunInfo : stepscope::RunFields {
  std::map<std::string, double> memory_bytes;
  std::vector<RunStep> steps;  // in order
  std::vector<RunWork> work;
  std::string stopped;          // "" = ran to its end
  int64_t rank = 0, ranks = 1;  // which of how many processes wrote it

  // The ceiling that bounds its matrix products: "bf16" for the mixed trainer, else `matmul`.
  std::string precision() const;
};

// Throws stepscope::InputError naming `source` and the field.
RunInfo run_info_from_json(std::string_view text, const std::string& source);
RunInfo load_run_info(const std::string& path);

}  // namespace profiler
