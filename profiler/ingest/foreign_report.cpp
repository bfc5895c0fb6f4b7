#include "profiler/ingest/foreign_report.h"

#include <algorithm>
#include <string>
#include <vector>

namespace profiler {

std::optional<uint32_t> metric_index(const ForeignReport& report, std::string_view name) {
  const auto at = std::find(report.metrics.begin(), report.metrics.end(), name);
  return at == report.metrics.end() ? std::nullopt : std::optional(static_cast<uint32_t>(at - report.metrics.begin()));
}

std::optional<double> value_of(const ForeignResult& result, std::optional<uint32_t> metric) {
  if (!metric) return std::nullopt;
  for (const auto& [index, value] : result.values)
    if (index == *metric) return value;
  return std::nullopt;
}

std::string shown_before_damage(size_t results) {
  return results == 1 ? "the one result before it is shown" : "the " + std::to_string(results) + " results before it are shown";
}

namespace {

bool in_name(char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// Length of "(type)" at the beginning of `s` if a literal follows it, else 0.
size_t cast_length(std::string_view s) {
  size_t i = 1;
  while (i < s.size() && (in_name(s[i]) || s[i] == ':' || s[i] == ' ')) ++i;
  if (i < 2 || i + 1 >= s.size() || s[i] != ')') return 0;
  const char next = s[i + 1];
  return next == '-' || (next >= '0' && next <= '9') ? i + 1 : 0;
}

}  // namespace

std::string simplified_kernel_name(std::string_view demangled) {
  constexpr std::string_view kUnnamed = "<unnamed>";
  std::string name;
  name.reserve(demangled.size());
  for (size_t i = 0; i < demangled.size();) {
    if (demangled[i] == '(') {
      if (const size_t length = cast_length(demangled.substr(i))) {
        i += length;
        continue;
      }
    }
    if (!in_name(demangled[i])) {
      name += demangled[i++];
      continue;
    }
    // A chain of scopes: its first and last name stay, of those between only the unnamed ones.
    std::vector<std::string_view> chain;
    for (;;) {
      const size_t begin = i;
      if (demangled.substr(i).starts_with(kUnnamed))
        i += kUnnamed.size();
      else
        while (i < demangled.size() && in_name(demangled[i])) ++i;
      chain.push_back(demangled.substr(begin, i - begin));
      const std::string_view rest = demangled.substr(i);
      if (!rest.starts_with("::") || rest.size() < 3 || !(in_name(rest[2]) || rest.substr(2).starts_with(kUnnamed))) break;
      i += 2;
    }
    for (size_t k = 0; k < chain.size(); ++k) {
      if (k > 0 && k + 1 < chain.size() && chain[k] != kUnnamed) continue;
      if (k > 0) name += "::";
      name += chain[k];
    }
  }
  return name;
}

}  // namespace profiler
