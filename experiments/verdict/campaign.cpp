#include "experiments/verdict/campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "experiments/verdict/make_document.h"

namespace experiments {
namespace {

bool claims(Verdict v) { return v == Verdict::faster || v == Verdict::slower; }

std::string same_code_sentence(const std::string& why, const Statistics& s) {
  if (claims(s.verdict))
    return fmt::format("{}, and yet measured {} ({}): a kernel's arguments differ, or this is a false claim", why, name(s.verdict),
                       s.sentence);
  return fmt::format("{}; the statistics said {} ({})", why, name(s.verdict), s.sentence);
}

bool given_back_as_clock(const WorkloadSection& w, const Thresholds& t) {
  if (!w.sustained_statistics() || !w.sustained || !w.equal_clocks) return false;
  // First steps that no limit holds back differ for another reason: the host, what a program does at its start.
  if (!w.sustained->a.clock_limited.value_or(false) && !w.sustained->b.clock_limited.value_or(false)) return false;
  const RatioSection& c = w.equal_clocks->ratio;
  const bool faster = c.ratio_interval[1]<1, slower = c.ratio_interval[0]> 1;
  if ((!faster && !slower) || std::fabs(c.ratio - 1) < t.minimum_effect) return false;
  return w.statistics.verdict == Verdict::same || (faster && w.statistics.verdict == Verdict::slower) ||
         (slower && w.statistics.verdict == Verdict::faster);
}

std::vector<PairValue> recorded_values(const WorkloadSection& w) {
  if (w.procedure == Procedure::alone) return sustained_values(w.runs);
  std::vector<PairValue> out;
  for (const PairRow& p : w.pairs) out.push_back({p.log_ratio, p.error});
  return out;
}

const WorkloadSection* same_workload(const VerdictDocument& document, const WorkloadSection& w) {
  for (const WorkloadSection& other : document.workloads)
    if (other.workload == w.workload && other.procedure == w.procedure) return &other;
  return nullptr;
}

bool became_worse(const WorkloadSection& old, const WorkloadSection& w, bool frozen, double least_log) {
  if (w.verdict == Verdict::slower && old.verdict != Verdict::slower) return true;
  if (w.verdict == Verdict::same && old.verdict == Verdict::faster) return true;
  // Where A is not frozen, a ratio that rises may be A that became faster. Undecided is no answer.
  if (!frozen || w.verdict == Verdict::undecided || old.verdict == Verdict::undecided) return false;
  const Statistics &s = w.statistics, &before = old.statistics;
  if (!s.ratio_interval || !before.ratio_interval || !s.ratio || !before.ratio) return false;
  return (*s.ratio_interval)[0] > (*before.ratio_interval)[1] && std::log(*s.ratio / *before.ratio) >= least_log;
}

}  // namespace

void conclude(WorkloadSection& w, const Thresholds& t) {
  const Statistics& s = w.statistics;
  if (w.same_code && w.same_code->same && !w.planted_pct && s.verdict != Verdict::invalid) {
    w.verdict = claims(s.verdict) ? Verdict::undecided : Verdict::same;
    w.reason = reason::kSameCode;
    w.sentence = same_code_sentence(w.same_code->why, s);
    return;
  }
  w.verdict = s.verdict;
  w.reason = given_back_as_clock(w, t) ? kGivenBackAsClock : std::string_view(s.reason);
  w.sentence = s.sentence;
}

void decide_again(VerdictDocument& document) {
  if (document.thresholds.looks.empty()) return;
  const Thresholds t = thresholds_of(document);
  for (WorkloadSection& w : document.workloads) {
    if (w.statistics.verdict == Verdict::invalid || w.statistics.reason == reason::kInterrupted) continue;
    w.statistics = statistics_of(decide(recorded_values(w), t, static_cast<int>(w.statistics.look)));
    if (w.sustained) fill_sustained(w, w.statistics.alpha);
    // The one check that needs nothing but runs; documents of older programs have none.
    if (auto pieces = pieces_check(w.runs)) {
      std::erase_if(w.self_checks, [](const SelfCheckResult& c) { return c.check == SelfCheck::pieces; });
      w.self_checks.push_back(std::move(*pieces));
    }
    conclude(w, t);
  }
  document.verdict = verdict_of(document);
}

namespace {

// `family`: those documents among `documents` that are of one device.
void correct_family(std::vector<VerdictDocument>& documents, const std::vector<size_t>& family, const Thresholds& t,
                    std::vector<bool>& changed) {
  std::vector<Decision> decisions;
  std::vector<std::pair<size_t, size_t>> where;
  for (const size_t i : family)
    for (size_t k = 0; k < documents[i].workloads.size(); ++k) {
      const WorkloadSection& w = documents[i].workloads[k];
      Decision d = decision_of(w.statistics);
      if (w.reason == reason::kSameCode) {  // claims nothing, and is no test of an effect
        d.verdict = Verdict::same;
        d.p_value.reset();
        d.campaign_p.reset();
      }
      decisions.push_back(std::move(d));
      where.emplace_back(i, k);
    }
  const std::vector<Decision> before = decisions;
  correct_for_campaign(decisions, t);
  for (size_t n = 0; n < decisions.size(); ++n) {
    if (decisions[n].verdict == before[n].verdict) continue;
    WorkloadSection& w = documents[where[n].first].workloads[where[n].second];
    w.verdict = decisions[n].verdict;
    w.reason = decisions[n].reason;
    w.sentence = decisions[n].sentence;
    changed[where[n].first] = true;
  }
}

}  // namespace

std::vector<bool> correct_campaign(std::vector<VerdictDocument>& documents, const Thresholds& t) {
  std::map<std::string, std::vector<size_t>> families;
  for (size_t i = 0; i < documents.size(); ++i) families[documents[i].environment.device].push_back(i);
  std::vector<bool> changed(documents.size(), false);
  for (const auto& [device, family] : families) correct_family(documents, family, t, changed);
  for (size_t i = 0; i < documents.size(); ++i)
    if (changed[i]) documents[i].verdict = verdict_of(documents[i]);
  return changed;
}

bool is_regression(const std::optional<VerdictDocument>& before, const VerdictDocument& now) {
  if (now.verdict == Verdict::invalid) return true;
  const auto file = [](const VerdictDocument& d) { return d.experiment ? d.experiment->file_sha256 : std::string(); };
  if (!before || before->verdict == Verdict::invalid || before->environment.device != now.environment.device || file(*before) != file(now))
    return false;
  const bool frozen = now.experiment && now.experiment->against_frozen();
  const double least = std::log1p(now.thresholds.minimum_effect_pct / 100);
  return std::any_of(now.workloads.begin(), now.workloads.end(), [&](const WorkloadSection& w) {
    const WorkloadSection* old = same_workload(*before, w);
    return old && became_worse(*old, w, frozen, least);
  });
}

bool was_cut_short(const WorkloadSection& w) { return w.reason == reason::kInterrupted || w.reason == reason::kForeignProcess; }

bool was_cut_short(const VerdictDocument& document) {
  return std::any_of(document.workloads.begin(), document.workloads.end(), [](const WorkloadSection& w) { return was_cut_short(w); });
}

}  // namespace experiments
