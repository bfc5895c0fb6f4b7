#include "profiler/ingest/metrics_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace profiler {
namespace {

std::string in_quotes(std::string_view text) {
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + '"';
}
std::string size(const std::array<int64_t, 3>& s) { return in_quotes(fmt::format("({}, {}, {})", s[0], s[1], s[2])); }

}  // namespace

std::string metrics_csv(const ForeignReport& report) {
  std::vector<bool> used(report.metrics.size());
  for (const ForeignResult& r : report.results) {
    for (const auto& [index, value] : r.values) used[index] = true;
    for (const auto& [index, text] : r.texts) used[index] = true;
  }
  std::vector<uint32_t> columns;
  for (uint32_t i = 0; i < used.size(); ++i)
    if (used[i]) columns.push_back(i);
  std::sort(columns.begin(), columns.end(), [&](uint32_t a, uint32_t b) { return report.metrics[a] < report.metrics[b]; });

  std::string out = "result,process,kernel,range,context,stream,device,grid,block";
  for (const uint32_t c : columns) out += "," + in_quotes(report.metrics[c]);
  out += '\n';
  std::vector<std::string> cells(report.metrics.size());
  for (size_t i = 0; i < report.results.size(); ++i) {
    const ForeignResult& r = report.results[i];
    out += fmt::format("{},{},{},{},{},{},{},{},{}", i, r.process, in_quotes(r.name), in_quotes(r.path), r.context, r.stream, r.device,
                       size(r.grid), size(r.block));
    for (std::string& c : cells) c.clear();
    for (const auto& [index, value] : r.values) cells[index] = fmt::format("{}", value);
    for (const auto& [index, text] : r.texts) cells[index] = in_quotes(text);
    for (const uint32_t c : columns) out += "," + cells[c];
    out += '\n';
  }
  return out;
}

}  // namespace profiler
