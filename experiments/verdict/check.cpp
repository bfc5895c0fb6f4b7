#include "experiments/verdict/check.h"

#include <fmt/format.h>

#include <cmath>
#include <tuple>

#include "experiments/verdict/campaign.h"
#include "experiments/verdict/make_document.h"

namespace experiments {
namespace {

using experiments::alike;  // beside these

bool alike(const std::optional<double>& a, const std::optional<double>& b) {
  return a.has_value() == b.has_value() && (!a || alike(*a, *b));
}

bool alike(const std::optional<Range>& a, const std::optional<Range>& b) {
  return a.has_value() == b.has_value() && (!a || (alike((*a)[0], (*b)[0]) && alike((*a)[1], (*b)[1])));
}

// The pair's value from its blocks; nullopt when it holds no whole quad.
std::optional<double> log_ratio_of(const PairRow& p) {
  std::vector<TimedBlock> blocks;
  for (const BlockRow& b : p.blocks) blocks.push_back({b.arm, b.quad, b.step_ns});
  const auto value = pair_value_of(blocks);
  return value ? std::optional(value->log_ratio) : std::nullopt;
}

void check_statistics(const WorkloadSection& was, const WorkloadSection& now, std::vector<std::string>& out) {
  const Statistics &a = was.statistics, &b = now.statistics;
  const auto differs = [&](bool same, const char* what) {
    if (!same)
      out.push_back(fmt::format("{}: statistics.{} is not what its {} say", was.workload, what,
                                was.procedure == Procedure::alone ? "runs" : "pairs"));
  };
  differs(alike(a.ratio, b.ratio), "ratio");
  differs(alike(a.ratio_interval, b.ratio_interval), "ratio_interval");
  differs(alike(a.p_value, b.p_value), "p_value");
  differs(a.verdict == b.verdict, "verdict");
}

// The campaign's other experiments decided that, not this workload's measurements.
bool taken_back(const WorkloadSection& w) { return w.verdict == Verdict::undecided && w.reason == reason::kNotAfterHolm; }

void check_verdict(const WorkloadSection& was, const WorkloadSection& now, std::vector<std::string>& out) {
  if (!taken_back(was) && was.verdict != now.verdict)
    out.push_back(fmt::format("{}: its verdict is {}, its statistics make it {}", was.workload, name(was.verdict), name(now.verdict)));
  WorkloadSection saving = was;
  fill_saving(saving, decision_of(now.statistics));
  if (was.saved_ms && !alike(was.saved_ms, saving.saved_ms))
    out.push_back(fmt::format("{}: saved_ms is not its ratio of a_step_ns", was.workload));
  if (was.saved_ms_interval && !alike(was.saved_ms_interval, saving.saved_ms_interval))
    out.push_back(fmt::format("{}: saved_ms_interval is not its ratio_interval of a_step_ns", was.workload));
  if (was.sustained && now.sustained &&
      !(alike(was.sustained->a.step_ns, now.sustained->a.step_ns) && alike(was.sustained->b.step_ns, now.sustained->b.step_ns)))
    out.push_back(fmt::format("{}: sustained.step_ns is not what its runs say", was.workload));
}

// The step of an arm, from what was measured of it.
std::optional<double> step_of(const WorkloadSection& w, char arm) {
  if (w.procedure == Procedure::alone) {
    if (!w.sustained) return std::nullopt;
    return arm == 'A' ? w.sustained->a.step_ns : w.sustained->b.step_ns;
  }
  return median_step_ns(w.pairs, arm);
}

void check_memory(const WorkloadSection& w, std::vector<std::string>& out) {
  if (w.memory && !alike(w.memory->delta_bytes, w.memory->b_bytes - w.memory->a_bytes))
    out.push_back(fmt::format("{}: memory.delta_bytes is not b_bytes less a_bytes", w.workload));
}

void check_steps(const WorkloadSection& was, const WorkloadSection& now, std::vector<std::string>& out) {
  const char* from = was.procedure == Procedure::alone ? "runs" : "blocks";
  for (const auto& [what, ns, arm] : {std::tuple("a_step_ns", was.a_step_ns, 'A'), std::tuple("b_step_ns", was.b_step_ns, 'B')})
    if (const auto step = step_of(now, arm); ns && step && !alike(*ns, *step))
      out.push_back(fmt::format("{}: {} is not what its {} say", was.workload, what, from));
  for (const auto& [arm, report] : {std::pair('A', &was.a), std::pair('B', &was.b)})
    if (!report->gate.passed && was.verdict != Verdict::invalid)
      out.push_back(fmt::format("{}: its verdict is {}, and arm {} did not pass the gate", was.workload, name(was.verdict), arm));
}

// What ended without an answer cannot be computed again, and claims nothing.
void check_without_answer(const WorkloadSection& w, const Thresholds& t, std::vector<std::string>& out) {
  WorkloadSection again = w;
  if (w.statistics.reason == reason::kInterrupted && w.statistics.verdict != Verdict::undecided) {
    out.push_back(
        fmt::format("{}: statistics.verdict is {}, and its reason is {}", w.workload, name(w.statistics.verdict), w.statistics.reason));
    again.statistics.verdict = Verdict::undecided;
  }
  conclude(again, t);
  if (w.verdict != again.verdict)
    out.push_back(fmt::format("{}: its verdict is {}, its statistics make it {}", w.workload, name(w.verdict), name(again.verdict)));
}

}  // namespace

std::vector<std::string> contradictions(const VerdictDocument& document) {
  std::vector<std::string> out;
  VerdictDocument again = document;
  decide_again(again);
  const Thresholds t = thresholds_of(document);
  if (const double bound_pct = 100 * t.equivalence_bound(); !alike(document.thresholds.equivalence_bound_pct, bound_pct))
    out.push_back(fmt::format("thresholds.equivalence_bound_pct is {}, its minimum_effect_pct makes it {}",
                              document.thresholds.equivalence_bound_pct, bound_pct));
  for (size_t i = 0; i < document.workloads.size(); ++i) {
    const WorkloadSection& w = document.workloads[i];
    if (w.statistics.verdict == Verdict::invalid || w.statistics.reason == reason::kInterrupted) {
      check_without_answer(w, t, out);
      continue;
    }
    for (size_t n = 0; n < w.pairs.size(); ++n)
      if (const auto value = log_ratio_of(w.pairs[n]); value && !alike(*value, w.pairs[n].log_ratio))
        out.push_back(fmt::format("{}: pairs[{}].log_ratio is {:.6f}, its blocks say {:.6f}", w.workload, n, w.pairs[n].log_ratio, *value));
    check_statistics(w, again.workloads[i], out);
    check_verdict(w, again.workloads[i], out);
    check_steps(w, again.workloads[i], out);
    check_memory(w, out);
  }
  if (document.verdict != verdict_of(document))
    out.push_back(fmt::format("its verdict is {}, its workloads make it {}", name(document.verdict), name(verdict_of(document))));
  if (!out.empty()) return out;
  again.verdict = document.verdict;
  for (size_t i = 0; i < document.workloads.size(); ++i) {
    const WorkloadSection& w = document.workloads[i];
    WorkloadSection& now = again.workloads[i];
    // Verdicts of before 2026-11-30 had the smallest p times the looks here, also where a look had reached its own level.
    const std::optional<double>& p = w.statistics.campaign_p_value;
    std::optional<double>& p_now = now.statistics.campaign_p_value;
    if (p && p_now && *p > t.alpha && *p <= 1 && alike(*p_now, t.alpha)) p_now = p;
    if (taken_back(w)) {
      now.verdict = w.verdict;
      now.reason = w.reason;
      now.sentence = w.sentence;
    }
  }
  for (const Difference& d : differences(to_json(document), to_json(again)))
    out.push_back(d.was.empty()   ? fmt::format("{} is left out", d.path)
                  : d.now.empty() ? fmt::format("{} does not follow from its measurements", d.path)
                                  : fmt::format("{} is {}, its measurements make it {}", d.path, d.was, d.now));
  return out;
}

}  // namespace experiments
