#include "profiler/ingest/ncu_csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "base/encoding.h"
#include "base/errors.h"
#include "profiler/ingest/csv_cells.h"
#include "profiler/ingest/csv_rows.h"
#include "profiler/ingest/metric_units.h"
#include "profiler/ingest/read_metrics.h"

namespace profiler {
namespace {

using namespace csv;

constexpr std::string_view kPushPop = "Push/Pop_Range:";
constexpr std::string_view kStartEnd = "Start/Stop_Range:";

// Labels of page details for the metrics that are read here, as ncu 2022 to 2025 print them.
constexpr std::array<std::tuple<std::string_view, std::string_view, std::string_view>, 12> kLabels = {{
    {"GPU Speed Of Light Throughput", "Duration", "gpu__time_duration.sum"},
    {"GPU Speed Of Light Throughput", "Elapsed Cycles", "gpc__cycles_elapsed.max"},
    {"GPU Speed Of Light Throughput", "SM Active Cycles", "sm__cycles_active.avg"},
    {"GPU Speed Of Light Throughput", "SM Frequency", "gpc__cycles_elapsed.avg.per_second"},
    {"GPU Speed Of Light Throughput", "DRAM Frequency", "dram__cycles_elapsed.avg.per_second"},
    {"Launch Statistics", "Registers Per Thread", kRegisters},
    {"Launch Statistics", "Static Shared Memory Per Block", kSharedStatic},
    {"Launch Statistics", "Dynamic Shared Memory Per Block", kSharedDynamic},
    {"Launch Statistics", "# SMs", "launch__sm_count"},
    {"Occupancy", "Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"},
    {"Occupancy", "Theoretical Occupancy", "sm__maximum_warps_per_active_cycle_pct"},
    {"Memory Workload Analysis", "Memory Throughput", "dram__bytes.sum.per_second"},
}};

// What describes a launch, in both pages; some versions lack one.
constexpr std::array<const char*, 5> kOfLaunch = {"Context", "Stream", "Device", "Grid Size", "Block Size"};

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& source) : text_(text) {
    r_.tool = "ncu";
    r_.source = source;
  }

  ForeignReport read() {
    check_encoding();
    const auto table = find_table(text_);
    if (!table)
      throw stepscope::InputError(
          fmt::format("{}: no ncu table: no line begins with \"ID\",\"Process ID\"; print one with "
                      "`ncu -i REPORT --csv --page raw --print-units base`",
                      r_.source));
    Rows rows(text_, table->first, table->second);
    try {
      read_tables(rows);
    } catch (const Damage& d) {
      if (r_.results.empty()) throw stepscope::InputError(fmt::format("{}: line {}: {}", r_.source, d.line, d.what));
      r_.missing.push_back({"report_damaged", 1, fmt::format("line {}: {}; {}", d.line, d.what, shown_before_damage(r_.results.size()))});
    }
    if (r_.results.empty())
      throw stepscope::InputError(
          fmt::format("{}: the table holds no result: expected a row for each kernel behind the titles", r_.source));
    if (!absent_.empty())
      r_.missing.push_back({"columns_absent", static_cast<int64_t>(absent_.size()), fmt::format("{}", fmt::join(absent_, ", "))});
    note_printed_errors();
    if (tables_.size() > 1)
      r_.missing.push_back(
          {"several_tables", static_cast<int64_t>(tables_.size()), fmt::format("they begin in lines {}", fmt::join(tables_, ", "))});
    return std::move(r_);
  }

 private:
  // ncu's own lines stand between the rows of a table that it prints while it profiles.
  void note_printed_errors() {
    constexpr std::string_view kError = "==ERROR==";
    std::string first;
    int64_t count = 0;
    for (size_t at = text_.find(kError); at != std::string_view::npos; at = text_.find(kError, at + 1)) {
      if (at > 0 && text_[at - 1] != '\n') continue;
      if (++count == 1) first = shown(text_.substr(at, text_.find_first_of("\r\n", at) - at));
    }
    if (count > 0) r_.missing.push_back({"errors_printed", count, first});
  }

