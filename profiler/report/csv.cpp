#include "profiler/report/csv.h"

#include <fmt/format.h>

#include "profiler/document/fields.h"
#include "profiler/report/views.h"

namespace profiler {
namespace {

std::string in_quotes(const std::string& s) {
  if (s.find_first_of(",\"\n\r") == std::string::npos) return s;
  std::string out = "\"";
  for (const char c : s) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

struct Cell {
  std::string operator()(const std::string& v) const { return in_quotes(v); }
  std::string operator()(int64_t v) const { return std::to_string(v); }
  std::string operator()(uint64_t v) const { return std::to_string(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(double v) const { return fmt::format("{}", v); }  // shortest text that reads back the same
  template <class T>
  std::string operator()(const std::optional<T>& v) const {
    return v ? (*this)(*v) : "";
  }
  std::string operator()(const std::array<int64_t, 3>& v) const { return fmt::format("{}x{}x{}", v[0], v[1], v[2]); }
  std::string operator()(const std::vector<double>& v) const { return in_quotes(fmt::format("{}", fmt::join(v, ";"))); }
  std::string operator()(const std::vector<std::string>& v) const { return in_quotes(fmt::format("{}", fmt::join(v, ";"))); }
  template <class T>
  std::string operator()(const std::map<std::string, T>& v) const {
    std::string out;
    for (const auto& [key, value] : v) out += fmt::format("{}{}={}", out.empty() ? "" : ";", key, value);
    return in_quotes(out);
  }
};

template <class Row>
std::string rows_text(const std::vector<Row>& rows) {
  std::string out;
  const auto& fields = fields_of<Row>();
  for (size_t i = 0; i < fields.size(); ++i) out += (i ? "," : "") + std::string(fields[i].name);
  out += "\n";
  for (const Row& row : rows) {
    for (size_t i = 0; i < fields.size(); ++i) {
      if (i) out += ",";
      out += std::visit([&](auto member) { return Cell()(row.*member); }, fields[i].member);
    }
    out += "\n";
  }
  return out;
}

// The passes, and what makes their times sum to the step: what no range holds, and idle time.
std::vector<PassRow> passes_and_rest(const ProfileDocument& d) {
  std::vector<PassRow> rows = d.passes;
  const TotalsSection& t = d.totals;
  if (const auto row = unattributed_row(d)) rows.push_back(*row);
  if (!t.idle_ns) return rows;
  PassRow& idle = rows.emplace_back();
  idle.name = "idle";
  idle.time_ns = *t.idle_ns;
  idle.share_pct = share(d, t.idle_ns).value_or(0);
  return rows;
}

}  // namespace

std::string csv_text(const ProfileDocument& d, CsvRows rows) {
  switch (rows) {
    case CsvRows::pass:
      return rows_text(passes_and_rest(d));
    case CsvRows::op:
      return rows_text(d.ops);
    case CsvRows::layer:
      return rows_text(d.layers);
    case CsvRows::kernel:
      return rows_text(d.kernels);
    case CsvRows::launch:
      return rows_text(d.launches);
    case CsvRows::missing:
      return rows_text(d.missing);
    case CsvRows::rank:
      return rows_text(d.ranks);
    case CsvRows::collective:
      return rows_text(d.collectives);
    case CsvRows::collective_rank:
      return rows_text(d.collective_ranks);
  }
  return "";
}

}  // namespace profiler
