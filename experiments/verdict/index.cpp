#include "experiments/verdict/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/verdict/document.h"

namespace experiments {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::vector<ordered_json> read_verdicts(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing))
    if (entry.is_directory() && fs::exists(entry.path() / "verdict.json")) files.push_back(entry.path() / "verdict.json");
  std::sort(files.begin(), files.end());
  std::vector<ordered_json> out;
  for (const fs::path& file : files) out.push_back(load_verdict(file));
  return out;
}

std::string index_table(const std::vector<ordered_json>& verdicts) {
  std::string out =
      "| experiment | change | workload | verdict | B / A | predicted ms | measured ms | device "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const ordered_json& v : verdicts) {
    const std::string name = v.value("name", "");
    std::string change = v.contains("experiment") ? v["experiment"].value("change", "") : "";
    if (change.starts_with("--")) change = "`" + change + "`";
    for (const ordered_json& w : v.at("workloads")) {
      const ordered_json& s = w.at("statistics");
      const auto ms = [&](const char* key) { return w.contains(key) ? fmt::format("{:+.3f}", w[key].get<double>()) : std::string("-"); };
      std::string measured = ms("saved_ms");
      if (w.contains("saved_ms") && w.contains("predicted_saving_ms")) {
        const double p = w["predicted_saving_ms"].get<double>();
        if (std::fabs(w["saved_ms"].get<double>() - p) > 0.3 * std::fabs(p)) measured += " (off)";
      }
      out += fmt::format("| [{0}]({0}.md) | {1} | {2} | {3} | {4} | {5} | {6} | {7} |\n", name, change, w.value("workload", ""),
                         w.value("verdict", ""), s.contains("ratio") ? fmt::format("{:+.2f}%", 100 * (s["ratio"].get<double>() - 1)) : "-",
                         ms("predicted_saving_ms"), measured, v.at("environment").value("device", ""));
    }
  }
  return out;
}

std::string with_index(const std::string& page, const std::string& table) {
  const std::string block = fmt::format("{}\n{}{}\n", kIndexBegin, table, kIndexEnd);
  const size_t begin = page.find(kIndexBegin), end = page.find(kIndexEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return page + (page.empty() ? "" : "\n") + block;
  size_t after = end + std::string(kIndexEnd).size();
  if (after < page.size() && page[after] == '\n') ++after;
  return page.substr(0, begin) + block + page.substr(after);
}

}  // namespace experiments
