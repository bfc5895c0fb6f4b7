#include "profiler/ingest/foreign_report.h"

#include <algorithm>
#include <array>

namespace profiler {

std::optional<uint32_t> metric_index(const ForeignReport& report, std::string_view name) {
  const auto at = std::find(report.metrics.begin(), report.metrics.end(), name);
  return at == report.metrics.end() ? std::nullopt
                                    : std::optional(static_cast<uint32_t>(at - report.metrics.begin()));
}

std::optional<double> value_of(const ForeignResult& result, std::optional<uint32_t> metric) {
  if (!metric) return std::nullopt;
  for (const auto& [index, value] : result.values)
    if (index == *metric) return value;
  return std::nullopt;
}

std::string simplified_kernel_name(std::string_view demangled) {
  static constexpr std::array<std::string_view, 12> kCasts = {
      "(int)",  "(bool)",          "(unsigned int)",       "(long)", "(unsigned long)", "(long long)",
      "(char)", "(unsigned char)", "(unsigned long long)", "(short)", "(unsigned short)", "(signed char)"};
  std::string name;
  name.reserve(demangled.size());
  for (size_t i = 0; i < demangled.size();) {
    // A cast stands before a literal; "(int)" as the whole parameter list of a function stands before nothing.
    const auto cast = std::find_if(kCasts.begin(), kCasts.end(), [&](std::string_view c) {
      const size_t behind = i + c.size();
      return demangled[i] == '(' && demangled.substr(i, c.size()) == c && behind < demangled.size() &&
             (demangled[behind] == '-' || (demangled[behind] >= '0' && demangled[behind] <= '9'));
    });
    if (cast != kCasts.end()) {
      i += cast->size();
      continue;
    }
    name += demangled[i++];
  }
  return name;
}

}  // namespace profiler
