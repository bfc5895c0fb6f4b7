// The recorded results of a frozen baseline, RESULTS.json in its folder: what it did, on which device, by
// which command. Recorded once on a real device before the folder is frozen, and frozen with it.
//
//   {"schema": "stepscope.baseline-results/1",
//    "results": [{"date": "YYYY-MM-DD", "device": …, "driver": …, "cuda": …, "command": …,
//                 "batch_size": 4, "seq_len": 1024, "matmul": "tf32", "steps": …, "step_time_ns": …,
//                 "tokens_per_s": …, "note": … (optional)}]}
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace experiments {

inline constexpr const char* kResultsFile = "RESULTS.json";
inline constexpr const char* kResultsSchema = "stepscope.baseline-results/1";

struct BaselineResult {
  std::string date, device, driver, cuda, command, matmul, note;
  int64_t batch_size = 0;
  int64_t seq_len = 0;
  int64_t steps = 0;        // measured, without warm-up
  double step_time_ns = 0;  // median
  double tokens_per_s = 0;  // batch_size * seq_len / step_time; the reader refuses a pair that disagrees by more than 1%
};

// nullopt: nothing was recorded. Throws stepscope::InputError naming the file and the field when it is
// malformed.
std::optional<std::vector<BaselineResult>> read_results(const std::filesystem::path& folder);

}  // namespace experiments
