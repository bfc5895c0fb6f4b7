#include "profiler/report/cells.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace profiler {
namespace {

std::string scaled(const std::optional<double>& value, double scale, int digits) {
  return value ? fmt::format("{:.{}f}", *value * scale, digits) : "-";
}

}  // namespace

std::string milliseconds(const std::optional<double>& ns) {
  if (!ns) return "-";
  const double v = *ns / 1e6, size = std::fabs(v);
  return fmt::format("{:.{}f}", v, size >= 1000 ? 1 : size >= 10 ? 2 : 3);
}

std::string thousands(double v) {
  return v >= 1e6 ? fmt::format("{:.2f}M", v / 1e6) : v >= 1e4 ? fmt::format("{:.1f}k", v / 1e3) : fmt::format("{:.0f}", v);
}

std::string change_in_milliseconds(double ns) { return fmt::format("{:+.3f}", ns * 1e-6); }

std::string percent(const std::optional<double>& pct) { return scaled(pct, 1, 1); }

std::string text_of(Format format, const std::optional<double>& value) {
  switch (format) {
    case Format::milliseconds:
      return milliseconds(value);
    case Format::seconds:
      return scaled(value, 1e-9, 1);
    case Format::thousands:
      return value ? thousands(*value) : "-";
    case Format::percent:
    case Format::tensor:
      return percent(value);
    case Format::in_brackets:
      return value ? fmt::format("({:.0f}%)", *value) : "";
    case Format::gigabytes:
      return scaled(value, 1e-9, 2);
    case Format::megabytes:
      return scaled(value, 1e-6, 1);
    case Format::gigabytes_per_s:
      return scaled(value, 1e-9, 0);
    case Format::megahertz:
      return scaled(value, 1e-6, 0);
    case Format::joules:
      return scaled(value, 1, 2);
    case Format::millijoules:
      return scaled(value, 1e3, 1);
    case Format::word:
    case Format::count:
    case Format::launches:
    case Format::watts:
      break;
  }
  return scaled(value, 1, 0);
}

std::string tensor_cell(const Numbers& n) {
  if (n.tensor_active_pct || !n.tensor_instructions) return percent(n.tensor_active_pct);
  constexpr std::pair<double, const char*> kScales[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
  for (const auto& [scale, letter] : kScales)
    if (*n.tensor_instructions >= scale) return fmt::format("{:.1f}{} inst", *n.tensor_instructions / scale, letter);
  return fmt::format("{:.0f} inst", *n.tensor_instructions);
}

}  // namespace profiler
