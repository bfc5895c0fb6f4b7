#include "experiments/statistics/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace experiments {
namespace {

constexpr std::array<std::string_view, 5> kNames{"undecided", "faster", "slower", "same", "invalid"};

std::optional<double> pooled_error(std::span<const PairValue> pairs) {
  double squares = 0;
  int n = 0;
  for (const PairValue& p : pairs)
    if (p.error) {
      squares += *p.error * *p.error;
      ++n;
    }
  if (n == 0) return std::nullopt;
  return std::sqrt(squares / n);
}

// Per look, so that t tests at all looks together call identical code different in 2% of trials, and the one-sided tests of "same" err in
// 5%. Simulated: 8,000,000 trials for 12/24, 8/16/24 and 6/9/12 pairs; 1,000,000 for plans of fewer pairs, whose t statistics at one look
// say less about the next, so that the smallest level of those allowed is used for them.
struct Levels {
  int pairs;  // from so many on
  double alpha, equivalence_alpha, fewer_alpha, fewer_equivalence_alpha;
};
constexpr Levels kExtended{12, 0.0111, 0.0299, 0.0105, 0.0286};   // from 4/8 pairs on
constexpr Levels kAlone{24, 0.0080, 0.0224, 0.0075, 0.0211};      // from 3/6/9 pairs on
constexpr Levels kSequential{12, 0.0085, 0.024, 0.0082, 0.0236};  // from 4/6/8 pairs on

std::vector<Look> looks_at(std::initializer_list<int> pairs, const Levels& l, bool enough) {
  const double alpha = enough ? l.alpha : l.fewer_alpha;
  std::vector<Look> out;
  for (const int n : pairs) out.push_back({n, alpha, enough ? l.equivalence_alpha : l.fewer_equivalence_alpha, alpha});
  return out;
}

// Where so few signs cannot reach the level, all of one sign is as sure as they can be.
std::vector<Look> with_few_signs(std::vector<Look> looks) {
  for (Look& l : looks) l.sign_flip_alpha = std::max(l.alpha, std::ldexp(1.0, 1 - l.pairs));
  return looks;
}

// Of this look and those before it, whose pairs were the first of these: the smallest p times the number of planned looks (Bonferroni; exact
// would be 1.8 to 2.8 for two and three looks). Where a look's own level was reached it is no more than the level that the looks have together:
// of a campaign of one experiment, 3 times p = 0.0075 would take back what the look at 0.0080 claims.
double p_of_all_looks(std::span<const double> values, double last_p, const Thresholds& t, int look) {
  double least = last_p;
  bool is_sure = last_p <= t.looks[static_cast<size_t>(look - 1)].alpha;
  for (int k = 0; k + 1 < look; ++k) {
    const Look& before = t.looks[static_cast<size_t>(k)];
    const auto n = static_cast<size_t>(before.pairs);
    if (n > values.size()) break;
    if (const auto e = estimate(values.first(n))) {
      const double p = t_p_value(*e);
      least = std::min(least, p);
      is_sure = is_sure || p <= before.alpha;
    }
  }
  return std::fmin(is_sure ? t.alpha : 1.0, static_cast<double>(t.looks.size()) * least);
}

void conclude(Decision& d, Verdict verdict, std::string_view reason, std::string sentence) {
  d.verdict = verdict;
  d.reason = reason;
  d.sentence = std::move(sentence);
}

}  // namespace

std::string_view name(Verdict verdict) { return kNames[static_cast<size_t>(verdict)]; }

std::optional<Verdict> verdict_from_name(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == text) return static_cast<Verdict>(i);
  return std::nullopt;
}

double ratio_pct(double log_ratio) { return 100 * std::expm1(log_ratio); }

std::vector<Look> alone_looks(int pairs) {
  return with_few_signs(looks_at({(pairs + 2) / 3, (2 * pairs + 2) / 3, pairs}, kAlone, pairs >= kAlone.pairs));
}

std::vector<Look> extended_looks(int pairs, int extended_pairs) {
  if (extended_pairs <= pairs) return {{pairs, 0.02, 0.05, 0.02}};
  return looks_at({pairs, extended_pairs}, kExtended, pairs >= kExtended.pairs);
}

std::vector<Look> sequential_looks(int pairs) {
  return with_few_signs(looks_at({(pairs + 1) / 2, (3 * pairs + 3) / 4, pairs}, kSequential, pairs >= kSequential.pairs));
}

