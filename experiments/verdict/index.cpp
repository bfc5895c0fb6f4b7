#include "experiments/verdict/index.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "experiments/verdict/page.h"
#include "experiments/verdict/words.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;

std::string ms_cell(const std::optional<double>& v) { return v ? fmt::format("{:+.3f}", *v) : "-"; }

std::string measured_cell(const WorkloadSection& w) { return ms_cell(w.saved_ms) + (prediction_is_off(w) ? " (off)" : ""); }

std::string predicted_cell(const VerdictDocument& v, const WorkloadSection& w) {
  const bool shown = v.experiment && v.experiment->prediction && v.experiment->prediction->shown_earlier;
  return ms_cell(w.predicted_saving_ms) + (w.predicted_saving_ms && !shown ? " (not shown to be earlier)" : "");
}

// What a reader compares: verdict first, then the two ratios under their names, then why they differ.
std::string row(const VerdictDocument& v, const WorkloadSection& w, const std::string& studies) {
  std::string change = v.experiment ? v.experiment->change : "";
  if (change.starts_with("--")) change = "`" + change + "`";
  const Statistics* sustained = w.sustained_statistics();
  const auto equal = w.at_equal_clocks();
  const auto of_arms = [&](auto member, int decimals) {
    return w.sustained ? both(w.sustained->a.*member, w.sustained->b.*member, decimals) : "-";
  };
  return fmt::format("| [{0}]({1}{0}/{2}) | {3} | {4} | {5}{6} | {7} | {8} | {9} | {10} | {11} | {12} | {13} | {14} | {15} |\n", v.name,
                     studies.empty() ? "" : studies + "/", kPageName, change, w.workload, name(w.verdict),
                     v.code.dirty() ? " (uncommitted changes)" : "", sustained ? ratio_text(*sustained) : "-",
                     equal ? ratio_text(equal) + (w.whole_programs ? " (a burst)" : "") : "-", of_arms(&SustainedArm::sm_clock_mhz, 0),
                     of_arms(&SustainedArm::joules_per_step, 2), of_arms(&SustainedArm::power_w, 0),
                     of_arms(&SustainedArm::cap_cost_pct, 1), predicted_cell(v, w), measured_cell(w), v.environment.device);
}

}  // namespace

std::vector<fs::path> verdict_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing))
    if (entry.is_directory() && fs::exists(entry.path() / "verdict.json")) files.push_back(entry.path() / "verdict.json");
  std::sort(files.begin(), files.end());
  return files;
}

std::string why_in_the_wrong_folder(const VerdictDocument& v, const fs::path& file) {
  const std::string folder = file.parent_path().filename().string();
  if (v.name == folder) return "";
  return fmt::format("it is the verdict of {}, expected that of {}, by the name of its folder", v.name, folder);
}

std::vector<VerdictDocument> read_verdicts(const fs::path& folder) {
  std::vector<VerdictDocument> out;
  for (const fs::path& file : verdict_files(folder)) {
    out.push_back(load_verdict(file));
    if (const std::string why = why_in_the_wrong_folder(out.back(), file); !why.empty())
      throw stepscope::InputError(fmt::format("{}: {}", file.string(), why));
  }
  return out;
}

std::string index_table(const std::vector<VerdictDocument>& verdicts, const std::string& studies) {
  std::string out =
      "| experiment | change | workload | verdict | B / A sustained | B / A at equal clocks | SM clock A → B, MHz | J/step A → B | power A "
      "→ B, W | the "
      "cap costs A → B, % | predicted ms | measured ms | device |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  std::string differ;
  for (const VerdictDocument& v : verdicts) {
    for (const WorkloadSection& w : v.workloads) out += row(v, w, studies);
    if (const std::string d = differences_text(v); !d.empty()) differ += fmt::format("- {}: {}\n", v.name, d);
  }
  return out + (differ.empty() ? "" : "\n" + differ);
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
