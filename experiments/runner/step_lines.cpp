#include "experiments/runner/step_lines.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "base/errors.h"

namespace experiments {
namespace {

// The number must stand alone: the end of "1,234.5 ms" is not 234.5.
constexpr const char* kDefault = R"(^\s*step\b(?:.*?[^0-9.,a-z+-])?([-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|nan|inf)) *ms\b)";
// std::regex recurses per character: a progress bar of a megabyte would overflow the stack.
constexpr size_t kLongestSearchedLine = 4096;

}  // namespace

StepLines::StepLines(const std::string& pattern) : is_default_(pattern.empty()) {
  try {
    pattern_ = std::regex(pattern.empty() ? kDefault : pattern, std::regex::ECMAScript | std::regex::icase);
  } catch (const std::regex_error& e) {
    throw stepscope::InputError(fmt::format("--step-regex '{}': {}", pattern, e.what()));
  }
  if (pattern_.mark_count() < 1)
    throw stepscope::InputError(fmt::format("--step-regex '{}': expected a group, (…), around the milliseconds", pattern));
}

std::optional<StepLines::Step> StepLines::parse(const std::string& line) const {
  static const std::regex not_finite(R"((^|[^a-z0-9_])(-?nan|[-+]?inf(inity)?)($|[^a-z0-9_-]))",
                                     std::regex::ECMAScript | std::regex::icase);
  const std::string text = line.substr(0, kLongestSearchedLine);
  std::smatch match;
  if (!std::regex_search(text, match, pattern_)) return std::nullopt;
  static const std::regex another(R"([0-9.] *ms\b)", std::regex::ECMAScript | std::regex::icase);
  Step step;
  step.ambiguous = is_default_ && std::regex_search(match[0].second, text.cend(), another);
  const std::string number = match[1].str();
  char* end = nullptr;
  const double ms = std::strtod(number.c_str(), &end);
  if (end != number.c_str() && std::isfinite(ms) && ms > 0 && !std::regex_search(text, not_finite)) step.time_ns = ms * 1e6;
  return step;
}

}  // namespace experiments