Decision decide(std::span<const PairValue> pairs, const Thresholds& t, int look) {
  Decision d;
  const Look& plan = t.looks.at(static_cast<size_t>(look - 1));
  d.look = look;
  d.alpha = plan.alpha;
  std::vector<double> values;
  for (const PairValue& p : pairs) values.push_back(p.log_ratio);
  d.log_ratio = estimate(values);
  d.within_pair_error = pooled_error(pairs);
  if (!d.log_ratio) {
    conclude(d, Verdict::undecided, reason::kTooFewPairs,
             fmt::format("{} pair{} of processes: at least 2 are needed for an interval", pairs.size(), pairs.size() == 1 ? "" : "s"));
    return d;
  }
  const Estimate& e = *d.log_ratio;
  d.interval = t_interval(e, d.alpha);
  d.p_value = t_p_value(e);
  d.campaign_p = p_of_all_looks(values, *d.p_value, t, look);
  d.equivalence_p = equivalence_p_value(e, std::log1p(t.equivalence_bound()));
  // A claim needs both: an interval without 0, and an estimate of at least the minimum effect.
  d.detectable_effect = std::expm1(
      std::max(minimum_detectable_effect(e.sd, e.n, d.alpha, t.power), std::log1p(t.minimum_effect) + margin_of_error(e.sd, e.n, t.power)));
  d.process_modes = d.within_pair_error && e.sd > t.process_modes_factor * *d.within_pair_error;

  const bool differs = d.interval->low > 0 || d.interval->high < 0;
  if (differs) d.sign_flip_p = sign_flip_p_value(values);
  const bool matters = std::fabs(e.mean) >= std::log1p(t.minimum_effect);
  const std::string numbers = fmt::format("B / A = {:+.2f}% [{:+.2f}%, {:+.2f}%] over {} pairs", ratio_pct(e.mean),
                                          ratio_pct(d.interval->low), ratio_pct(d.interval->high), e.n);
  if (differs && matters) {
    // The t test trusts the values to be near normal; with this few pairs nobody can check that, so a test
    // that assumes only symmetry must agree. With too few pairs for it to reach alpha it cannot agree.
    if (d.sign_flip_p && *d.sign_flip_p <= plan.sign_flip_alpha)
      conclude(d, e.mean < 0 ? Verdict::faster : Verdict::slower, reason::kInterval, numbers);
    else
      conclude(d, Verdict::undecided, reason::kTestsDisagree,
               d.sign_flip_p ? fmt::format("{}: the t interval excludes 0, but the exact sign-flip test has p = {:.3f} (needs {})", numbers,
                                           *d.sign_flip_p, plan.sign_flip_alpha)
                             : fmt::format("{}: too many pairs for the exact test, which must agree (26 at most)", numbers));
  } else if (*d.equivalence_p <= plan.equivalence_alpha) {
    conclude(d, Verdict::same, reason::kEquivalent,
             fmt::format("{}: within +-{:.2f}% (two one-sided tests, {})", numbers, 100 * t.equivalence_bound(),
                         *d.equivalence_p > 0 ? fmt::format("p = {:.3g}", *d.equivalence_p) : "p < 1e-300"));
  } else {
    conclude(d, Verdict::undecided, reason::kNotEnough,
             fmt::format("{}: neither different by {:.2f}% nor equal; an effect of {:.2f}% would have been found", numbers,
                         100 * t.minimum_effect, 100 * *d.detectable_effect));
  }
  if (d.process_modes)
    d.sentence += fmt::format("; process-level modes: pairs spread {:.1f} times their inner error", e.sd / *d.within_pair_error);
  return d;
}

bool wants_another_look(const Decision& d, const Thresholds& t) {
  return d.verdict == Verdict::undecided && d.look < static_cast<int>(t.looks.size());
}

std::optional<double> campaign_p_value(const Decision& d, const Thresholds& t) {
  if (d.campaign_p) return d.campaign_p;
  if (!d.p_value) return std::nullopt;
  return std::fmin(1.0, *d.p_value * t.alpha / d.alpha);
}

void correct_for_campaign(std::vector<Decision>& decisions, const Thresholds& t) {
  // All that were tested, not the claims alone: choosing the small p values first and correcting for their number would
  // let the one false claim of eight true nulls stand.
  std::vector<size_t> tested;
  std::vector<double> p_values;
  for (size_t i = 0; i < decisions.size(); ++i)
    if (const auto p = decisions[i].verdict == Verdict::invalid ? std::nullopt : campaign_p_value(decisions[i], t)) {
      tested.push_back(i);
      p_values.push_back(*p);
    }
  const std::vector<bool> kept = holm_rejects(p_values, t.alpha);
  for (size_t k = 0; k < tested.size(); ++k) {
    Decision& d = decisions[tested[k]];
    if (kept[k] || (d.verdict != Verdict::faster && d.verdict != Verdict::slower)) continue;
    conclude(d, Verdict::undecided, reason::kNotAfterHolm,
             fmt::format("{} alone (p = {:.3g}), but not among the {} tests of this campaign (Holm, level {})", name(d.verdict),
                         p_values[k], tested.size(), t.alpha));
  }
}

}  // namespace experiments
