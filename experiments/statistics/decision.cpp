#include "experiments/statistics/decision.h"

#include <fmt/format.h>

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

Decision decide(std::span<const PairValue> pairs, const Thresholds& t, int look) {
  Decision d;
  d.look = look;
  d.alpha = look == 2 ? t.extension_alpha : t.alpha;
  const double equivalence_alpha = look == 2 ? t.extension_equivalence_alpha : t.equivalence_alpha;
  std::vector<double> values;
  for (const PairValue& p : pairs) values.push_back(p.log_ratio);
  d.log_ratio = estimate(values);
  d.within_pair_error = pooled_error(pairs);
  if (!d.log_ratio) {
    conclude(d, Verdict::undecided, reason::kTooFewPairs,
             fmt::format("{} pair{} of processes: at least 2 are needed for an interval", pairs.size(),
                         pairs.size() == 1 ? "" : "s"));
    return d;
  }
  const Estimate& e = *d.log_ratio;
  d.interval = t_interval(e, d.alpha);
  d.p_value = t_p_value(e);
  d.sign_flip_p = sign_flip_p_value(values);
  d.equivalence_p = equivalence_p_value(e, std::log1p(t.equivalence_bound()));
  d.detectable_effect = std::expm1(minimum_detectable_effect(e.sd, e.n, d.alpha, t.power));
  d.process_modes = d.within_pair_error && e.sd > t.process_modes_factor * *d.within_pair_error;

  const bool differs = d.interval->low > 0 || d.interval->high < 0;
  const bool matters = std::fabs(e.mean) >= std::log1p(t.minimum_effect);
  const std::string numbers =
      fmt::format("B / A = {:+.2f}% [{:+.2f}%, {:+.2f}%] over {} pairs", ratio_pct(e.mean),
                  ratio_pct(d.interval->low), ratio_pct(d.interval->high), e.n);
  if (differs && matters) {
    // The t test trusts the values to be near normal; with this few pairs nobody can check that, so a test
    // that assumes only symmetry must agree. With too few pairs for it to reach alpha it cannot agree.
    if (d.sign_flip_p && *d.sign_flip_p <= d.alpha)
      conclude(d, e.mean < 0 ? Verdict::faster : Verdict::slower, reason::kInterval, numbers);
    else
      conclude(d, Verdict::undecided, reason::kTestsDisagree,
               d.sign_flip_p
                   ? fmt::format("{}: the t interval excludes 0, but the exact sign-flip test has p = {:.3f} (needs {})",
                                 numbers, *d.sign_flip_p, d.alpha)
                   : fmt::format("{}: too many pairs for the exact test, which must agree (26 at most)", numbers));
  } else if (*d.equivalence_p <= equivalence_alpha) {
    conclude(d, Verdict::same, reason::kEquivalent,
             fmt::format("{}: within +-{:.2f}% (two one-sided tests, p = {:.3g})", numbers,
                         100 * t.equivalence_bound(), *d.equivalence_p));
  } else {
    conclude(
        d, Verdict::undecided, reason::kNotEnough,
        fmt::format("{}: neither different by {:.2f}% nor equal; an effect of {:.2f}% would have been found",
                    numbers, 100 * t.minimum_effect, 100 * *d.detectable_effect));
  }
  if (d.process_modes)
    d.sentence += fmt::format("; process-level modes: pairs spread {:.1f} times their inner error",
                              e.sd / *d.within_pair_error);
  return d;
}

bool wants_extension(const Decision& first, const Thresholds& t) {
  return first.look == 1 && first.verdict == Verdict::undecided && t.extended_pairs > t.pairs;
}

std::optional<double> campaign_p_value(const Decision& d, const Thresholds& t) {
  if (!d.p_value) return std::nullopt;
  return std::fmin(1.0, d.look == 2 ? *d.p_value * t.alpha / t.extension_alpha : *d.p_value);
}

void correct_for_campaign(std::vector<Decision>& decisions, const Thresholds& t) {
  std::vector<size_t> claims;
  std::vector<double> p_values;
  for (size_t i = 0; i < decisions.size(); ++i) {
    const Decision& d = decisions[i];
    if (d.verdict != Verdict::faster && d.verdict != Verdict::slower) continue;
    claims.push_back(i);
    p_values.push_back(campaign_p_value(d, t).value_or(1));
  }
  const std::vector<bool> kept = holm_rejects(p_values, t.alpha);
  for (size_t k = 0; k < claims.size(); ++k) {
    if (kept[k]) continue;
    Decision& d = decisions[claims[k]];
    conclude(
        d, Verdict::undecided, reason::kNotAfterHolm,
        fmt::format("{} alone (p = {:.3g}), but not among the {} claims of this campaign (Holm, level {})",
                    name(d.verdict), p_values[k], claims.size(), t.alpha));
  }
}

}  // namespace experiments
