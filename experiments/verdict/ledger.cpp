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
#include "base/json_read.h"
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

// The fields of a line that somebody may have edited.
struct Fields {
  const ordered_json& line;
  const std::string& place;

  [[noreturn]] void fail(const char* name, std::string_view expected) const {
    const auto found = line.find(name);
    throw stepscope::InputError(fmt::format("{}: \"{}\" is {}, expected {}", place, name,
                                            found == line.end() ? "missing" : stepscope::shown_json(*found), expected));
  }
  std::string text(const char* name) const {
    const auto found = line.find(name);
    if (found == line.end() || !found->is_string()) fail(name, "a text");
    return found->get<std::string>();
  }
  double number(const char* name) const {
    const auto found = line.find(name);
    if (found == line.end() || !found->is_number()) fail(name, "a number");
    return found->get<double>();
  }
  int whole(const char* name) const {
    const double value = number(name);
    if (!(value >= 0 && value <= 1e9 && value == static_cast<int>(value))) fail(name, "a whole number");
    return static_cast<int>(value);
  }
};

// True of no file and of an empty one.
bool ends_with_its_line(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return true;
  in.seekg(-1, std::ios::end);
  return in.get() == '\n';
}

}  // namespace

std::vector<LedgerEntry> read_ledger(const std::filesystem::path& file) {
  std::vector<LedgerEntry> out;
  std::ifstream in(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty()) continue;
    const std::string place = fmt::format("{}:{}", file.string(), number);
    const auto j = stepscope::read_json<ordered_json>(line);
    if (!j.is_object())
      throw stepscope::InputError(
          fmt::format("{}: no entry of the ledger: {}", place, stepscope::why_no_object_in_line(line, file.string())));
    const Fields of{j, place};
    LedgerEntry e;
    e.at = of.text("at");
    e.device = of.text("device");
    e.what = of.text("what");
    e.planted_pct = of.number("planted_pct");
    const auto verdict = verdict_from_name(of.text("verdict"));
    if (!verdict) of.fail("verdict", "faster, slower, same, undecided or invalid");
    e.verdict = *verdict;
    e.pairs = of.whole("pairs");
    e.log_ratio_mean = of.number("log_ratio_mean");
    e.log_ratio_sd = of.number("log_ratio_sd");
    // Old entries lack these two.
    if (j.contains("procedure")) e.procedure = of.text("procedure");
    if (j.contains("minimum_effect_pct")) e.minimum_effect_pct = of.number("minimum_effect_pct");
    out.push_back(std::move(e));
  }
  return out;
}

void append_to_ledger(const std::filesystem::path& file, const LedgerEntry& entry) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  // An editor may have left the last line without its end: two entries in one line would be none.
  const std::string line = (ends_with_its_line(file) ? "" : "\n") + line_of(entry) + "\n";
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