  // A place of the table, for messages.
  struct At {
    int64_t line;
    size_t column;
  };

  [[noreturn]] void refuse(int64_t line, const std::string& what) const {
    throw stepscope::InputError(fmt::format("{}: line {}: {}", r_.source, line, what));
  }
  [[noreturn]] void refuse(const At& at, const std::string& what) const {
    throw stepscope::InputError(fmt::format("{}: line {}, column {} ('{}'): {}", r_.source, at.line, at.column + 1,
                                            at.column < titles_.size() ? shown(titles_[at.column]) : "", what));
  }

  void check_encoding() const {
    if (const std::string problem = stepscope::not_utf8(text_, r_.source); !problem.empty())
      throw stepscope::InputError(
          fmt::format("{}: {} (in PowerShell let ncu write the file itself: `ncu --csv --log-file FILE`)", r_.source, problem));
    if (const size_t at = text_.find('\0'); at != std::string_view::npos) {
      const size_t line_begin = at == 0 ? 0 : text_.rfind('\n', at - 1) + 1;
      throw stepscope::InputError(fmt::format("{}: line {}, byte {} of it: a zero byte, expected text; the file is damaged", r_.source,
                                              1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'),
                                              at - line_begin + 1));
    }
    if (const char separator = other_separator(text_); separator && !find_table(text_))
      throw stepscope::InputError(fmt::format("{}: its columns are separated by {}, expected ',' as `ncu --csv` prints", r_.source,
                                              separator == ';' ? "';'" : "tabs"));
  }

  // `ncu --csv >> FILE` puts several tables into one file.
  void read_tables(Rows& rows) {
    read_titles(rows);
    for (;;) {
      details_ ? read_details(rows) : read_raw(rows);
      if (rows.at_end()) return;
      const std::vector<std::string> first = titles_;
      const int64_t line = rows.next_line();
      read_titles(rows);
      if (titles_ != first)
        refuse(line, fmt::format("a second table begins here, with other columns than the first (line {}); "
                                 "give each table its "
                                 "own file",
                                 tables_.front()));
    }
  }

