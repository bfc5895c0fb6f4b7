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

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_separator(char c) { return c == ',' || c == '\'' || c == '_'; }

// Whether the number in the group of a user's pattern begins before the match, or goes on where strtod stopped. A separator that the pattern
// names, as between the columns of a table, is the user's.
bool is_part_of_a_number(const std::smatch& match, const char* rest) {
  if ((is_separator(rest[0]) || rest[0] == '.') && is_digit(rest[1])) return true;
  const std::string before = match.prefix();
  return match[1].first == match[0].first && before.size() >= 2 && is_separator(before.back()) && is_digit(before[before.size() - 2]);
}

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
  // Left out as no step's, such lines would be those of the slow steps: a program that writes 1,000.0 writes 999.9 too.
  static const std::regex separated(R"(^\s*step\b.*[0-9][,'_][0-9][0-9.]* *ms\b)", std::regex::ECMAScript | std::regex::icase);
  if (is_default_ && std::regex_search(text, separated)) return Step{.time_ns = std::nullopt, .ambiguous = false, .separated = true};
  std::smatch match;
  if (!std::regex_search(text, match, pattern_)) return std::nullopt;
  static const std::regex another(R"([0-9.] *ms\b)", std::regex::ECMAScript | std::regex::icase);
  Step step;
  step.ambiguous = is_default_ && std::regex_search(match[0].second, text.cend(), another);
  const std::string number = match[1].str();
  char* end = nullptr;
  const double ms = std::strtod(number.c_str(), &end);
  step.separated = !is_default_ && is_part_of_a_number(match, end);
  if (end != number.c_str() && std::isfinite(ms) && ms > 0 && !std::regex_search(text, not_finite)) step.time_ns = ms * 1e6;
  return step;
}

}  // namespace experiments
