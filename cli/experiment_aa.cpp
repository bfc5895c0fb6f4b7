#include "cli/experiment_aa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <optional>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/read_file.h"
#include "base/utc.h"
#include "build_info.inc"
#include "experiments/gate/plant_spec.h"
#include "experiments/runner/run_log.h"
#include "experiments/statistics/error_rate.h"
#include "experiments/verdict/document.h"
#include "experiments/verdict/ledger.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using experiments::Verdict;
using nlohmann::ordered_json;
using stepscope::InputError;

// /1: pairs in turns. /2: processes alone.
constexpr const char *kTurnsSchema = "stepscope.aa/1", *kAloneSchema = "stepscope.aa/2";
constexpr int64_t kResampledTrials = 1000;

std::string too_few(const std::vector<experiments::PairValue>& pairs, const experiments::Thresholds& thresholds) {
  return fmt::format("{} pairs are too few to resample {} of them", pairs.size(), thresholds.looks.front().pairs);
}

// nullopt: too few pairs.
std::optional<std::string> resampled(const std::vector<experiments::PairValue>& pairs, const experiments::Thresholds& thresholds) {
  std::string out;
  for (const double planted_pct : {0.0, 0.3, 1.0, 5.0}) {
    const auto r = experiments::resample_trials(pairs, thresholds, kResampledTrials, std::log1p(planted_pct / 100), 20261121);
    if (!r) return std::nullopt;
    out += fmt::format("  {} resampled trials, {:.1f}% planted: called different {:.1f}%, same {:.1f}%, undecided {:.1f}%\n", r->trials,
                       planted_pct, 100 * r->rate(), 100 * static_cast<double>(r->same) / static_cast<double>(r->trials),
                       100 * static_cast<double>(r->undecided) / static_cast<double>(r->trials));
  }
  std::vector<double> values;
  for (const auto& p : pairs) values.push_back(p.log_ratio);
  if (const auto e = experiments::estimate(values))
    out += fmt::format("  {} pairs: mean {:+.3f}%, sd {:.3f}%; bias of the procedure: p = {:.2f}\n", e->n, experiments::ratio_pct(e->mean),
                       100 * e->sd, experiments::slot_bias_p_value(pairs).value_or(1));
  return out;
}

// As the ledger keeps it: trials of different plans are different tests.
std::string procedure_of(const experiments::PairPlan& p, experiments::Procedure procedure) {
  std::vector<int> looks;
  for (const experiments::Look& l : p.thresholds.looks) looks.push_back(l.pairs);
  if (procedure == experiments::Procedure::alone)
    return fmt::format("alone, looks at {} pairs, settle {}, measure {} s", fmt::join(looks, "/"),
                       p.alone.settle_s ? fmt::format("{} s", *p.alone.settle_s) : "by rule", p.alone.measure_s);
  return fmt::format("looks at {} pairs, {} quads of {} s and {} steps", fmt::join(looks, "/"), p.quads, p.block_s, p.block_steps);
}

// What would be measured and then not kept or not used is refused before anything is measured.
void check_flags(const AaFlags& f) {
  const bool planted = f.measure.plant_pct > 0 || !f.measure.plant_gpu.empty();
  if (planted && !f.record.empty())
    throw InputError("--record keeps pairs of identical code, and --plant makes them unlike: leave one of the two out");
  if (f.alone == 0) return;
  for (const Argument* o : f.measure.of_a_verdict)
    if (o->count() > 0)
      throw InputError(
          fmt::format("{}: --alone records processes that run alone, and decides nothing: leave one of the two out", o->name()));
  if (f.alone % 2 != 0) throw InputError(fmt::format("--alone is {}: expected an even number, as two processes make a pair", f.alone));
  if (f.record.empty()) throw InputError("--alone records processes: expected --record FILE, where they are kept");
}

}  // namespace

