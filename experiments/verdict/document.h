// verdict.json, "stepscope.verdict/2": everything that a run of an experiment found, and enough of how to doubt it. Pages, index, list
// and campaign correction read only this. fields.cpp and fields_measured.cpp list every member once; docs/verdict-document.md is made from that list.
//
// The traps: a verdict of "stepscope.verdict/1" is read too, and its ratio is the one at equal clocks (in turns), which at a power cap is
// another quantity than the sustained one. And a number of the device belongs to the process or block that names it, or is absent: NVML's
// power is a mean over one second, so that no block of milliseconds has one.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/revision.h"
#include "experiments/runner/pair_runner.h"
#include "experiments/statistics/decision.h"
#include "experiments/verdict/same_code.h"
#include "experiments/verdict/same_launches.h"

namespace experiments {

inline constexpr std::string_view kVerdictSchema = "stepscope.verdict/2";
inline constexpr std::string_view kFirstVerdictSchema = "stepscope.verdict/1";  // only read

// NVML's power is the mean over the last second: a block shorter than that has none of its own.
inline constexpr double kPowerWindow_ns = 1e9;

using Json = nlohmann::ordered_json;
using Range = std::array<double, 2>;  // low, high

struct LookSection {
  int64_t pairs = 0;
  double alpha = 0, equivalence_alpha = 0;
  std::optional<double> sign_flip_alpha;
};
struct ThresholdsSection {
  std::vector<LookSection> looks;
  double alpha = 0.02, minimum_effect_pct = 0.3, equivalence_bound_pct = 0.5, power = 0.8;
};

struct LedgerSection {
  int64_t trials = 0, false_claims = 0;
  double bound_95_pct = 100;
  std::string sentence;
};

// Whether the history shows that the prediction is older than the measurement (prediction.h).
struct PredictionProof {
  bool shown_earlier = false;
  std::string sentence;
  std::optional<std::string> commit, committed_at;
};

struct ExperimentSection {
  std::string question, hypothesis, change, baseline, trainer;
  bool compound = false;
  std::string arithmetic, file_sha256;
  std::optional<PredictionProof> prediction;
  bool against_frozen() const { return baseline != "defaults"; }
};

struct CodeSection {
  std::string git_revision;
  std::string a_sources_sha256, b_sources_sha256;  // "" = not hashed: a frozen baseline has its manifest
  std::string a_revision;                          // that arm A was built from; "" = the same tree as arm B
  std::string patch_sha256;                        // of the patch that arm B's sources have beyond arm A's; "" = none
  std::vector<std::string> earlier_revisions;      // of commands whose rounds count too, oldest first; the step's sources were the same
  const std::string& first_revision() const { return earlier_revisions.empty() ? git_revision : earlier_revisions.front(); }
  bool dirty() const { return stepscope::has_uncommitted_changes(git_revision); }
};

struct DeviceSection {
  std::string device, driver;
};

inline constexpr char kGateInterrupted[] = "interrupted";  // the sentence of a gate that ctrl-C ended: it found nothing wrong

struct GateSummary {
  bool passed = false;
  std::string sentence;               // "112 checks passed (seed 7)", "frozen, as in its manifest", "no gate was given for
                                      // this command"
  bool checked = false;               // false: nothing judged its correctness; only a command of the user may be so
  std::vector<std::string> failures;  // of the gate, one line each
  std::string checked_by = "";        // an earlier command, whose rounds count too: its revision and its time; "": this one
};

struct ArmReport {
  std::vector<std::string> command;
  std::string trainer;         // "" = a foreign command
  std::string program_sha256;  // "" = not ours to hash
  // MiB of gradients that its ranks exchange at a time; absent: one GPU, or measured when that was 25 without a flag.
  std::optional<int64_t> bucket_mib;
  GateSummary gate;
  std::optional<SameLaunches> launches;
  std::string launches_absent;  // why they were not compared
  Json said;                    // what the arm said it is
};

// What a Decision says, ratios as B / A instead of their logarithms.
struct Statistics {
  Verdict verdict = Verdict::undecided;
  std::string reason, sentence;
  int64_t look = 1;
  double alpha = 0.02;
  std::optional<int64_t> pairs;
  std::optional<double> ratio, log_ratio_mean, log_ratio_sd;
  std::optional<Range> ratio_interval;
  std::optional<double> p_value, sign_flip_p_value, campaign_p_value, equivalence_p_value, minimum_detectable_effect_pct, within_pair_error;
  bool process_modes = false;
};
Statistics statistics_of(const Decision& decision);
Decision decision_of(const Statistics& statistics);

// A ratio B / A over pairs that decides nothing.
struct RatioSection {
  double ratio = 1;
  Range ratio_interval{1, 1};
  double log_ratio_sd = 0;
  int64_t pairs = 0;
};

struct EqualClocksSection {
  EqualClocksBy by = EqualClocksBy::turns;
  RatioSection ratio;
  std::optional<double> sm_clock_mhz;
};

struct SustainedSection {
  SustainedArm a, b;
  std::optional<RatioSection> joules_per_step, sm_clock, power;
  double settle_s = 0, measure_s = 0, seconds_alone = 0;
  std::optional<int64_t> commands;  // that measured it one after the other, where there was more than one
  std::string settle_rule;
  std::optional<double> max_sm_clock_mhz, power_limit_w;
  std::string shared_with;  // "" = arm A ran for this experiment alone
};

struct MemorySection {
  double a_bytes = 0, b_bytes = 0, delta_bytes = 0;
};

struct AuditRow {
  char arm = 'A';
  std::string check, what;
  double value = 0, limit = 0;
};
struct AuditSection {
  int64_t steps_again_checks = 0;
  std::vector<AuditRow> worst;
};

struct SoloSection {  // of schema 1: one process of each arm alone, medians
  double a_step_ns = 0, b_step_ns = 0, seconds = 0;
};

struct WaterfallKernel {
  std::string change, pass, op, kernel;
  int64_t a_launches = 0, b_launches = 0;
  double a_ns = 0, b_ns = 0, delta_ns = 0;
  std::optional<double> a_dram_bytes, b_dram_bytes;
};
struct WaterfallOther {
  int64_t kernels = 0, a_launches = 0, b_launches = 0;
  double a_ns = 0, b_ns = 0, delta_ns = 0;
};
struct WaterfallSum {
  double a_ns = 0, b_ns = 0, delta_ns = 0;
};
struct WaterfallOpRow {
  std::string pass, op;
  double a_ns = 0, b_ns = 0, delta_ns = 0;
};
struct WaterfallSection {
  double a_ns = 0, b_ns = 0, delta_ns = 0;
  std::vector<WaterfallKernel> kernels;
  WaterfallOther other;
  WaterfallSum idle, rest;
  std::vector<WaterfallOpRow> ops;
};

// The device over the blocks of a measurement in turns. Processes alone have theirs in runs[].
struct EnvironmentSection {
  std::string absent;  // why nothing was sampled
  std::optional<int64_t> blocks, sampled_blocks, power_capped_blocks, throttled_blocks;
  std::optional<double> temperature_c_first, temperature_c_max, power_w_max, heating_c_per_10_s_max;
  std::vector<int64_t> heating_pairs;
  std::optional<double> a_sm_clock_mhz_median, b_sm_clock_mhz_median;
};

struct BlockRow {
  char arm = 'A';
  int64_t quad = 0;
  double at_s = 0, step_ns = 0;
  int64_t steps = 0;
  std::optional<double> loss;
  std::optional<double> sm_clock_mhz, power_w, temperature_c;  // of samples taken in this block
  std::optional<int64_t> samples;
  std::optional<uint64_t> throttle_reasons;
};
struct PairRow {
  double log_ratio = 0;
  std::optional<double> error, log_ratio_cycles;
  char started_first = 'A';
  bool stationary = true;
  double seconds = 0;
  std::vector<BlockRow> blocks;
};

struct WorkloadSection {
  std::string workload, model;
  int64_t batch_size = 0, seq_len = 0;
  std::optional<int64_t> a_gpus, b_gpus;  // where one of them is not 1
  std::string matmul;
  Verdict verdict = Verdict::undecided;
  std::string reason, sentence;
  Procedure procedure = Procedure::in_turns;  // what `statistics` is the ratio of
  bool whole_programs = false;                // each block or process was a program from its start to its end
  Statistics statistics;
  std::optional<EqualClocksSection> equal_clocks;  // beside a verdict alone
  std::string equal_clocks_absent;
  std::optional<Statistics> statistics_in_cycles;
  std::optional<SustainedSection> sustained;
  std::vector<SelfCheckResult> self_checks;
  std::optional<double> a_step_ns, b_step_ns, saved_ms;
  std::optional<Range> saved_ms_interval;
  std::optional<double> predicted_saving_ms, planted_pct;
  uint64_t seed = 0;
  std::optional<MemorySection> memory;
  ArmReport a, b;
  std::optional<AuditSection> audit;
  std::optional<SoloSection> solo;
  std::string solo_absent;
  std::optional<SameCode> same_code;
  std::optional<WaterfallSection> waterfall;
  std::string waterfall_absent;
  EnvironmentSection environment;
  std::vector<AloneRun> runs;
  std::vector<PairRow> pairs;

