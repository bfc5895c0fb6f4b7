#include "experiments/statistics/paired.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/statistics.h"

namespace experiments {
namespace {

constexpr size_t kMostSignFlips = 26;

// A procedure asks for the same few quantiles at every look, and one costs as much as all the rest of a decision: simulations of 100,000
// campaigns keep them.
double t_quantile(double p, int degrees) {
  constexpr size_t kKept = 64;
  thread_local std::vector<std::pair<std::pair<double, int>, double>> kept;
  for (const auto& [key, value] : kept)
    if (key.first == p && key.second == degrees) return value;
  const double value = boost::math::quantile(boost::math::students_t(degrees), p);
  if (kept.size() < kKept) kept.push_back({{p, degrees}, value});
  return value;
}

// In double throughout: Boost's own choice of long double costs seven times as much and moves no tail by more than 6e-15 of itself
// (5 to 63 degrees, t from -8 to 40).
using Doubles = boost::math::policies::policy<boost::math::policies::promote_double<false>>;
using StudentsT = boost::math::students_t_distribution<double, Doubles>;

// P(T > t). Boost refuses infinite t, which is what a spread of 0 gives.
double t_upper_tail(double t, int degrees) {
  if (std::isinf(t)) return t > 0 ? 0.0 : 1.0;
  return boost::math::cdf(boost::math::complement(StudentsT(degrees), t));
}

double t_statistic(const Estimate& e, double center) {
  const double difference = e.mean - center;
  if (e.sd == 0) {
    if (difference == 0) return 0;
    return std::copysign(std::numeric_limits<double>::infinity(), difference);
  }
  return difference / (e.sd / std::sqrt(static_cast<double>(e.n)));
}

// The 2^n sums of the values with every choice of signs, ascending. The upper half is the lower one with the other signs, exactly.
std::vector<double> signed_sums(std::span<const double> values) {
  std::vector<double> sums{0.0}, longer;
  for (const double v : values) {
    const double step = std::fabs(v);
    const size_t n = sums.size();
    longer.resize(2 * n);
    size_t down = 0, up = 0;  // the next of sums - step and of sums + step
    for (size_t k = 0; k < n; ++k) {
      const double lower = sums[down] - step, upper = sums[up] + step;
      const bool takes_lower = lower <= upper;
      longer[k] = takes_lower ? lower : upper;
      longer[2 * n - 1 - k] = -longer[k];
      down += takes_lower ? 1 : 0;
      up += takes_lower ? 0 : 1;
    }
    sums.swap(longer);
  }
  return sums;
}

}  // namespace

std::optional<double> quad_log_ratio(const Quad& q) {
  double sum = 0;
  for (const double b : q.b_ns) sum += std::log(b);
  for (const double a : q.a_ns) sum -= std::log(a);
  if (!std::isfinite(sum)) return std::nullopt;  // a time of 0, a negative one, NaN
  return 0.5 * sum;
}

std::optional<PairValue> pair_value(std::span<const Quad> quads) {
  std::vector<double> values;
  for (const Quad& q : quads) {
    const std::optional<double> d = quad_log_ratio(q);
    if (!d) return std::nullopt;
    values.push_back(*d);
  }
  if (values.empty()) return std::nullopt;
  PairValue out;
  out.log_ratio = stepscope::median(values);
  if (const auto e = estimate(values)) out.error = e->sd / std::sqrt(static_cast<double>(e->n));
  return out;
}

bool alike(double a, double b) {
  constexpr double kRelative = 1e-9;
  return std::fabs(a - b) <= kRelative * std::max({1.0, std::fabs(a), std::fabs(b)});
}

std::optional<PairValue> pair_value_of(std::span<const TimedBlock> blocks) {
  std::map<int64_t, std::array<std::vector<double>, 2>> quads;
  for (const TimedBlock& b : blocks) quads[b.quad][b.arm == 'A' ? 0 : 1].push_back(b.step_ns);
  std::vector<Quad> whole;
  for (const auto& [number, arms] : quads)
    if (arms[0].size() == 2 && arms[1].size() == 2) whole.push_back({{arms[0][0], arms[0][1]}, {arms[1][0], arms[1][1]}});
  return pair_value(whole);
}

std::optional<Estimate> estimate(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const double n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  if (!std::isfinite(squares)) return std::nullopt;
  return Estimate{mean, std::sqrt(squares / (n - 1)), static_cast<int>(values.size())};
}

Interval t_interval(const Estimate& e, double alpha) {
  const double half = t_half_width(e.sd, e.n, e.n - 1, alpha);
  return {e.mean - half, e.mean + half};
}

double t_half_width(double sd, int n, int degrees_of_freedom, double alpha) {
  return t_quantile(1 - alpha / 2, degrees_of_freedom) * sd / std::sqrt(static_cast<double>(n));
}

double t_p_value(const Estimate& e, double center) { return 2 * t_upper_tail(std::fabs(t_statistic(e, center)), e.n - 1); }

std::string p_text(double p) { return p < 1e-4 ? "p < 0.0001" : fmt::format("p = {:.2g}", p); }

std::optional<double> sign_flip_p_value(std::span<const double> values) {
  if (values.empty() || values.size() > kMostSignFlips) return std::nullopt;
  const double observed = std::fabs(std::accumulate(values.begin(), values.end(), 0.0));
  double scale = 0;
  for (const double v : values) scale += std::fabs(v);
  if (!std::isfinite(scale)) return std::nullopt;
  // Sums of the same values in another order differ in their last bits; a tie is a tie.
  const double tie = 1e-12 * scale;
  // All sums of either half with every sign, sorted; a pattern is one of each. By symmetry both tails are counted as one.
  const std::span<const double> all(values);
  const std::vector<double> left = signed_sums(all.first(values.size() / 2)), right = signed_sums(all.subspan(values.size() / 2));
  const double threshold = observed - tie;
  uint64_t as_extreme = 0;
  size_t first = right.size();  // of `right`: from here on the sum with left[i] is extreme; it falls as left[i] grows
  for (const double l : left) {
    while (first > 0 && l + right[first - 1] >= threshold) --first;
    as_extreme += right.size() - first;
  }
  const double patterns = std::ldexp(1.0, static_cast<int>(values.size()));
  // A threshold of 0 is met from both sides: then every pattern is extreme.
  return threshold <= 0 ? 1.0 : std::fmin(1.0, 2 * static_cast<double>(as_extreme) / patterns);
}

double equivalence_p_value(const Estimate& e, double bound) {
  const double above_lower = t_upper_tail(t_statistic(e, -bound), e.n - 1);
  const double below_upper = t_upper_tail(-t_statistic(e, bound), e.n - 1);
  return std::max(above_lower, below_upper);
}

double margin_of_error(double sd, int n, double power) { return t_quantile(power, n - 1) * sd / std::sqrt(static_cast<double>(n)); }

double minimum_detectable_effect(double sd, int n, double alpha, double power) {
  return (t_quantile(1 - alpha / 2, n - 1) + t_quantile(power, n - 1)) * sd / std::sqrt(static_cast<double>(n));
}

std::vector<bool> holm_rejects(std::span<const double> p_values, double alpha) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return p_values[i] < p_values[j]; });
  std::vector<bool> rejected(p_values.size(), false);
  for (size_t k = 0; k < order.size(); ++k) {
    if (!(p_values[order[k]] <= alpha / static_cast<double>(order.size() - k))) break;
    rejected[order[k]] = true;
  }
  return rejected;
}

}  // namespace experiments
