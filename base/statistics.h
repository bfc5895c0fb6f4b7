// Order statistics that the whole tree shares. Pure functions of the values; nothing is assumed about their distribution.
#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace stepscope {

// The middle value, or the mean of the two in the middle, of at least one value. Takes any list of numbers with begin() and end().
template <class Values>
double median(Values values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<std::ptrdiff_t>(values.size());
  const auto at = [&](std::ptrdiff_t i) { return static_cast<double>(*(values.begin() + i)); };
  return n % 2 ? at(n / 2) : 0.5 * (at(n / 2 - 1) + at(n / 2));
}

// Linear interpolation between order statistics (Hyndman & Fan 1996, type 7), 0 <= q <= 1. nullopt for no values.
std::optional<double> quantile(std::vector<double> values, double q);

}  // namespace stepscope
