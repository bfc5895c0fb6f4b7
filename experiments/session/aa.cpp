#include "experiments/session/aa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/errors.h"
#include "base/json_place.h"
#include "base/json_read.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "base/say.h"
#include "base/utc.h"
#include "experiments/gate/plant_spec.h"
#include "experiments/runner/run_log.h"
#include "experiments/session/campaign_run.h"
#include "experiments/statistics/error_rate.h"
#include "experiments/verdict/document.h"
#include "experiments/verdict/ledger.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;
using stepscope::InputError;

// /1: pairs in turns. /2: processes alone.
constexpr const char *kTurnsSchema = "stepscope.aa/1", *kAloneSchema = "stepscope.aa/2";
constexpr int64_t kResampledTrials = 1000;

std::string too_few(const std::vector<PairValue>& pairs, const Thresholds& thresholds) {
  return fmt::format("{} pairs are too few to resample {} of them; `experiment resample FILE --pairs N --no-extension` draws fewer",
                     pairs.size(), thresholds.looks.front().pairs);
}

// nullopt: too few pairs.
std::optional<std::string> resampled(const std::vector<PairValue>& pairs, const Thresholds& thresholds) {
  std::string out;
  for (const double planted_pct : {0.0, 0.3, 1.0, 5.0}) {
    const auto r = resample_trials(pairs, thresholds, kResampledTrials, std::log1p(planted_pct / 100), 20261121);
    if (!r) return std::nullopt;
    out += fmt::format("  {} resampled trials, {:.1f}% planted: called different {:.1f}%, same {:.1f}%, undecided {:.1f}%\n", r->trials,
                       planted_pct, 100 * r->rate(), 100 * static_cast<double>(r->same) / static_cast<double>(r->trials),
                       100 * static_cast<double>(r->undecided) / static_cast<double>(r->trials));
  }
  for (const Look& l : thresholds.looks)
    if (static_cast<size_t>(l.pairs) > pairs.size()) {
      out += fmt::format("  {} pairs: looks from {} pairs on are left out, so a trial may end undecided that would have been decided\n",
                         pairs.size(), l.pairs);
      break;
    }
  std::vector<double> values;
  for (const auto& p : pairs) values.push_back(p.log_ratio);
  if (const auto e = estimate(values))
    out += fmt::format("  {} pairs: mean {:+.3f}%, sd {:.3f}%; bias of the procedure: {}\n", e->n, ratio_pct(e->mean), 100 * e->sd,
                       p_text(slot_bias_p_value(pairs).value_or(1)));
  else
    out += fmt::format("  {} pairs: their ratios are too far apart for a mean\n", values.size());
  return out;
}

// As the ledger keeps it: trials of different plans are different tests.
std::string procedure_of(const PairPlan& p, Procedure procedure) {
  std::vector<int> looks;
  for (const Look& l : p.thresholds.looks) looks.push_back(l.pairs);
  if (procedure == Procedure::alone)
    return fmt::format("alone, looks at {} pairs, settle {}, measure {} s", fmt::join(looks, "/"),
                       p.alone.settle_s ? fmt::format("{} s", *p.alone.settle_s) : "by rule", p.alone.measure_s);
  return fmt::format("looks at {} pairs, {} quads of {} s and {} steps", fmt::join(looks, "/"), p.quads, p.block_s, p.block_steps);
}

class Aa {
 public:
  Aa(SessionOptions options, const AaOptions& aa)
      : aa_(aa),
        plan_(options.plan),
        procedure_(options.procedure),
        plant_gpu_(options.plant_gpu),
        command_(options.command),
        git_revision_(options.git_revision),
        planted_(planted_pct(options)),
        session_(with_looks(std::move(options), aa.alone)) {}

  int run() {
    if (aa_.gate) {
      try {
        pass_the_gate();
      } catch (const Interrupted&) {
        stepscope::say("interrupted in the gate; nothing was measured");
        return 4;
      }
    }
    for (int trial = 1; trial <= (aa_.alone > 0 ? 1 : aa_.trials) && !session_.interrupted() && counts_.invalid == 0; ++trial)
      if (!take_trial(trial)) break;
    print_rates();
    return exit_code();
  }

 private:
  struct Counts {
    int faster = 0, slower = 0, same = 0, undecided = 0, invalid = 0;
    int trials() const { return faster + slower + same + undecided; }
  };

  static double planted_pct(const SessionOptions& options) {
    const auto spec = gate::plant_spec(options.plant_gpu);
    return spec ? spec->percent : options.plant_pct;
  }
  // A recording of processes alone is one look at all of them, and no turns behind it.
  static SessionOptions with_looks(SessionOptions options, int alone) {
    if (alone == 0) return options;
    options.plan.thresholds.looks = {{alone / 2, 0.02, 0.05, 0.02}};
    options.plan.alone.turns = 0;
    return options;
  }

  bool is_alone() const { return procedure_ == Procedure::alone; }
  bool is_planted() const { return planted_ > 0 || !plant_gpu_.empty(); }

  void pass_the_gate() {
    const GateSummary gate = session_.gate(aa_.arguments);
    for (const std::string& failure : gate.failures) stepscope::say("gate: " + failure);
    if (!gate.passed) throw std::runtime_error(fmt::format("the trainer did not pass the gate and is not timed: {}", gate.sentence));
  }

