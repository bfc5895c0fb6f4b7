// verdict.json, "stepscope.verdict/1": everything that a run of an experiment found, and enough of how to
// doubt it. Pages, index, list and campaign correction read only this. docs/experiments.md lists the fields.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/plan/experiment_file.h"
#include "experiments/runner/pair_runner.h"
#include "experiments/verdict/ledger.h"
#include "experiments/verdict/same_code.h"
#include "experiments/verdict/same_launches.h"
#include "profiler/diff/waterfall.h"

namespace experiments {

inline constexpr std::string_view kVerdictSchema = "stepscope.verdict/1";

struct GateSummary {
  bool passed = false;
  std::string sentence;               // "112 checks passed (seed 7)", "frozen, as in its manifest", "no gate was given for
                                      // this command"
  bool checked = false;               // false: nothing judged its correctness; only a command of the user may be so
  std::vector<std::string> failures;  // of the gate, one line each
};

struct ArmReport {
  std::vector<std::string> command;
  std::string trainer;         // "" = a foreign command
  std::string program_sha256;  // "" = not ours to hash
  GateSummary gate;
  std::optional<SameLaunches> launches;
  std::string launches_absent = "not traced";  // why they were not compared
};

struct WorkloadResult {
  Workload workload;
  ArmReport a, b;
  RunLog log;
  std::optional<profiler::Waterfall> waterfall;
  std::string waterfall_absent;  // why there is none
  std::optional<SameCode> same_code;
  double planted_pct = 0;
};

struct RunFacts {
  std::string at;  // UTC
  std::string git_revision, device, driver;
  std::string a_sources_sha256, b_sources_sha256;
  LedgerSummary ledger;
  Thresholds thresholds;
  std::string command;
};

// The verdict of one workload: that of the statistics, or `same` when both arms ran the same code with nothing planted. The same
// code that was measured faster or slower is undecided: either a kernel's arguments differ, or this is one of the false claims
// that the ledger counts.
Verdict verdict_of(const WorkloadResult& result);
// Of a whole experiment: invalid before slower before undecided before faster before same.
Verdict overall(const std::vector<Verdict>& verdicts);

// `experiment` absent: two commands, or an A/A run.
nlohmann::ordered_json verdict_document(const std::string& name, const std::optional<Experiment>& experiment,
                                        const std::vector<WorkloadResult>& results, const RunFacts& facts);

// Throws stepscope::InputError naming the file: not JSON, another schema, a section missing.
nlohmann::ordered_json load_verdict(const std::filesystem::path& file);
// JSON with a line for each block of a pair: a line for each number would be thirty times as many.
std::string verdict_text(const nlohmann::ordered_json& document, int depth = 0);
void save_verdict(const std::filesystem::path& file, const nlohmann::ordered_json& document);

// Holm over all claims of these documents (one campaign); changed ones get their new verdicts. True for each
// that changed.
std::vector<bool> correct_campaign(std::vector<nlohmann::ordered_json>& documents, const Thresholds& thresholds);

// A text of a section of a document, such as ("environment", "device"); "" when there is none.
std::string text_in(const nlohmann::ordered_json& document, const char* section, const char* key);
// Of a document, or of one of its workloads.
Verdict verdict_in(const nlohmann::ordered_json& at);

// 0 good · 1 slower or invalid · 4 undecided.
int exit_code_of(Verdict verdict);
// Worse than before, in any workload: invalid; slower where it was not, or no longer faster where it was; or, against a frozen
// baseline, a ratio whose interval lies above the old one by at least the minimum effect. `before` counts only when it is
// of the same device and experiment file and not invalid: without one, only an invalid verdict is a regression.
bool is_regression(const std::optional<nlohmann::ordered_json>& before, const nlohmann::ordered_json& now);
// Nothing was decided for a reason that has nothing to do with the arms: ctrl-C, somebody else on the device.
bool was_cut_short(const nlohmann::ordered_json& document);
// Decides again from the recorded pairs, as the thresholds in the document say, and takes back what the correction of a campaign
// had made of it; what measured nothing stays as it is.
void decide_again(nlohmann::ordered_json& document);

}  // namespace experiments