void run_aa(const AaFlags& f, const CommandLine& line, int& exit_code) {
  if (f.trials < 1) throw InputError(fmt::format("--trials is {}: expected at least 1", f.trials));
  check_flags(f);
  if (!f.record.empty()) gpt2::check_file_writable(f.record, "--record");
  const fs::path root = source_root(), folder = results_folder(f.out, root);
  const CatchInterrupt guard;
  TrainerFlags flags = f.trainer;
  if (const auto notice = settle(flags)) fmt::print(stderr, "stepscope: {}\n", *notice);
  std::vector<std::string> arguments = as_arguments(flags, flags.steps);
  arguments.erase(arguments.begin());  // "train"
  const experiments::Workload workload{flags.model, flags.batch_size, flags.seq_len, flags.matmul, std::nullopt};
  const std::string what = fmt::format("{} {}", flags.trainer, workload.text());
  experiments::SessionOptions options = session_options(f.measure, line);
  const experiments::Thresholds thresholds = options.plan.thresholds;
  const std::string procedure = procedure_of(options.plan, options.procedure);
  const bool alone = options.procedure == experiments::Procedure::alone;
  if (f.alone > 0) {
    options.plan.thresholds.looks = {{f.alone / 2, 0.02, 0.05, 0.02}};
    options.plan.alone.turns = 0;
  }
  experiments::ExperimentSession session(std::move(options));
  if (!f.no_gate) {
    experiments::GateSummary gate;
    try {
      gate = session.gate(arguments);
    } catch (const experiments::Interrupted&) {
      fmt::print(stderr, "stepscope: interrupted in the gate; nothing was measured\n");
      exit_code = 4;
      return;
    }
    for (const std::string& failure : gate.failures) fmt::print(stderr, "stepscope: gate: {}\n", failure);
    if (!gate.passed) throw std::runtime_error(fmt::format("the trainer did not pass the gate and is not timed: {}", gate.sentence));
  }
  ordered_json pairs = ordered_json::array();
  std::vector<experiments::AloneRun> runs;  // of all trials, their rounds numbered on
  int faster = 0, slower = 0, same = 0, undecided = 0;
  const std::string plant_gpu = f.measure.plant_gpu;
  const auto spec = gate::plant_spec(plant_gpu);
  const double planted = spec ? spec->percent : f.measure.plant_pct;
  bool failed = false;
  const auto record = [&] {
    if (f.record.empty()) return;
    ordered_json out{{"schema", alone ? kAloneSchema : kTurnsSchema},
                     {"at", stepscope::now_utc()},
                     {"device", session.device()},
                     {"what", what},
                     {"command", typed(line)},
                     {"git_revision", kGitRevision}};
    if (alone)
      out["runs"] = experiments::runs_to_json(runs);
    else
      out["pairs"] = pairs;
    gpt2::write_file_atomically(f.record, experiments::verdict_text(out) + "\n");
  };
  for (int trial = 1; trial <= (f.alone > 0 ? 1 : f.trials) && !session.interrupted() && !failed; ++trial) {
    const experiments::RunLog log = session.run_identical(arguments);
    const experiments::Decision& d = log.decision;
    double seconds = log.seconds_alone;
    for (const auto& p : log.pairs) seconds += p.seconds;
    fmt::print("trial {:2}: {} | {} | {:.0f} s\n", trial, name(d.verdict), d.sentence, seconds);
    for (const experiments::SelfCheckResult& c : log.self_checks) fmt::print("  {}{}\n", c.notice ? "NOTICE " : "", c.sentence);
    std::fflush(stdout);
    if (planted == 0 && plant_gpu.empty()) {
      const int rounds = runs.empty() ? 0 : runs.back().pair + 1;
      for (experiments::AloneRun r : log.runs) {
        r.pair += rounds;
        runs.push_back(std::move(r));
      }
      for (ordered_json& p : experiments::pairs_to_json(log)) pairs.push_back(std::move(p));
      record();
    }
    if (d.reason == experiments::reason::kInterrupted || f.alone > 0) break;  // it was no trial
    faster += d.verdict == Verdict::faster;
    slower += d.verdict == Verdict::slower;
    same += d.verdict == Verdict::same;
    undecided += d.verdict == Verdict::undecided;
    failed = d.verdict == Verdict::invalid;
    if (d.log_ratio && d.verdict != Verdict::invalid)
      experiments::append_to_ledger(ledger_file(folder), {stepscope::now_utc(), session.device(), what, planted, d.verdict, d.log_ratio->n,
                                                          d.log_ratio->mean, d.log_ratio->sd, procedure, 100 * thresholds.minimum_effect});
  }
  fmt::print("{} on {}, planted {}%: {} faster, {} slower, {} same, {} undecided\n", what, session.device(), planted, faster, slower, same,
             undecided);
  if (planted == 0) {
    experiments::Thresholds standard;  // however the pairs were recorded, it is the plan of an experiment that is resampled
    if (alone) standard.looks = experiments::alone_looks();
    standard.minimum_effect = thresholds.minimum_effect;
    const auto values = alone ? experiments::sustained_values(runs) : experiments::pair_values_from_json(pairs, "pairs");
    fmt::print("{}", resampled(values, standard).value_or(too_few(values, standard) + "\n"));
  }
  fmt::print("{}\n", experiments::summarize(experiments::read_ledger(ledger_file(folder)), session.device()).text());
  const int trials = faster + slower + same + undecided;
  if (f.alone > 0) {
    exit_code = session.interrupted() ? 4 : runs.empty() ? 1 : 0;
    return;
  }
  if (failed || faster > 0 || (planted == 0 && slower > 0))
    exit_code = 1;
  else if (session.interrupted())
    exit_code = 4;
  else if (planted >= 1 && 10 * slower < 9 * trials)
    exit_code = 1;
}

void resample_recordings(const std::vector<std::string>& files, const MeasureFlags& measure) {
  experiments::Thresholds t = measure.plan.thresholds;
  if (measure.minimum_effect_pct > 0) t.minimum_effect = measure.minimum_effect_pct / 100;
  for (const std::string& file : files) {
    const ordered_json d = ordered_json::parse(stepscope::read_file(file), nullptr, false);
    if (!d.is_object() || !d.contains("schema") ||
        !((d["schema"] == kTurnsSchema && d.contains("pairs")) || (d["schema"] == kAloneSchema && d.contains("runs"))))
      throw InputError(
          fmt::format("{}: expected a {} or {} document, as `experiment aa --record` writes it", file, kTurnsSchema, kAloneSchema));
    const bool alone = d["schema"] == kAloneSchema;
    // By the plan of how it was recorded, unless told otherwise.
    MeasureFlags plan = measure;
    plan.quick = !alone;
    t.looks = planned_looks(plan);
    const auto pairs = alone ? experiments::sustained_values(experiments::runs_from_json(d.at("runs"), file))
                             : experiments::pair_values_from_json(d.at("pairs"), file);
    const auto rates = resampled(pairs, t);
    if (!rates) throw InputError(fmt::format("{}: {}", file, too_few(pairs, t)));
    fmt::print("{}: {} on {}, {}\n{}", file, d.value("what", ""), d.value("device", ""), d.value("at", ""), *rates);
  }
}

}  // namespace cli
