#include "profiler/ingest/ncu_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <span>
#include <tuple>

#include "profiler/ingest/metric_units.h"
#include "profiler/records/errors.h"

namespace profiler {
namespace {

constexpr std::string_view kPushPop = "Push/Pop_Range:";
constexpr std::string_view kStartEnd = "Start/Stop_Range:";

struct Damage {
  int64_t line;
  std::string what;
};

// RFC 4180: quoted cells may hold commas, doubled quotes and line ends.
class Rows {
 public:
  Rows(std::string_view text, size_t at, int64_t line) : text_(text), at_(at), line_(line) {}
  int64_t line() const { return row_line_; }
  // Of the row last read: its end is the end of the text, without a line end.
  bool cut() const { return cut_; }

  bool next(std::vector<std::string>& cells) {
    cells.clear();
    if (at_ >= text_.size()) return false;
    row_line_ = line_;
    cut_ = false;
    std::string cell;
    for (;;) {
      if (at_ < text_.size() && text_[at_] == '"') {
        quoted(cell);
      } else {
        while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n') cell += text_[at_++];
        if (!cell.empty() && cell.back() == '\r') cell.pop_back();
      }
      cells.push_back(std::move(cell));
      cell.clear();
      if (at_ >= text_.size()) {
        cut_ = true;
        return true;
      }
      const char c = text_[at_++];
      if (c == '\r' && at_ < text_.size() && text_[at_] == '\n') {
        ++at_;
        ++line_;
        return true;
      }
      if (c == '\n') {
        ++line_;
        return true;
      }
      if (c != ',') throw Damage{line_, fmt::format("'{}' behind a closing quote", c)};
    }
  }

 private:
  void quoted(std::string& cell) {
    const int64_t opened = line_;
    for (++at_;; ++at_) {
      if (at_ >= text_.size()) throw Damage{opened, "a quote that is never closed"};
      if (text_[at_] == '"') {
        if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
        ++at_;
      }
      if (text_[at_] == '\n') ++line_;
      cell += text_[at_];
    }
    ++at_;
  }

  std::string_view text_;
  size_t at_;
  int64_t line_, row_line_ = 0;
  bool cut_ = false;
};

// Position and line of the table's title row, wherever other output ended.
std::optional<std::pair<size_t, int64_t>> find_table(std::string_view text) {
  int64_t line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("\"ID\",\"Process ID\"") || rest.starts_with("ID,Process ID"))
      return std::pair{at, line};
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    at += end + 1;
  }
  return std::nullopt;
}

enum class Cell { empty, number, text, decimal_comma };

bool digits(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "1,980,000" and "0.74" as ncu prints them in the C locale; "0,74", "1.980.000" and "1.980,5" in others.
Cell parse_number(std::string_view cell, double& value) {
  while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
  while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
  if (cell.empty() || cell == "no data" || cell == "nan" || cell == "-nan" || cell == "n/a" ||
      cell == "inf" || cell == "-inf")
    return Cell::empty;
  // --print-metric-instances appends " (1; 2; 3)"
  if (const size_t open = cell.find(" ("); open != std::string_view::npos && cell.back() == ')')
    cell = cell.substr(0, open);
  const std::string_view whole = cell;
  if (cell.front() == '-' || cell.front() == '+') cell.remove_prefix(1);
  const size_t exponent = cell.find_first_of("eE");
  const std::string_view mantissa = cell.substr(0, exponent);
  if (mantissa.empty() || mantissa.find_first_not_of("0123456789.,") != std::string_view::npos ||
      mantissa.front() == ',')
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
  if (error != std::errc() || end != plain.data() + plain.size()) return Cell::text;
  return std::isfinite(value) ? Cell::number : Cell::empty;
}

std::optional<int64_t> parse_integer(std::string_view s) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  return error == std::errc() && end == s.data() + s.size() ? std::optional(v) : std::nullopt;
}

// "(256, 1, 1)"
std::array<int64_t, 3> parse_size(std::string_view s) {
  std::array<int64_t, 3> size{};
  size_t at = 0;
  for (int64_t& v : size) {
    at = s.find_first_of("0123456789", at);
    if (at == std::string_view::npos) return {};
    const size_t end = std::min(s.find_first_not_of("0123456789", at), s.size());
    v = parse_integer(s.substr(at, end - at)).value_or(0);
    at = end;
  }
  return size;
}

