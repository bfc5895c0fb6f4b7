#include "profiler/ingest/metric_units.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace profiler {
namespace {

using Row = std::pair<std::string_view, double>;
constexpr std::array<Row, 8> kTimes_ns = {
    {{"ns", 1}, {"nsecond", 1}, {"us", 1e3}, {"usecond", 1e3}, {"ms", 1e6}, {"msecond", 1e6}, {"s", 1e9}, {"second", 1e9}}};
constexpr std::array<Row, 5> kPrefixes = {{{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}}};
constexpr std::array<std::string_view, 3> kPrefixed = {"byte", "hz", "Hz"};
constexpr std::array<std::string_view, 8> kCounted = {"inst", "warp", "thread", "block", "sector", "cycle", "request", "register"};
// Behind a slash: per second, or per something that is not scaled.
constexpr std::array<Row, 8> kPer = {
    {{"s", 1}, {"second", 1}, {"ms", 1e3}, {"msecond", 1e3}, {"us", 1e6}, {"usecond", 1e6}, {"ns", 1e9}, {"nsecond", 1e9}}};

// The factor of `unit` if it is `stem` with or without a prefix.
std::optional<double> prefixed(std::string_view unit, std::string_view stem) {
  if (unit == stem) return 1;
  if (unit.size() != stem.size() + 1 || unit.substr(1) != stem) return std::nullopt;
  for (const auto& [letter, factor] : kPrefixes)
    if (unit.substr(0, 1) == letter) return factor;
  return std::nullopt;
}

std::optional<double> counted(std::string_view unit) {
  if (unit.empty()) return 1;
  for (const std::string_view stem : kCounted)
    if (const auto factor = prefixed(unit, stem)) return factor;
  return std::nullopt;
}

std::optional<double> simple(std::string_view unit) {
  for (const auto& [word, factor] : kTimes_ns)
    if (unit == word) return factor;
  for (const std::string_view stem : kPrefixed)
    if (unit.ends_with(stem)) return prefixed(unit, stem);  // "Mibyte" is not known
  return counted(unit).value_or(1);
}

bool among(std::span<const Row> rows, std::string_view unit) {
  return std::any_of(rows.begin(), rows.end(), [&](const Row& r) { return r.first == unit; });
}

}  // namespace

Dimension dimension(std::string_view unit) {
  const size_t slash = unit.find('/');
  const std::string_view above = unit.substr(0, slash);
  if (slash != std::string_view::npos && among(kPer, unit.substr(slash + 1))) return Dimension::rate;
  if (above == "%") return Dimension::percent;
  if (among(kTimes_ns, above)) return Dimension::time;
  if (above.ends_with("byte")) return Dimension::bytes;
  if (above.ends_with("hz") || above.ends_with("Hz")) return Dimension::rate;
  return Dimension::count;
}

bool is_known_count(std::string_view unit) {
  const size_t slash = unit.find('/');
  return counted(unit.substr(0, slash)) && (slash == std::string_view::npos || counted(unit.substr(slash + 1)));
}

std::optional<double> to_base_factor(std::string_view unit) {
  const size_t slash = unit.find('/');
  if (slash == std::string_view::npos) return simple(unit);
  const std::optional<double> above = simple(unit.substr(0, slash));
  const std::string_view below = unit.substr(slash + 1);
  if (!above) return std::nullopt;
  for (const auto& [word, factor] : kPer)
    if (below == word) return *above * factor;
  const std::optional<double> per = simple(below);
  return per ? std::optional(*above / *per) : std::nullopt;
}

}  // namespace profiler
