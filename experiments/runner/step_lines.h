// Step times in what a program prints. By default a line that begins with "step" and holds a number followed
// by "ms" (ours, llm.c's and the frozen baselines' are such lines); with a pattern of the user, its first
// group is milliseconds.
#pragma once
#include <optional>
#include <regex>
#include <string>

namespace experiments {

class StepLines {
 public:
  // "" = the default. Throws stepscope::InputError for a pattern that does not compile or has no group.
  explicit StepLines(const std::string& pattern);

  struct Step {
    std::optional<double> time_ns;  // absent: the line holds NaN or infinity, where a number belongs or anywhere else
    bool ambiguous = false;         // without a pattern of the user: another number of ms follows
    bool separated = false;         // "1,234.5", "1'234.5", "1_234.5" or "25,7": only a part of it would be read
  };
  // nullopt: not a step line.
  std::optional<Step> parse(const std::string& line) const;

 private:
  std::regex pattern_;
  bool is_default_;
};

}  // namespace experiments
