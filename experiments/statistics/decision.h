// From pair values to a verdict. The one place that holds the thresholds and the only place that decides.
//
// Looks are planned before the first pair runs, all at one level that is strict enough for all of them together: identical code is called
// different in at most 2% of experiments, and a difference of the equivalence bound is called the same in at most 5%. The test `levels`
// simulates every plan. A look that was not planned ("run it until it says faster") would make the level meaningless; the runner offers none.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/statistics/paired.h"

namespace experiments {

struct Look {
  int pairs = 12;       // so many in all
  double alpha = 0.02;  // two-sided
  double equivalence_alpha = 0.05;
  double sign_flip_alpha = 0.02;  // of the exact test that must agree
};

// The plans. Levels are constant over the looks (Pocock 1977, for t tests of so few pairs: simulated, see the .cpp), so the intervals of all
// looks hold together (repeated confidence intervals, Jennison & Turnbull 1989): the one that is printed is valid whatever ended the run.
//
// Of processes that run alone: at a third, two thirds and all of `pairs`. Where so few pairs cannot reach the level in the exact test, it must
// be as sure as it can: all of one sign. (Likewise sequential_looks.)
std::vector<Look> alone_looks(int pairs = 24);
// Of pairs in turns: `pairs`, and, when they decide nothing and `extended_pairs` is more, once more then.
std::vector<Look> extended_looks(int pairs = 12, int extended_pairs = 24);
// At a half, three quarters and all of `pairs`.
std::vector<Look> sequential_looks(int pairs = 12);

struct Thresholds {
  std::vector<Look> looks = extended_looks();
  // Of a claim in a campaign. A nominal 5% would pass a proof of "at most 5%" 8 times in 100.
  double alpha = 0.02;
  double minimum_effect = 0.003;    // as a ratio - 1: less than this is nobody's improvement
  double power = 0.8;               // of the t test, for the minimum detectable effect
  double process_modes_factor = 3;  // spread of pairs over error within pairs: above it, processes have modes
  // "Same" means inside +- this. 5/3 of the minimum effect: an estimate cannot be called both.
  double equivalence_bound() const { return minimum_effect * 5 / 3; }
};

enum class Verdict { undecided, faster, slower, same, invalid };
std::string_view name(Verdict verdict);
std::optional<Verdict> verdict_from_name(std::string_view text);

// Reason codes; the sentence beside them is for people.
namespace reason {
inline constexpr std::string_view kInterval = "interval_excludes_zero";   // faster, slower
inline constexpr std::string_view kEquivalent = "equivalent";             // same
inline constexpr std::string_view kSameCode = "same_code";                // same: identical device code and launches
inline constexpr std::string_view kNotEnough = "not_enough_evidence";     // undecided
inline constexpr std::string_view kTestsDisagree = "tests_disagree";      // undecided: t and sign-flip
inline constexpr std::string_view kTooFewPairs = "too_few_pairs";         // undecided
inline constexpr std::string_view kInterrupted = "interrupted";           // undecided
inline constexpr std::string_view kNotAfterHolm = "not_after_holm";       // undecided: campaign correction
inline constexpr std::string_view kGateFailed = "gate_failed";            // invalid
inline constexpr std::string_view kArmFailed = "arm_failed";              // invalid: crash, hang, NaN, killed
inline constexpr std::string_view kForeignProcess = "foreign_process";    // invalid
inline constexpr std::string_view kBaselineChanged = "baseline_changed";  // invalid
}  // namespace reason

struct Decision {
  Verdict verdict = Verdict::undecided;
  std::string reason{reason::kTooFewPairs};
  std::string sentence;
  int look = 1;         // from 1
  double alpha = 0.02;  // of this look
  std::optional<Estimate> log_ratio;
  std::optional<Interval> interval;   // of the log ratio, 1 - alpha
  std::optional<double> p_value;      // t, two-sided
  std::optional<double> sign_flip_p;  // exact; only asked where the interval excludes 0
  // min(1, planned looks x the smallest p of the looks so far), and at most Thresholds::alpha where a look reached its level: one level over a
  // campaign can be compared with it. Absent: an older document.
  std::optional<double> campaign_p;
  std::optional<double> equivalence_p;
  // Ratio - 1 that the t test of this many pairs of this spread calls different with `power`. The exact test must agree: 7 pairs claim it in 61%
  // of experiments (docs/experiment-procedure.md).
  std::optional<double> detectable_effect;
  std::optional<double> within_pair_error;  // pooled over pairs
  bool process_modes = false;
};

// One look at all pairs so far. `look` counts thresholds.looks from 1.
Decision decide(std::span<const PairValue> pairs, const Thresholds& thresholds, int look);

// True when the plan goes on: this look decided nothing and there is another.
bool wants_another_look(const Decision& decision, const Thresholds& thresholds);

// Decision::campaign_p; of an older document the p value times thresholds.alpha / the look's level.
std::optional<double> campaign_p_value(const Decision& decision, const Thresholds& thresholds);

// Takes claims (faster, slower) that do not survive Holm's correction over all tests of the campaign back to undecided.
// One entry per verdict; entries that claim nothing stay, and count when they were tested.
void correct_for_campaign(std::vector<Decision>& decisions, const Thresholds& thresholds);

// exp(log ratio) - 1, in percent: "-1.20" = B takes 1.2% less time.
double ratio_pct(double log_ratio);

}  // namespace experiments
