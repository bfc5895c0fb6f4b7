#include "profiler/ingest/csv_cells.h"

#include <algorithm>
#include <charconv>

namespace profiler::csv {
namespace {

// What ncu prints where it has no number.
bool says_none(std::string_view cell) {
  std::string lower;
  for (const char c : cell) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.starts_with('-')) lower.erase(0, 1);
  return lower.empty() || lower == "no data" || lower == "nan" || lower == "inf" || lower == "n/a" || lower == "(!) n/a";
}

bool digits(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// A range named by a message stands in its cell twice, and may hold colons itself.
std::string range_of(std::string_view quoted) {
  const size_t colon = quoted.find(':');
  if (colon == std::string_view::npos) return std::string(quoted);
  const std::string_view rest = quoted.substr(colon + 1);
  for (size_t n = rest.size() / 2; n > 0; --n) {
    if (rest.substr(0, n) != rest.substr(rest.size() - n)) continue;
    const std::string_view middle = rest.substr(n, rest.size() - 2 * n);
    if (middle.size() >= 2 && middle.front() == ':' && middle.back() == ':' && std::count(middle.begin(), middle.end(), ':') == 6)
      return std::string(rest.substr(0, n));
  }
  return std::string(rest.substr(0, rest.find(':')));
}

}  // namespace

Cell parse_number(std::string_view cell, double& value) {
  while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
  while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
  if (says_none(cell)) return Cell::none;
  // --print-metric-instances appends " (1; 2; 3)"
  if (const size_t open = cell.find(" ("); open != std::string_view::npos && cell.back() == ')') cell = cell.substr(0, open);
  const std::string_view whole = cell;
  if (cell.front() == '-' || cell.front() == '+') cell.remove_prefix(1);
  const size_t exponent = cell.find_first_of("eE");
  const std::string_view mantissa = cell.substr(0, exponent);
  if (mantissa.empty() || mantissa.find_first_not_of("0123456789.,") != std::string_view::npos || mantissa.front() == ',')
    return Cell::text;
  const size_t point = mantissa.find('.'), last_comma = mantissa.rfind(',');
  const auto grouped = [](std::string_view s, char separator) {  // "1,980,000"
    size_t begin = 0;
    for (bool first = true;; first = false) {
      const size_t at = s.find(separator, begin);
      const std::string_view part = s.substr(begin, at == std::string_view::npos ? at : at - begin);
      if (!digits(part) || (first ? part.size() > 3 || part == "0" : part.size() != 3)) return false;
      if (at == std::string_view::npos) return true;
      begin = at + 1;
    }
  };
  if (last_comma != std::string_view::npos) {
    if (point != std::string_view::npos && point < last_comma) return Cell::decimal_comma;
    if (!grouped(mantissa.substr(0, point), ','))
      return std::count(mantissa.begin(), mantissa.end(), ',') == 1 ? Cell::decimal_comma : Cell::text;
  } else if (std::count(mantissa.begin(), mantissa.end(), '.') > 1) {
    return grouped(mantissa, '.') ? Cell::decimal_comma : Cell::text;
  }
  std::string plain;
  for (const char c : whole)
    if (c != ',' && c != '+') plain += c;
  const auto [end, error] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (end != plain.data() + plain.size()) return Cell::text;
  if (error == std::errc::result_out_of_range) return Cell::too_large;
  if (error != std::errc()) return Cell::text;
  return Cell::number;
}

std::optional<int64_t> parse_integer(std::string_view s) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  return error == std::errc() && end == s.data() + s.size() ? std::optional(v) : std::nullopt;
}

std::optional<std::array<int64_t, 3>> parse_size(std::string_view s) {
  std::string plain;
  for (const char c : s)
    if (c != ' ') plain += c;
  if (!plain.starts_with('(') || !plain.ends_with(')')) return std::nullopt;
  std::string_view left = std::string_view(plain).substr(1, plain.size() - 2);
  std::array<int64_t, 3> size{};
  for (size_t i = 0; i < size.size(); ++i) {
    const size_t comma = left.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == size.size())) return std::nullopt;
    const auto v = parse_integer(left.substr(0, comma));
    if (!v || *v < 0) return std::nullopt;
    size[i] = *v;
    if (comma != std::string_view::npos) left.remove_prefix(comma + 1);
  }
  return size;
}

std::string parse_ranges(std::string_view cell) {
  std::string path;
  for (size_t at = 0; (at = cell.find('"', at)) != std::string_view::npos;) {
    const size_t end = cell.find('"', at + 1);
    if (end == std::string_view::npos) break;
    path += (path.empty() ? "" : "/") + range_of(cell.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return path;
}

}  // namespace profiler::csv