  // The ratio of sustained step times, and the one at equal clocks; null where it was not measured.
  const Statistics* sustained_statistics() const { return procedure == Procedure::alone ? &statistics : nullptr; }
  std::optional<RatioSection> at_equal_clocks() const;
};

struct VerdictDocument {
  std::string schema{kVerdictSchema};  // as it was read; every document is written as kVerdictSchema
  std::string name, at;                // UTC
  Verdict verdict = Verdict::undecided;
  std::optional<ExperimentSection> experiment;  // absent: two commands, or an A/A run
  std::string command;
  CodeSection code;
  DeviceSection environment;
  ThresholdsSection thresholds;
  LedgerSection ledger;
  std::vector<WorkloadSection> workloads;
  std::string content_sha256;  // as it was read; to_json makes it anew
};

// The file cannot be read, or is none of ours: no JSON, or another schema.
struct NoVerdict : stepscope::InputError {
  using InputError::InputError;
};

// Throws NoVerdict, and stepscope::InputError naming the file and the field: one that is missing, unknown or of another type, a level or look
// with which nothing can be decided, a content that does not fit the hash inside (schema 2 only; schema 1 has none).
VerdictDocument load_verdict(const std::filesystem::path& file);
VerdictDocument verdict_from_json(const Json& json, const std::string& source);
// With its content_sha256 at the end. Throws stepscope::InputError for a number that is not finite.
Json to_json(const VerdictDocument& document);
// JSON with a line for each object that holds no other one, such as a block or a process: a line for each number would be thirty times as many.
std::string verdict_text(const Json& json, int depth = 0);
// Atomically.
void save_verdict(const std::filesystem::path& file, const VerdictDocument& document);
// A place where two documents differ, with what stands there as JSON; "" = it is not there.
struct Difference {
  std::string path, was, now;  // "workloads[0].statistics.ratio"
};
// But for content_sha256, and for what is left of a number by other roundings on its way (1e-9 of it): a p-value made again by another
// version of Boost or another compiler is no news.
std::vector<Difference> differences(const Json& was, const Json& now);
bool says_the_same(const Json& a, const Json& b);  // they have none
// SHA-256 of the compact JSON of all fields but content_sha256.
std::string content_sha256(Json json);

// Median over an arm's blocks in turns; nullopt without blocks.
std::optional<double> median_step_ns(const std::vector<PairRow>& pairs, char arm);

// Of a whole experiment: invalid before slower before undecided before faster before same.
Verdict overall(const std::vector<Verdict>& verdicts);
Verdict verdict_of(const VerdictDocument& document);
// 0 good · 1 slower or invalid · 4 undecided.
int exit_code_of(Verdict verdict);
Thresholds thresholds_of(const VerdictDocument& document);

}  // namespace experiments
