// Which of cuDNN's plans for an attention is taken: the measurement's rule and its memory, apart from cuDNN so that both are tested
// without it.
#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mixed {

// times[c][r]: what a launch of candidate c took in round r, in any one unit; candidate 0 is the library's first choice. Every candidate
// has the same rounds, in which all ran in turns. Returns the candidate to take: another than 0 only where it was faster in all rounds
// but at most one, and by more than 1% in the median of the rounds' ratios. A tie, or a difference that noise could have made, leaves
// the library its choice, so that two processes rarely differ. Throws std::invalid_argument for no candidates, no rounds or rounds that
// differ in number.
size_t fastest_beyond_noise(const std::vector<std::vector<double>>& times);

// Names of plans that a search chose, kept between processes in one file per (device, cuDNN version). A damaged, foreign or unwritable
// file is the same as none.
class AttentionPlanCache {
 public:
  // `file` empty: remembers within the process only.
  explicit AttentionPlanCache(std::filesystem::path file);
  // `problem`: direction and shape, "forward of B=4 T=1024 C=768 NH=12".
  std::optional<std::string> find(const std::string& problem) const;
  // Writes at once; never throws: a cache that cannot be written costs the next run its search, nothing else.
  void remember(const std::string& problem, const std::string& plan, double time_us, double first_time_us) noexcept;

 private:
  struct Choice {
    std::string plan;
    double time_us = 0, first_time_us = 0;
  };
  std::filesystem::path file_;
  std::map<std::string, Choice> known_;
};

// Where the cache of a device and a cuDNN version lies: attention-DEVICE-cudnn-VERSION.json in stepscope::cache_folder(). Empty without
// one.
std::filesystem::path attention_plan_cache_file(const std::string& device, const std::string& cudnn_version);

}  // namespace mixed
