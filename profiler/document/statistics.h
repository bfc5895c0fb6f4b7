// Order statistics of step times. Pure functions; nothing is assumed about the distribution.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "base/statistics.h"

namespace profiler {

using stepscope::quantile;
std::optional<double> mean(const std::vector<double>& values);

// Interval that covers the median with at least 95%, from the sign test: [x(k), x(n+1-k)] with the largest k
// for which P(Binomial(n, 1/2) < k) <= 2.5%. nullopt for fewer than 6 values: no such interval exists. It
// assumes independent values; steps of one process are not quite, so it says nothing about another run
// (docs/metrics.md).
std::optional<std::pair<double, double>> median_interval(std::vector<double> values);

}  // namespace profiler
