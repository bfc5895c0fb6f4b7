// Order statistics of step times. Pure functions; nothing is assumed about the distribution.
#pragma once
#include <optional>
#include <utility>
#include <vector>

namespace profiler {

// Linear interpolation between order statistics (Hyndman & Fan 1996, type 7). nullopt for no values. 0 <= q
// <= 1.
std::optional<double> quantile(std::vector<double> values, double q);
std::optional<double> mean(const std::vector<double>& values);

// Interval that covers the median with at least 95%, from the sign test: [x(k), x(n+1-k)] with the largest k
// for which P(Binomial(n, 1/2) < k) <= 2.5%. nullopt for fewer than 6 values: no such interval exists. It
// assumes independent values; steps of one process are not quite, so it says nothing about another run
// (docs/metrics.md).
std::optional<std::pair<double, double>> median_interval(std::vector<double> values);

}  // namespace profiler
