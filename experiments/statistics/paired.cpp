#include "experiments/statistics/paired.h"

#include <algorithm>
#include <bit>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "base/statistics.h"

namespace experiments {
namespace {

constexpr size_t kMostSignFlips = 26;

double t_quantile(double p, int degrees) { return boost::math::quantile(boost::math::students_t(degrees), p); }

// P(T > t). Boost refuses infinite t, which is what a spread of 0 gives.
double t_upper_tail(double t, int degrees) {
  if (std::isinf(t)) return t > 0 ? 0.0 : 1.0;
  return boost::math::cdf(boost::math::complement(boost::math::students_t(degrees), t));
}

double t_statistic(const Estimate& e, double center) {
  const double difference = e.mean - center;
  if (e.sd == 0) {
    if (difference == 0) return 0;
    return std::copysign(std::numeric_limits<double>::infinity(), difference);
  }
  return difference / (e.sd / std::sqrt(static_cast<double>(e.n)));
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
  const double half = t_quantile(1 - alpha / 2, e.n - 1) * e.sd / std::sqrt(static_cast<double>(e.n));
  return {e.mean - half, e.mean + half};
}

double t_p_value(const Estimate& e, double center) { return 2 * t_upper_tail(std::fabs(t_statistic(e, center)), e.n - 1); }

std::optional<double> sign_flip_p_value(std::span<const double> values) {
  if (values.empty() || values.size() > kMostSignFlips) return std::nullopt;
  const double observed = std::fabs(std::accumulate(values.begin(), values.end(), 0.0));
  double scale = 0;
  for (const double v : values) scale += std::fabs(v);
  if (!std::isfinite(scale)) return std::nullopt;
  // Sums of the same values in another order differ in their last bits; a tie is a tie.
  const double tie = 1e-12 * scale;
  // By symmetry the last sign stays: half the patterns, each counted twice. A Gray code changes one sign at a
  // time; the rounding of 2^25 such updates stays far below `tie`.
  const size_t n = values.size();
  const uint64_t patterns = uint64_t{1} << (n - 1);
  uint64_t as_extreme = 0, signs = 0;
  double sum = std::accumulate(values.begin(), values.end(), 0.0);
  for (uint64_t i = 1;; ++i) {
    if (std::fabs(sum) >= observed - tie) ++as_extreme;
    if (i == patterns) break;
    const int flip = std::countr_zero(i);
    signs ^= uint64_t{1} << flip;
    const double v = values[static_cast<size_t>(flip)];
    sum += (signs >> flip & 1) ? -2 * v : 2 * v;
  }
  return static_cast<double>(as_extreme) / static_cast<double>(patterns);
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
