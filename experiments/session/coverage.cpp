#include "experiments/session/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/output_file.h"
#include "base/utc.h"
#include "experiments/runner/run_log.h"
#include "experiments/verdict/document.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;

constexpr double kTruthAlpha = 0.02;

double half_of(const Interval& i) { return (i.high - i.low) / 2; }

bool less_certain(const Truth& truth, const Interval& interval) { return truth.half > half_of(interval); }

std::optional<bool> holds(const std::optional<Interval>& interval, const std::optional<Truth>& truth) {
  if (!interval || !truth || less_certain(*truth, *interval)) return std::nullopt;
  const double middle = (interval->low + interval->high) / 2;
  return std::fabs(middle - truth->rounds.mean) <= std::hypot(half_of(*interval), truth->half);
}

// The spread of all plants' rounds about their own means, and its degrees of freedom. All plants of a round share a process of arm A, so their
// values are correlated by 1/2 where arms spread alike, and their variances by 1/4: `plants` of them are worth plants / (1 + (plants - 1) / 4).
void judge_certainty(std::span<CoverageRow> rows) {
  double squares = 0;
  int degrees = 0, plants = 0;
  for (const CoverageRow& r : rows) {
    if (!r.truth) continue;
    squares += r.truth->rounds.sd * r.truth->rounds.sd * (r.truth->rounds.n - 1);
    degrees += r.truth->rounds.n - 1;
    ++plants;
  }
  if (plants == 0) return;
  const double sd = std::sqrt(squares / degrees);
  const int independent = std::max(1, static_cast<int>(degrees / (1 + (plants - 1) / 4.0)));
  for (CoverageRow& r : rows)
    if (r.truth) r.truth->half = t_half_width(sd, r.truth->rounds.n, independent, kTruthAlpha);
}

std::optional<Interval> interval_of(const std::optional<EqualClocks>& e) { return e ? std::optional(e->ratio.interval) : std::nullopt; }

std::string percent(const std::optional<Interval>& i) {
  return i ? fmt::format("[{:+.2f}%, {:+.2f}%]", ratio_pct(i->low), ratio_pct(i->high)) : "-";
}

struct Count {
  int64_t judged = 0, held = 0;
};
Count count(std::span<const CoverageRow> rows, std::optional<bool> (CoverageRow::*held)() const) {
  Count out;
  for (const CoverageRow& r : rows) {
    const std::optional<bool> answer = (r.*held)();
    out.judged += answer.has_value();
    out.held += answer.value_or(false);
  }
  return out;
}

const char* yes_no(const std::optional<bool>& held) { return !held ? "-" : *held ? "yes" : "NO"; }

ordered_json percent_json(const std::optional<Interval>& i) {
  return i ? ordered_json{ratio_pct(i->low), ratio_pct(i->high)} : ordered_json();
}

ordered_json to_json(const std::optional<bool>& held) { return held ? ordered_json(*held) : ordered_json(); }

ordered_json to_json(const CoverageRow& r, const RunLog& verdict, const RunLog& truth) {
  return {{"plant", r.plant},
          {"verdict", name(r.decision.verdict)},
          {"sentence", r.decision.sentence},
          {"interval_pct", percent_json(r.decision.interval)},
          {"equal_clocks_by", r.equal_clocks ? ordered_json(name(r.equal_clocks->by)) : ordered_json()},
          {"equal_clocks_interval_pct", percent_json(interval_of(r.equal_clocks))},
          {"truth_pct", r.truth ? ordered_json(ratio_pct(r.truth->rounds.mean)) : ordered_json()},
          {"truth_rounds_sd_pct", r.truth ? ordered_json(100 * r.truth->rounds.sd) : ordered_json()},
          {"truth_failed", r.truth_failed.empty() ? ordered_json() : ordered_json(r.truth_failed)},
          {"truth_half_pct", r.truth ? ordered_json(100 * r.truth->half) : ordered_json()},
          {"held", to_json(r.held())},
          {"held_at_equal_clocks", to_json(r.held_at_equal_clocks())},
          {"planted", truth.b_info.is_object() ? truth.b_info.value("plant_gpu", ordered_json()) : ordered_json()},
          {"settle_s", verdict.settle_s},
          {"measure_s", verdict.measure_s},
          {"runs", runs_to_json(verdict.runs)},
          {"truth_runs", runs_to_json(truth.runs)}};
}

class Coverage {
 public:
  Coverage(SessionOptions options, const CoverageOptions& coverage)
      : o_(coverage), plan_(options.plan), command_(options.command), git_revision_(options.git_revision), session_(std::move(options)) {}

  // The truth first: whoever is interrupted later has something to hold the intervals against that are decided by then.
  int run() {
    plan_.steps_again = false;  // both arms run the same code, so nothing is taken again to check it
    truths_ = session_.run_planted(o_.arguments, o_.plants, long_runs(), [&](std::span<const RunLog> so_far) { keep({}, so_far); });
    std::vector<RunLog> verdicts(o_.plants.size());
    plan_.alone.heat_s = std::min(plan_.alone.heat_s, AlonePlan().heat_s);  // the long runs have heated the device
    if (std::ranges::none_of(truths_, [](const RunLog& l) { return l.decision.reason == reason::kInterrupted; }))
      verdicts = session_.run_planted(o_.arguments, o_.plants, plan_, [&](std::span<const RunLog> so_far) { keep(so_far, truths_); });
    keep(verdicts, truths_);
    const std::vector<CoverageRow> rows = coverage_rows(o_.plants, verdicts, truths_);
    print(rows);
    return coverage_exit_code(rows);
  }

