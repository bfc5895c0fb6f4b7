// Statistics over pairs of processes. A pair's value is ONE number, ln(time B / time A): the unit of evidence
// is the pair of fresh processes and never the step, because processes of identical code differ by more than
// their steps do (a t-test inside a pair called 7 of 48 recorded pairs of identical code different: docs/learn/7-measuring.md).
//
// Everything is in natural logarithms of time ratios: negative = B takes less time. "No answer" is nullopt.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace experiments {

// Four blocks of one quad in ABBA or BAAB order, each the median step time of its block.
struct Quad {
  std::array<double, 2> a_ns{};
  std::array<double, 2> b_ns{};
};

// mean(ln B) - mean(ln A): what drifts linearly over the four blocks cancels. All times must be > 0 and
// finite, else nullopt.
std::optional<double> quad_log_ratio(const Quad& quad);

struct PairValue {
  double log_ratio = 0;         // median over the quads: one disturbed quad does not move it
  std::optional<double> error;  // standard deviation of the quads / sqrt(quads); absent for a single quad
};
// nullopt without quads, or when one of them has no ratio.
std::optional<PairValue> pair_value(std::span<const Quad> quads);

// Whether two numbers are one but for the last digits of writing and reading, by 1e-9 of the larger, or of 1: what a document says of a number
// that can be computed again is held to that.
bool alike(double a, double b);

// A block as documents hold it, and the value of a pair's blocks: that of its whole quads, two blocks of each arm. nullopt where none is whole.
struct TimedBlock {
  char arm = 'A';
  int64_t quad = 0;
  double step_ns = 0;
};
std::optional<PairValue> pair_value_of(std::span<const TimedBlock> blocks);

struct Interval {
  double low = 0, high = 0;
};
struct Estimate {
  double mean = 0;
  double sd = 0;  // n - 1 in the denominator
  int n = 0;
};
// nullopt for fewer than 2 values or a value that is not finite.
std::optional<Estimate> estimate(std::span<const double> values);

// Student's t: mean +- t(1 - alpha/2, n - 1) sd / sqrt(n).
Interval t_interval(const Estimate& e, double alpha);
// Half of such an interval for a mean of n values, where sd comes from more of them and has so many degrees of freedom.
double t_half_width(double sd, int n, int degrees_of_freedom, double alpha);
// Two-sided p of "the mean is `center`". 0 or 1 when sd is 0.
double t_p_value(const Estimate& e, double center = 0);
// "p = 0.034"; below 0.0001 "p < 0.0001", as no finite sample has a p of 0.
std::string p_text(double p);

// Two-sided p of the exact sign-flip (randomization) test on the sum, Fisher 1935: the share of all 2^n sign
// patterns whose |sum| is at least the one observed. Assumes only that the values are symmetric about 0 when
// A and B do not differ. nullopt for no value or more than 26 (2^26 patterns). The least possible p is 2 /
// 2^n.
std::optional<double> sign_flip_p_value(std::span<const double> values);

// Two one-sided t tests (Schuirmann 1987): the larger p of "mean <= -bound" and "mean >= bound". Equivalent
// at level alpha when p <= alpha, the same as: the (1 - 2 alpha) t interval lies inside (-bound, bound).
// bound > 0.
double equivalence_p_value(const Estimate& e, double bound);

// The effect that a two-sided t test at `alpha` over `n` pairs of spread `sd` finds with probability `power`,
// in the usual approximation (t(1 - alpha/2) + t(power)) sd / sqrt(n).
double minimum_detectable_effect(double sd, int n, double alpha, double power);

// t(power, n - 1) sd / sqrt(n): an estimate stays above the true effect less this with probability `power`.
double margin_of_error(double sd, int n, double power);

// Holm 1979: which of the hypotheses are rejected with a family-wise error of at most alpha. Order as given.
std::vector<bool> holm_rejects(std::span<const double> p_values, double alpha);

}  // namespace experiments
