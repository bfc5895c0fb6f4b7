#include "experiments/verdict/document.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/statistics.h"

namespace experiments {

Statistics statistics_of(const Decision& d) {
  const auto finite = [](std::optional<double> v) { return v && std::isfinite(*v) ? v : std::nullopt; };
  Statistics s;
  s.verdict = d.verdict;
  s.reason = d.reason;
  s.sentence = d.sentence;
  s.look = d.look;
  s.alpha = d.alpha;
  if (d.log_ratio) {
    s.pairs = d.log_ratio->n;
    s.ratio = std::exp(d.log_ratio->mean);
    s.log_ratio_mean = d.log_ratio->mean;
    s.log_ratio_sd = d.log_ratio->sd;
  }
  if (d.interval) s.ratio_interval = Range{std::exp(d.interval->low), std::exp(d.interval->high)};
  s.p_value = finite(d.p_value);
  s.sign_flip_p_value = finite(d.sign_flip_p);
  s.campaign_p_value = finite(d.campaign_p);
  s.equivalence_p_value = finite(d.equivalence_p);
  if (d.detectable_effect) s.minimum_detectable_effect_pct = finite(100 * *d.detectable_effect);
  s.within_pair_error = finite(d.within_pair_error);
  s.process_modes = d.process_modes;
  return s;
}

Decision decision_of(const Statistics& s) {
  Decision d;
  d.verdict = s.verdict;
  d.reason = s.reason;
  d.sentence = s.sentence;
  d.look = static_cast<int>(s.look);
  d.alpha = s.alpha;
  if (s.pairs && s.log_ratio_mean && s.log_ratio_sd) d.log_ratio = Estimate{*s.log_ratio_mean, *s.log_ratio_sd, static_cast<int>(*s.pairs)};
  if (s.ratio_interval) d.interval = Interval{std::log((*s.ratio_interval)[0]), std::log((*s.ratio_interval)[1])};
  d.p_value = s.p_value;
  d.sign_flip_p = s.sign_flip_p_value;
  d.campaign_p = s.campaign_p_value;
  d.equivalence_p = s.equivalence_p_value;
  if (s.minimum_detectable_effect_pct) d.detectable_effect = *s.minimum_detectable_effect_pct / 100;
  d.within_pair_error = s.within_pair_error;
  d.process_modes = s.process_modes;
  return d;
}

std::optional<RatioSection> WorkloadSection::at_equal_clocks() const {
  if (procedure == Procedure::alone) return equal_clocks ? std::optional(equal_clocks->ratio) : std::nullopt;
  if (!statistics.ratio) return std::nullopt;
  return RatioSection{*statistics.ratio, statistics.ratio_interval.value_or(Range{*statistics.ratio, *statistics.ratio}),
                      statistics.log_ratio_sd.value_or(0), statistics.pairs.value_or(0)};
}

std::optional<double> median_step_ns(const std::vector<PairRow>& pairs, char arm) {
  std::vector<double> blocks;
  for (const PairRow& p : pairs)
    for (const BlockRow& b : p.blocks)
      if (b.arm == arm) blocks.push_back(b.step_ns);
  if (blocks.empty()) return std::nullopt;
  return stepscope::median(std::move(blocks));
}

Verdict overall(const std::vector<Verdict>& verdicts) {
  for (const Verdict v : {Verdict::invalid, Verdict::slower, Verdict::undecided, Verdict::faster})
    if (std::find(verdicts.begin(), verdicts.end(), v) != verdicts.end()) return v;
  return verdicts.empty() ? Verdict::undecided : Verdict::same;
}

Verdict verdict_of(const VerdictDocument& document) {
  std::vector<Verdict> all;
  for (const WorkloadSection& w : document.workloads) all.push_back(w.verdict);
  return overall(all);
}

int exit_code_of(Verdict v) {
  switch (v) {
    case Verdict::faster:
    case Verdict::same:
      return 0;
    case Verdict::slower:
    case Verdict::invalid:
      return 1;
    case Verdict::undecided:
      return 4;
  }
  return 1;
}

Thresholds thresholds_of(const VerdictDocument& document) {
  Thresholds t;
  t.alpha = document.thresholds.alpha;
  t.minimum_effect = document.thresholds.minimum_effect_pct / 100;
  t.power = document.thresholds.power;
  if (document.thresholds.looks.empty()) return t;
  t.looks.clear();
  for (const LookSection& l : document.thresholds.looks)
    t.looks.push_back({static_cast<int>(l.pairs), l.alpha, l.equivalence_alpha, l.sign_flip_alpha.value_or(l.alpha)});
  return t;
}

}  // namespace experiments