 private:
  // One look, after all rounds: nothing is decided.
  PairPlan long_runs() const {
    PairPlan p = plan_;
    p.thresholds.looks = {{o_.truth_rounds, 0.02, 0.05, 0.02}};
    p.alone.settle_s = o_.truth_settle_s;
    p.alone.measure_s = o_.truth_s;
    p.alone.turns = 0;
    return p;
  }

  // `verdicts` may be empty.
  void keep(std::span<const RunLog> verdicts, std::span<const RunLog> truths) const {
    if (o_.record.empty() || session_.device().empty()) return;  // nothing has run yet
    const std::vector<RunLog> none(o_.plants.size());
    if (verdicts.empty()) verdicts = none;
    const std::vector<CoverageRow> rows = coverage_rows(o_.plants, verdicts, truths);
    ordered_json all = ordered_json::array();
    for (size_t i = 0; i < rows.size(); ++i) all.push_back(to_json(rows[i], verdicts[i], truths[i]));
    const ordered_json out{{"schema", "stepscope.coverage/1"},
                           {"at", stepscope::now_utc()},
                           {"device", session_.device()},
                           {"what", o_.what},
                           {"command", command_},
                           {"git_revision", git_revision_},
                           {"truth_settle_s", o_.truth_settle_s},
                           {"truth_s", o_.truth_s},
                           {"plants", all}};
    stepscope::write_output(o_.record, verdict_text(out) + "\n");
  }

  void print(const std::vector<CoverageRow>& rows) const {
    fmt::print("{}{}{}; the truth: {} rounds of {} s after {} s\n", o_.what, session_.device().empty() ? "" : " on ", session_.device(),
               o_.truth_rounds, o_.truth_s, o_.truth_settle_s);
    fmt::print("{:<12} {:<9} {:>20} {:>8} {:>7} {:>5}  {:>20} {:>5}  {}\n", "planted", "verdict", "interval alone", "truth", "+-", "holds",
               "at equal clocks", "holds", "by");
    for (const CoverageRow& r : rows) {
      const bool there = r.truth.has_value();
      fmt::print("{:<12} {:<9} {:>20} {:>8} {:>7} {:>5}  {:>20} {:>5}  {}\n", r.plant, name(r.decision.verdict),
                 percent(r.decision.interval), there ? fmt::format("{:+.2f}%", ratio_pct(r.truth->rounds.mean)) : "-",
                 there ? fmt::format("{:.2f}%", 100 * r.truth->half) : "-", yes_no(r.held()), percent(interval_of(r.equal_clocks)),
                 yes_no(r.held_at_equal_clocks()), r.equal_clocks ? name(r.equal_clocks->by) : "-");
      if (r.decision.verdict == Verdict::invalid) fmt::print("  {}\n", r.decision.sentence);
      if (!r.truth_failed.empty()) fmt::print("  long runs: {}\n", r.truth_failed);
      if (there && r.decision.interval && less_certain(*r.truth, *r.decision.interval))
        fmt::print("  not judged: the long runs are less certain than the interval; more --truth-rounds make them surer\n");
    }
    const Count alone = count(rows, &CoverageRow::held), equal = count(rows, &CoverageRow::held_at_equal_clocks);
    fmt::print("{} of {} intervals alone hold the truth, {} of {} at equal clocks\n", alone.held, alone.judged, equal.held, equal.judged);
    std::fflush(stdout);
  }

  const CoverageOptions& o_;
  PairPlan plan_;
  const std::string command_, git_revision_;
  ExperimentSession session_;
  std::vector<RunLog> truths_;
};

}  // namespace

std::optional<bool> CoverageRow::held() const {
  const bool decided = decision.verdict != Verdict::invalid && decision.reason != reason::kInterrupted;
  return decided ? holds(decision.interval, truth) : std::nullopt;
}

std::optional<bool> CoverageRow::held_at_equal_clocks() const { return holds(interval_of(equal_clocks), truth); }

std::vector<CoverageRow> coverage_rows(std::span<const std::string> plants, std::span<const RunLog> verdicts,
                                       std::span<const RunLog> truths) {
  std::vector<CoverageRow> rows;
  for (size_t i = 0; i < plants.size(); ++i) {
    std::vector<double> values;
    for (const PairValue& v : sustained_values(truths[i].runs)) values.push_back(v.log_ratio);
    const std::optional<Estimate> rounds = estimate(values);
    const Decision& said = truths[i].decision;
    rows.push_back({plants[i], verdicts[i].decision, verdicts[i].equal_clocks, rounds ? std::optional(Truth{*rounds}) : std::nullopt,
                    said.verdict == Verdict::invalid ? said.sentence : ""});
  }
  judge_certainty(rows);
  return rows;
}

int coverage_exit_code(std::span<const CoverageRow> rows) {
  const auto invalid = [](const CoverageRow& r) { return r.decision.verdict == Verdict::invalid; };
  if (std::ranges::any_of(rows, invalid)) return 1;
  const Count alone = count(rows, &CoverageRow::held);
  if (12 * (alone.judged - alone.held) > alone.judged) return 1;
  return alone.judged < std::ssize(rows) || rows.empty() ? 4 : 0;
}

int run_coverage(SessionOptions options, const CoverageOptions& coverage) { return Coverage(std::move(options), coverage).run(); }

}  // namespace experiments
