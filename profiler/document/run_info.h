// run.json ("stepscope.run/1") as a trainer wrote it: the numbers of the timed steps and the work of each op.
// Read leniently where a field is not needed here, strictly about the type of those that are.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

struct RunInfo {
  std::string command, trainer, device, matmul;
  int64_t layers = 0, heads = 0, channels = 0, vocab_size = 0, padded_vocab = 0, max_seq_len = 0;
  int64_t batch_size = 0, seq_len = 0, accumulation = 1, tokens_per_step = 0;
  std::optional<int64_t> parameters, seed;
  double model_flops = 0;
  std::map<std::string, std::string> variants;
  std::vector<std::string> data;
  std::map<std::string, double> memory_bytes;
  std::vector<RunStep> steps;  // in order
  std::vector<RunWork> work;
  std::string stopped;  // "" = ran to its end

  // The ceiling that bounds its matrix products: "bf16" for the mixed trainer, else `matmul`.
  std::string precision() const;
};

// Throws profiler::DataError naming `source` and the field.
RunInfo run_info_from_json(std::string_view text, const std::string& source);
RunInfo load_run_info(const std::string& path);

}  // namespace profiler
