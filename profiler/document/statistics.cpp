#include "profiler/document/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace profiler {

std::optional<double> mean(const std::vector<double>& v) {
  if (v.empty()) return std::nullopt;
  double sum = 0;
  for (const double x : v) sum += x;
  return sum / static_cast<double>(v.size());
}

std::optional<std::pair<double, double>> median_interval(std::vector<double> v) {
  const size_t n = v.size();
  const auto count = static_cast<double>(n);
  // log of C(n, i) / 2^n: the terms underflow beyond n of about 1000 otherwise.
  const auto probability = [&](double i) {
    return std::exp(std::lgamma(count + 1) - std::lgamma(i + 1) - std::lgamma(count - i + 1) - count * std::log(2.0));
  };
  size_t k = 0;
  double below = 0;  // P(Binomial < k + 1)
  while (2 * (k + 1) <= n && (below += probability(static_cast<double>(k))) <= 0.025) ++k;
  if (k == 0) return std::nullopt;
  std::sort(v.begin(), v.end());
  return std::pair{v[k - 1], v[n - k]};
}

}  // namespace profiler
