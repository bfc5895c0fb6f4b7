// Order statistics and interpolation that the whole tree shares. Pure functions of the values; nothing is assumed about their distribution.
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

// The mean of the last tenth of the values, at least of one: a value that is noisy from step to step, as it is at the end. `values` is not
// empty.
double mean_of_last_tenth(const std::vector<double>& values);

// Where x lies among points whose x_of grows: share 0 is `before`, 1 would be `after`; on a point both are that point.
template <class Point>
struct Between {
  Point before, after;
  double share = 0;
};
// nullopt outside of the points.
template <class Point, class XOf>
std::optional<Between<Point>> between(Point begin, Point end, double x, const XOf& x_of) {
  const Point after = std::lower_bound(begin, end, x, [&](const auto& p, double at) { return x_of(p) < at; });
  if (after == end) return std::nullopt;
  if (x_of(*after) == x) return Between<Point>{after, after};
  if (after == begin) return std::nullopt;
  const Point before = after - 1;
  return Between<Point>{before, after, (x - x_of(*before)) / (x_of(*after) - x_of(*before))};
}

}  // namespace stepscope