// A cell of the NVTX columns: `THREAD "DOMAIN:RANGE:payload type:payload:color type:color:message type:MESSAGE" "…" …`. A range named
// by a message stands there twice, and may hold colons itself.
std::string range_of(std::string_view quoted) {
  const size_t colon = quoted.find(':');
  if (colon == std::string_view::npos) return std::string(quoted);
  const std::string_view rest = quoted.substr(colon + 1);
  for (size_t n = rest.size() / 2; n > 0; --n) {
    if (rest.substr(0, n) != rest.substr(rest.size() - n)) continue;
    const std::string_view middle = rest.substr(n, rest.size() - 2 * n);
    if (middle.size() >= 2 && middle.front() == ':' && middle.back() == ':' &&
        std::count(middle.begin(), middle.end(), ':') == 6)
      return std::string(rest.substr(0, n));
  }
  return std::string(rest.substr(0, rest.find(':')));
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

// Labels of page details for the metrics that are read here, as ncu 2022 to 2025 print them.
constexpr std::array<std::tuple<std::string_view, std::string_view, std::string_view>, 12> kLabels = {{
    {"GPU Speed Of Light Throughput", "Duration", "gpu__time_duration.sum"},
    {"GPU Speed Of Light Throughput", "Elapsed Cycles", "gpc__cycles_elapsed.max"},
    {"GPU Speed Of Light Throughput", "SM Active Cycles", "sm__cycles_active.avg"},
    {"GPU Speed Of Light Throughput", "SM Frequency", "gpc__cycles_elapsed.avg.per_second"},
    {"GPU Speed Of Light Throughput", "DRAM Frequency", "dram__cycles_elapsed.avg.per_second"},
    {"Launch Statistics", "Registers Per Thread", "launch__registers_per_thread"},
    {"Launch Statistics", "Static Shared Memory Per Block", "launch__shared_mem_per_block_static"},
    {"Launch Statistics", "Dynamic Shared Memory Per Block", "launch__shared_mem_per_block_dynamic"},
    {"Launch Statistics", "# SMs", "launch__sm_count"},
    {"Occupancy", "Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"},
    {"Occupancy", "Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"},
    {"Memory Workload Analysis", "Memory Throughput", "dram__bytes.sum.per_second"},
}};

class Reader {
 public:
  Reader(std::string_view text, const std::string& source) : text_(text) {
    r_.tool = "ncu";
    r_.source = source;
  }

  ForeignReport read() {
    const auto table = find_table(text_);
    if (!table)
      throw DataError(
          fmt::format("{}: no ncu table: no line begins with \"ID\",\"Process ID\"; print one with "
                      "`ncu -i REPORT --csv --page raw --print-units base`",
                      r_.source));
    Rows rows(text_, table->first, table->second);
    try {
      read_titles(rows);
      details_ ? read_details(rows) : read_raw(rows);
    } catch (const Damage& d) {
      if (r_.results.empty()) throw DataError(fmt::format("{}: line {}: {}", r_.source, d.line, d.what));
      r_.missing.push_back({"report_damaged", 1,
                            fmt::format("line {}: {}; the {} results before it are shown", d.line, d.what,
                                        r_.results.size())});
    }
    if (r_.results.empty()) throw DataError(fmt::format("{}: the table holds no result", r_.source));
    return std::move(r_);
  }

 private:
  [[noreturn]] void refuse(int64_t line, const std::string& what) const {
    throw DataError(fmt::format("{}: line {}: {}", r_.source, line, what));
  }

  void read_titles(Rows& rows) {
    rows.next(titles_);
    for (size_t i = 0; i < titles_.size(); ++i) column_.emplace(titles_[i], i);
    for (const char* needed : {"ID", "Kernel Name"})
      if (!column_.contains(needed)) refuse(rows.line(), fmt::format("the table has no column '{}'", needed));
    for (size_t i = 0; i < titles_.size(); ++i) {
      if (titles_[i].find(kPushPop) != std::string::npos) push_pop_ = i;
      if (titles_[i].find(kStartEnd) != std::string::npos) start_end_ = i;
    }
    r_.has_ranges = push_pop_ || start_end_;
    details_ = column_.contains("Metric Name");
    r_.form = details_ ? "ncu CSV, details" : "ncu CSV, raw";
    if (!details_) return;
    for (const char* needed : {"Metric Unit", "Metric Value"})
      if (!column_.contains(needed)) refuse(rows.line(), fmt::format("the table has no column '{}'", needed));
  }

  const std::string& cell(const std::vector<std::string>& row, const char* title) const {
    static const std::string none;
    const auto at = column_.find(title);
    return at == column_.end() || at->second >= row.size() ? none : row[at->second];
  }

  ForeignResult result_of(const std::vector<std::string>& row) {
    ForeignResult result;
    result.name = cell(row, "Kernel Name");
    result.process = parse_integer(cell(row, "Process ID")).value_or(0);
    result.context = parse_integer(cell(row, "Context")).value_or(0);
    result.stream = parse_integer(cell(row, "Stream")).value_or(0);
    result.device = parse_integer(cell(row, "Device")).value_or(0);
    result.grid = parse_size(cell(row, "Grid Size"));
    result.block = parse_size(cell(row, "Block Size"));
    if (r_.program.empty()) r_.program = cell(row, "Process Name");
    if (const std::string& cc = cell(row, "CC"); !cc.empty()) r_.device.emplace("compute_capability", cc);
    // A row of page details may end before a column that stands behind its value.
    if (push_pop_ && *push_pop_ < row.size()) {
      const std::string& ranges = row[*push_pop_];
      result.path = parse_ranges(ranges);
      result.thread = parse_integer(std::string_view(ranges).substr(0, ranges.find(' '))).value_or(0);
    }
    if (result.path.empty() && start_end_ && *start_end_ < row.size())
      result.path = parse_ranges(row[*start_end_]);
    return result;
  }

  uint32_t metric(const std::string& name) {
    const auto [at, is_new] = index_.emplace(name, static_cast<uint32_t>(r_.metrics.size()));
    if (is_new) r_.metrics.push_back(name);
    return at->second;
  }

  void add_value(ForeignResult& result, uint32_t index, const std::string& text, double factor,
                 int64_t line) {
    double value = 0;
    switch (parse_number(text, value)) {
      case Cell::empty:
        return;
      case Cell::number:
        result.values.emplace_back(index, value * factor);
        return;
      case Cell::decimal_comma:
        refuse(line,
               fmt::format(
                   "'{}' of '{}' is a number of another locale (decimal comma); print the table again with "
                   "LC_ALL=C in ncu's environment",
                   text, r_.metrics[index]));
      case Cell::text:
        result.texts.emplace_back(index, text);
    }
  }

  double factor_of(const std::string& unit, int64_t line) const {
    const auto factor = to_base_factor(unit);
    if (!factor) refuse(line, fmt::format("unit '{}' is not known; print with --print-units base", unit));
    return *factor;
  }

  // Page details leaves out the cells of rules in rows that are none.
  void check_length(const Rows& rows, const std::vector<std::string>& row) const {
    if (row.size() == titles_.size()) return;
    if (details_ && row.size() > column_.at("Metric Value") && row.size() < titles_.size()) return;
    throw Damage{rows.line(), fmt::format("{} cells, {} titles{}", row.size(), titles_.size(),
                                          rows.cut() ? " (the file ends here)" : "")};
  }
  static bool is_ncu_message(const std::vector<std::string>& row) {
    return row.size() >= 1 && row[0].starts_with("==");
  }

  void read_raw(Rows& rows) {
    static constexpr std::array<std::string_view, 11> kFixed = {
        "ID",     "Process ID", "Process Name", "Host Name", "Kernel Name", "Context",
        "Stream", "Block Size", "Grid Size",    "Device",    "CC"};
    std::vector<std::optional<uint32_t>> metric_of(titles_.size());
    for (size_t i = 0; i < titles_.size(); ++i)
      if (std::find(kFixed.begin(), kFixed.end(), titles_[i]) == kFixed.end() && i != push_pop_ &&
          i != start_end_)
        metric_of[i] = metric(titles_[i]);
    std::vector<double> factors(titles_.size(), 1);
    std::vector<std::string> row;
    for (bool first = true; rows.next(row);) {
      if (is_ncu_message(row) || (row.size() == 1 && row[0].empty())) continue;
      check_length(rows, row);
      // The row of units has no ID.
      if (std::exchange(first, false) && row[0].empty()) {
        for (size_t i = 0; i < row.size(); ++i)
          if (metric_of[i]) factors[i] = factor_of(row[i], rows.line());
        continue;
      }
      ForeignResult result = result_of(row);
      for (size_t i = 0; i < row.size(); ++i)
        if (metric_of[i]) add_value(result, *metric_of[i], row[i], factors[i], rows.line());
      r_.results.push_back(std::move(result));
    }
  }

  void read_details(Rows& rows) {
    std::vector<std::string> row;
    std::pair<std::string, std::string> current;  // ID counts per process
    while (rows.next(row)) {
      if (is_ncu_message(row) || (row.size() == 1 && row[0].empty())) continue;
      check_length(rows, row);
      std::pair<std::string, std::string> id{cell(row, "Process ID"), cell(row, "ID")};
      if (r_.results.empty() || id != current) {
        current = std::move(id);
        r_.results.push_back(result_of(row));
      }
      const std::string &section = cell(row, "Section Name"), &label = cell(row, "Metric Name");
      if (label.empty()) continue;  // the row of a rule
      std::string name = label;
      if (label.find("__") == std::string::npos) {
        const auto known = std::find_if(kLabels.begin(), kLabels.end(), [&](const auto& l) {
          return std::get<0>(l) == section && std::get<1>(l) == label;
        });
        name = known != kLabels.end() ? std::string(std::get<2>(*known)) : section + ": " + label;
      }
      const uint32_t index = metric(name);
      ForeignResult& result = r_.results.back();
      if (std::any_of(result.values.begin(), result.values.end(),
                      [&](const auto& v) { return v.first == index; }))
        continue;
      add_value(result, index, cell(row, "Metric Value"), factor_of(cell(row, "Metric Unit"), rows.line()),
                rows.line());
    }
  }

  std::string_view text_;
  ForeignReport r_;
  std::vector<std::string> titles_;
  std::map<std::string, size_t> column_;
  std::map<std::string, uint32_t> index_;
  std::optional<size_t> push_pop_, start_end_;
  bool details_ = false;
};

}  // namespace

bool looks_like_ncu_csv(std::string_view text) { return find_table(text).has_value(); }

ForeignReport read_ncu_csv(std::string_view text, const std::string& source) {
  try {
    return Reader(text, source).read();
  } catch (const Damage& d) {
    throw DataError(fmt::format("{}: line {}: {}", source, d.line, d.what));
  }
}

}  // namespace profiler
