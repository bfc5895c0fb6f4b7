#include "base/statistics.h"

#include <numeric>

namespace stepscope {

std::optional<double> quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

double mean_of_last_tenth(const std::vector<double>& values) {
  const size_t last = std::max<size_t>(1, values.size() / 10);
  return std::accumulate(values.end() - static_cast<std::ptrdiff_t>(last), values.end(), 0.0) / static_cast<double>(last);
}

}  // namespace stepscope