  // False: it was none, and there is no next one.
  bool take_trial(int trial) {
    const RunLog log = session_.run_identical(aa_.arguments);
    const Decision& d = log.decision;
    double seconds = log.seconds_alone;
    for (const auto& p : log.pairs) seconds += p.seconds;
    const bool is_trial = d.reason != reason::kInterrupted && aa_.alone == 0;
    // Before it is said: whoever reads may be gone, and then the first word ends this program.
    if (!is_planted()) keep(log);
    if (is_trial) count(d);
    fmt::print("trial {:2}: {} | {} | {:.0f} s\n", trial, name(d.verdict), d.sentence, seconds);
    for (const SelfCheckResult& c : log.self_checks) fmt::print("  {}{}\n", c.notice ? "NOTICE " : "", c.sentence);
    std::fflush(stdout);
    return is_trial;
  }

  void count(const Decision& d) {
    counts_.faster += d.verdict == Verdict::faster;
    counts_.slower += d.verdict == Verdict::slower;
    counts_.same += d.verdict == Verdict::same;
    counts_.undecided += d.verdict == Verdict::undecided;
    counts_.invalid += d.verdict == Verdict::invalid;
    if (d.log_ratio && d.verdict != Verdict::invalid)
      append_to_ledger(ledger_file(aa_.folder),
                       {stepscope::now_utc(), session_.device(), aa_.what, planted_, d.verdict, d.log_ratio->n, d.log_ratio->mean,
                        d.log_ratio->sd, procedure_of(plan_, procedure_), 100 * plan_.thresholds.minimum_effect});
  }

  void keep(const RunLog& log) {
    const int rounds = runs_.empty() ? 0 : runs_.back().pair + 1;
    for (AloneRun r : log.runs) {
      r.pair += rounds;
      runs_.push_back(std::move(r));
    }
    for (ordered_json& p : pairs_to_json(log)) pairs_.push_back(std::move(p));
    if (aa_.record.empty()) return;
    ordered_json out{{"schema", is_alone() ? kAloneSchema : kTurnsSchema},
                     {"at", stepscope::now_utc()},
                     {"device", session_.device()},
                     {"what", aa_.what},
                     {"command", command_},
                     {"git_revision", git_revision_}};
    if (is_alone())
      out["runs"] = runs_to_json(runs_);
    else
      out["pairs"] = pairs_;
    stepscope::write_output(aa_.record, verdict_text(out) + "\n");
  }

  void print_rates() const {
    const std::string device = session_.device();
    fmt::print("{}{}, planted {}%: {} faster, {} slower, {} same, {} undecided\n", aa_.what, device.empty() ? "" : " on " + device,
               planted_, counts_.faster, counts_.slower, counts_.same, counts_.undecided);
    if (planted_ == 0) {
      Thresholds standard;  // however the pairs were recorded, it is the plan of an experiment that is resampled
      if (is_alone()) standard.looks = alone_looks();
      standard.minimum_effect = plan_.thresholds.minimum_effect;
      const auto values = is_alone() ? sustained_values(runs_) : pair_values_from_json(pairs_, "pairs");
      fmt::print("{}", resampled(values, standard).value_or(too_few(values, standard) + "\n"));
    }
    fmt::print("{}\n", summarize(read_ledger(ledger_file(aa_.folder)), session_.device()).text());
  }

  int exit_code() const {
    if (aa_.alone > 0) return session_.interrupted() ? 4 : runs_.empty() ? 1 : 0;
    if (counts_.invalid > 0 || counts_.faster > 0 || (planted_ == 0 && counts_.slower > 0)) return 1;
    if (session_.interrupted()) return 4;
    return planted_ >= 1 && 10 * counts_.slower < 9 * counts_.trials() ? 1 : 0;
  }

  const AaOptions& aa_;
  const PairPlan plan_;
  const Procedure procedure_;
  const std::string plant_gpu_, command_, git_revision_;
  const double planted_;
  ExperimentSession session_;
  ordered_json pairs_ = ordered_json::array();
  std::vector<AloneRun> runs_;  // of all trials, their rounds numbered on
  Counts counts_;
};

}  // namespace

int run_aa(SessionOptions options, const AaOptions& aa) { return Aa(std::move(options), aa).run(); }

void resample_recordings(const std::vector<std::string>& files, Thresholds t, const std::function<std::vector<Look>(Procedure)>& looks) {
  for (const std::string& file : files) {
    const ordered_json d = stepscope::read_json<ordered_json>(stepscope::read_file(file));
    if (!d.is_object() || !d.contains("schema") ||
        !((d["schema"] == kTurnsSchema && d.contains("pairs")) || (d["schema"] == kAloneSchema && d.contains("runs"))))
      throw InputError(
          fmt::format("{}: expected a {} or {} document, as `experiment aa --record` writes it", file, kTurnsSchema, kAloneSchema));
    const bool alone = d["schema"] == kAloneSchema;
    const stepscope::JsonPlace place{file, ""};
    const auto text = [&](const char* key) {
      std::string out;
      if (d.contains(key)) place.in(key).get(d.at(key), out);
      return out;
    };
    const std::string heading = fmt::format("{} on {}, {}", text("what"), text("device"), text("at"));
    // By the plan of how it was recorded, unless told otherwise.
    t.looks = looks(alone ? Procedure::alone : Procedure::in_turns);
    const auto pairs = alone ? sustained_values(runs_from_json(d.at("runs"), file)) : pair_values_from_json(d.at("pairs"), file);
    const auto rates = resampled(pairs, t);
    if (!rates) throw InputError(fmt::format("{}: {}", file, too_few(pairs, t)));
    fmt::print("{}: {}\n{}", file, heading, *rates);
  }
}

}  // namespace experiments
