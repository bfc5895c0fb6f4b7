#include "experiments/verdict/ledger.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "experiments/statistics/error_rate.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;

std::string line_of(const LedgerEntry& e) {
  ordered_json line{{"at", e.at},
                    {"device", e.device},
                    {"what", e.what},
                    {"planted_pct", e.planted_pct},
                    {"verdict", name(e.verdict)},
                    {"pairs", e.pairs},
                    {"log_ratio_mean", e.log_ratio_mean},
                    {"log_ratio_sd", e.log_ratio_sd}};
  if (!e.procedure.empty()) line["procedure"] = e.procedure;
  line["minimum_effect_pct"] = e.minimum_effect_pct;
  return line.dump();
}

}  // namespace

std::vector<LedgerEntry> read_ledger(const std::filesystem::path& file) {
  std::vector<LedgerEntry> out;
  std::ifstream in(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    try {
      const ordered_json j = ordered_json::parse(line);
      LedgerEntry e;
      e.at = j.at("at").get<std::string>();
      e.device = j.at("device").get<std::string>();
      e.what = j.at("what").get<std::string>();
      e.planted_pct = j.at("planted_pct").get<double>();
      const auto verdict = verdict_from_name(j.at("verdict").get<std::string>());
      if (!verdict) throw stepscope::InputError(fmt::format("{}:{}: unknown verdict {}", file.string(), number, j.at("verdict").dump()));
      e.verdict = *verdict;
      e.pairs = j.at("pairs").get<int>();
      e.log_ratio_mean = j.at("log_ratio_mean").get<double>();
      e.log_ratio_sd = j.at("log_ratio_sd").get<double>();
      e.procedure = j.value("procedure", "");
      e.minimum_effect_pct = j.value("minimum_effect_pct", 0.3);
      out.push_back(std::move(e));
    } catch (const nlohmann::json::exception& e) {
      throw stepscope::InputError(fmt::format("{}:{}: {}", file.string(), number, e.what()));
    }
  }
  return out;
}

void append_to_ledger(const std::filesystem::path& file, const LedgerEntry& entry) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  const std::string line = line_of(entry) + "\n";
  const gpt2::Descriptor out(open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (!out || write(out.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) || fsync(out.get()) != 0)
    throw stepscope::InputError(fmt::format("{}: cannot be written: {}", file.string(), std::strerror(errno)));
}

LedgerSummary summarize(const std::vector<LedgerEntry>& entries, const std::string& device) {
  LedgerSummary s;
  for (const LedgerEntry& e : entries) {
    if (e.planted_pct != 0 || e.verdict == Verdict::invalid || e.device != device || e.pairs < kFewestPairs ||
        e.minimum_effect_pct > kMostMinimumEffect_pct)
      continue;
    ++s.trials;
    s.false_claims += e.verdict == Verdict::faster || e.verdict == Verdict::slower;
  }
  s.bound_95_pct = 100 * rate_upper_bound(s.false_claims, s.trials);
  return s;
}

std::string LedgerSummary::text() const {
  if (trials == 0) return "A/A ledger: no comparison of identical code was recorded on this device";
  return fmt::format(
      "A/A ledger: {} of {} comparisons of identical code on this device called different (95% bound on the "
      "rate: {:.1f}%)",
      false_claims, trials, bound_95_pct);
}

}  // namespace experiments