  void read_titles(Rows& rows) {
    rows.skip_byte_order_mark();
    quoted_ = rows.rest().starts_with('"');
    rows.next(titles_);
    tables_.push_back(rows.line());
    column_.clear();
    for (size_t i = 0; i < titles_.size(); ++i) {
      const auto [at, is_new] = column_.emplace(titles_[i], i);
      if (!is_new)
        refuse({rows.line(), i}, fmt::format("the title stands twice, in columns {} and {}: expected it once", at->second + 1, i + 1));
    }
    for (const char* needed : {"ID", "Kernel Name"})
      if (!column_.contains(needed)) refuse(rows.line(), fmt::format("the table has no column '{}'", needed));
    for (const char* wanted : kOfLaunch)
      if (!column_.contains(wanted)) absent_.insert(wanted);
    push_pop_.reset();
    start_end_.reset();
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

  // The next row of this table; false at its end, which is the end of the file or the next titles.
  bool next_row(Rows& rows, std::vector<std::string>& row) {
    for (;; rows.skip_line()) {
      if (rows.at_end()) return false;
      if (is_title_line(rows.rest())) return false;
      const std::string_view line = rows.peek_line();
      if (line.find_first_not_of(" \t") == std::string_view::npos || line.starts_with("==")) continue;
      if (!quoted_ || line.starts_with('"')) break;
      // Output of the profiled program in front of the next table; behind the last one there is none.
      if (!find_table(rows.rest()))
        throw Damage{rows.next_line(),
                     fmt::format("'{}' is no row of the table: expected {} cells in quotes", shown(line), titles_.size())};
    }
    rows.next(row);
    check_length(rows, row);
    return true;
  }

  const std::string& cell(const std::vector<std::string>& row, const char* title) const {
    static const std::string none;
    const auto at = column_.find(title);
    return at == column_.end() || at->second >= row.size() ? none : row[at->second];
  }
  // A cell that ncu fills with a whole number; some versions lack the column.
  int64_t integer(const std::vector<std::string>& row, const char* title, int64_t line) const {
    const std::string& text = cell(row, title);
    if (text.empty()) return 0;
    const auto v = parse_integer(text);
    if (!v || *v < 0) refuse({line, column_.at(title)}, fmt::format("found '{}', expected a whole number of 0 or more", shown(text)));
    return *v;
  }
  std::array<int64_t, 3> size(const std::vector<std::string>& row, const char* title, int64_t line) const {
    const std::string& text = cell(row, title);
    if (text.empty()) return {};
    const auto v = parse_size(text);
    if (!v) refuse({line, column_.at(title)}, fmt::format("found '{}', expected three numbers such as (256, 1, 1)", shown(text)));
    return *v;
  }

  // All six are 0 where a result is no kernel's, as that of a range.
  void refuse_no_threads(const std::vector<std::string>& row, const ForeignResult& result, int64_t line) const {
    const auto holds_0 = [](const std::array<int64_t, 3>& size) { return std::find(size.begin(), size.end(), 0) != size.end(); };
    constexpr std::array<int64_t, 3> kNone{};
    if (result.grid == kNone && result.block == kNone) return;
    for (const auto& [title, value] : {std::pair{"Grid Size", &result.grid}, std::pair{"Block Size", &result.block}})
      if (!cell(row, title).empty() && holds_0(*value))
        refuse({line, column_.at(title)}, fmt::format("found '{}', expected at least 1 each", shown(cell(row, title))));
  }

  ForeignResult result_of(const std::vector<std::string>& row, int64_t line) {
    ForeignResult result;
    result.name = cell(row, "Kernel Name");
    if (cell(row, "ID").empty()) refuse({line, column_.at("ID")}, "the cell is empty, expected the number of a result");
    if (result.name.empty()) refuse({line, column_.at("Kernel Name")}, "the cell is empty, expected a name");
    integer(row, "ID", line);
    result.process = integer(row, "Process ID", line);
    result.context = integer(row, "Context", line);
    result.stream = integer(row, "Stream", line);
    result.device = integer(row, "Device", line);
    result.grid = size(row, "Grid Size", line);
    result.block = size(row, "Block Size", line);
    refuse_no_threads(row, result, line);
    const auto [at, is_new] = lines_.emplace(std::pair{cell(row, "Process ID"), cell(row, "ID")}, line);
    if (!is_new)
      refuse({line, column_.at("ID")}, fmt::format("result {} of process {} stands in line {} already; a "
                                                   "file that holds a report twice counts its time twice: "
                                                   "expected every result once",
                                                   cell(row, "ID"), cell(row, "Process ID"), at->second));
    ForeignProcess& process = r_.processes[result.process];
    if (process.program.empty()) process.program = cell(row, "Process Name");
    if (const std::string& cc = cell(row, "CC"); !cc.empty()) process.device.emplace("compute_capability", cc);
    // A row of page details may end before a column that stands behind its value.
    if (push_pop_ && *push_pop_ < row.size()) {
      const std::string& ranges = row[*push_pop_];
      result.path = parse_ranges(ranges);
      result.thread = parse_integer(std::string_view(ranges).substr(0, ranges.find(' '))).value_or(0);
    }
    if (result.path.empty() && start_end_ && *start_end_ < row.size()) result.path = parse_ranges(row[*start_end_]);
    return result;
  }

  uint32_t metric(const std::string& name) {
    const auto [at, is_new] = index_.emplace(name, static_cast<uint32_t>(r_.metrics.size()));
    if (is_new) r_.metrics.push_back(name);
    return at->second;
  }

  struct Unit {
    double factor = 1;
    bool none = true;  // a column without a unit may hold texts
  };
  Unit unit_of(const std::string& metric, const std::string& unit, const At& at) const {
    const auto factor = to_base_factor(unit);
    if (!factor) refuse(at, fmt::format("unit '{}' is not known; print with --print-units base", shown(unit)));
    if (const std::string expected = unfit_unit(metric, unit); !expected.empty())
      refuse(at, fmt::format("unit '{}' of {}: expected {}", shown(unit), metric, expected));
    return {*factor, unit.empty()};
  }

  void add_value(ForeignResult& result, uint32_t index, const std::string& text, const Unit& unit, const At& at) {
    const std::string& name = r_.metrics[index];
    const bool must_be_number = is_read(name) || !unit.none;
    double value = 0;
    switch (parse_number(text, value)) {
      case Cell::none:
        if (is_read(name)) result.no_value.push_back(index);
        return;
      case Cell::number:
        value *= unit.factor;
        if (!std::isfinite(value)) break;
        if (const std::string expected = implausible(name, value); !expected.empty())
          refuse(at, fmt::format("{} is '{}': expected {}", name, shown(text), expected));
        result.values.emplace_back(index, value);
        return;
      case Cell::too_large:
        break;
      case Cell::decimal_comma:
        refuse(at, fmt::format("'{}' of '{}' is a number of another locale (decimal comma); print the table again with "
                               "LC_ALL=C in ncu's environment",
                               shown(text), name));
      case Cell::text:
        if (must_be_number)
          refuse(at, fmt::format("{} is '{}': expected a number as ncu prints it with LC_ALL=C, such as 12345 or 12,345.67", name,
                                 shown(text)));
        result.texts.emplace_back(index, text);
        return;
    }
    refuse(at, fmt::format("{} is '{}': expected a number between 1e-300 and 1e300", name, shown(text)));
  }

  // Page details leaves out the cells of rules in rows that are none.
  void check_length(const Rows& rows, const std::vector<std::string>& row) const {
    const bool short_details =
        details_ && row.size() > std::max(column_.at("Metric Value"), column_.at("Metric Unit")) && row.size() < titles_.size();
    if (row.size() != titles_.size() && !short_details)
      throw Damage{rows.line(), fmt::format("{} cells, expected {} as in the titles{}", row.size(), titles_.size(),
                                            rows.cut() ? " (the file ends here)" : "")};
    if (rows.cut_in_cell())
      throw Damage{rows.line(), fmt::format("the file ends in the cell '{}', expected a line end behind it", shown(row.back()))};
  }

  void read_raw(Rows& rows) {
    static constexpr std::array<std::string_view, 11> kFixed = {
        "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"};
    std::vector<std::optional<uint32_t>> metric_of(titles_.size());
    for (size_t i = 0; i < titles_.size(); ++i)
      if (std::find(kFixed.begin(), kFixed.end(), titles_[i]) == kFixed.end() && i != push_pop_ && i != start_end_)
        metric_of[i] = metric(titles_[i]);
    std::vector<Unit> units(titles_.size());
    std::vector<std::string> row;
    if (!next_row(rows, row)) return;
    // The row of units has no ID. Without it the numbers may be in any unit.
    if (!cell(row, "ID").empty())
      refuse(rows.line(), fmt::format("found a result, expected the row of units behind the titles (line {}); print the table with "
                                      "`ncu -i REPORT --csv --page raw --print-units base`",
                                      tables_.back()));
    for (size_t i = 0; i < row.size(); ++i)
      if (metric_of[i]) units[i] = unit_of(titles_[i], row[i], {rows.line(), i});
    while (next_row(rows, row)) {
      ForeignResult result = result_of(row, rows.line());
      for (size_t i = 0; i < row.size(); ++i)
        if (metric_of[i]) add_value(result, *metric_of[i], row[i], units[i], {rows.line(), i});
      r_.results.push_back(std::move(result));
    }
  }

  void read_details(Rows& rows) {
    std::vector<std::string> row;
    std::optional<std::pair<std::string, std::string>> current;  // ID counts per process
    std::vector<std::string> first;                              // row of the current result
    const size_t value_column = column_.at("Metric Value"), unit_column = column_.at("Metric Unit");
    std::vector<size_t> of_launch{column_.at("Kernel Name")};
    for (const char* title : kOfLaunch)
      if (const auto at = column_.find(title); at != column_.end()) of_launch.push_back(at->second);
    const auto cell_at = [](const std::vector<std::string>& cells, size_t i) { return i < cells.size() ? std::string_view(cells[i]) : ""; };
    while (next_row(rows, row)) {
      std::pair<std::string, std::string> id{cell(row, "Process ID"), cell(row, "ID")};
      if (current != id) {
        r_.results.push_back(result_of(row, rows.line()));
        current = std::move(id);
        first = row;
      }
      for (const size_t column : of_launch)
        if (const auto here = cell_at(row, column), before = cell_at(first, column); here != before)
          refuse({rows.line(), column}, fmt::format("result {} has '{}' here and '{}' in its first row: expected one value",
                                                    cell(row, "ID"), shown(here), shown(before)));
      const std::string &section = cell(row, "Section Name"), &label = cell(row, "Metric Name");
      if (label.empty()) continue;  // the row of a rule
      std::string name = label;
      if (label.find("__") == std::string::npos) {
        const auto known = std::find_if(kLabels.begin(), kLabels.end(),
                                        [&](const auto& l) { return std::get<0>(l) == section && std::get<1>(l) == label; });
        name = known != kLabels.end() ? std::string(std::get<2>(*known)) : section + ": " + label;
      }
      const uint32_t index = metric(name);
      ForeignResult& result = r_.results.back();
      const auto before = value_of(result, index);
      const Unit unit = unit_of(name, row[unit_column], {rows.line(), unit_column});
      ForeignResult again;
      add_value(again, index, row[value_column], unit, {rows.line(), value_column});
      if (!before) {
        result.values.insert(result.values.end(), again.values.begin(), again.values.end());
        result.texts.insert(result.texts.end(), again.texts.begin(), again.texts.end());
        result.no_value.insert(result.no_value.end(), again.no_value.begin(), again.no_value.end());
      } else if (is_read(name) && !again.values.empty() && again.values.front().second != *before) {
        // Sections share metrics, with one value each. A label of no metric that is read may stand for
        // several.
        refuse({rows.line(), value_column}, fmt::format("{} of result {} is {} here and {} in a row before: expected one value", name,
                                                        cell(row, "ID"), again.values.front().second, *before));
      }
    }
  }

  std::string_view text_;
  ForeignReport r_;
  std::vector<std::string> titles_;
  std::map<std::string, size_t> column_;
  std::map<std::string, uint32_t> index_;
  std::map<std::pair<std::string, std::string>, int64_t> lines_;  // (process, ID) of each result -> where it stands
  std::set<std::string> absent_;                                  // titles that no table should lack
  std::vector<int64_t> tables_;                                   // lines of the titles
  std::optional<size_t> push_pop_, start_end_;
  bool details_ = false, quoted_ = true;
};

}  // namespace

bool looks_like_ncu_csv(std::string_view text) {
  return find_table(text) || !stepscope::other_encoding(text).empty() || other_separator(text);
}

ForeignReport read_ncu_csv(std::string_view text, const std::string& source) {
  try {
    return CsvReader(text, source).read();
  } catch (const Damage& d) {
    throw stepscope::InputError(fmt::format("{}: line {}: {}", source, d.line, d.what));
  }
}

}  // namespace profiler
