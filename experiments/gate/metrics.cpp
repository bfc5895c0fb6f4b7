// Sums that let NaN through: every maximum is taken with !(x <= worst), because NaN compares false with
// everything.
#include "experiments/gate/metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace gate {
namespace {

// A row of fewer elements than this is not a vector with a norm but a handful of numbers with cancellation
// noise.
constexpr int64_t kFewestForNorm = 8;

// Upper quartile, not median: two thirds of the rows of a qkv gradient can be zero in exact arithmetic (T =
// 1).
double usual_norm(const std::vector<double>& squares) {
  std::vector<double> norms;
  for (double s : squares)
    if (s > 0) norms.push_back(std::sqrt(s));
  if (norms.empty()) return 0;
  const auto quartile = norms.begin() + static_cast<int64_t>(norms.size() * 3 / 4);
  std::nth_element(norms.begin(), quartile, norms.end());
  return *quartile;
}

double ratio(double difference, double reference) {
  if (difference == 0) return 0;
  if (reference == 0) return std::isnan(difference) ? difference : std::numeric_limits<double>::infinity();
  return difference / reference;
}

void worst_slice(const SliceSums& slices, double& worst, int64_t& at) {
  const double floor = usual_norm(slices.want);
  for (size_t i = 0; i < slices.want.size(); ++i) {
    const double own = std::sqrt(slices.want[i]);
    const double error = ratio(std::sqrt(slices.difference[i]), own > floor ? own : floor);
    if (!(error <= worst)) {
      worst = error;
      at = static_cast<int64_t>(i);
      if (std::isnan(error)) return;
    }
  }
}

}  // namespace

template <typename Got, typename Want>
ErrorMetrics compare(std::span<const Got> got, std::span<const Want> want, int64_t rows, int64_t columns) {
  if (rows < 0 || columns < 0 || static_cast<int64_t>(got.size()) != rows * columns || got.size() != want.size())
    throw std::invalid_argument("compare: " + std::to_string(got.size()) + " and " + std::to_string(want.size()) + " elements for " +
                                std::to_string(rows) + " x " + std::to_string(columns));
  TensorSums sums(rows, columns);
  for (int64_t r = 0; r < rows; ++r) {
    double row_difference = 0, row_reference = 0;
    for (int64_t c = 0; c < columns; ++c) {
      const auto i = static_cast<size_t>(r * columns + c);
      const double g = static_cast<double>(got[i]), w = static_cast<double>(want[i]), d = g - w;
      row_difference += d * d;
      row_reference += w * w;
      sums.columns.difference[static_cast<size_t>(c)] += d * d;
      sums.columns.want[static_cast<size_t>(c)] += w * w;
      sums.size += g * g;
      sums.dot += g * w;
      if (!(std::abs(d) <= sums.max_abs) && !std::isnan(sums.max_abs)) sums.max_abs = std::abs(d);
    }
    sums.rows.difference[static_cast<size_t>(r)] = row_difference;
    sums.rows.want[static_cast<size_t>(r)] = row_reference;
  }
  return metrics_of(sums);
}

ErrorMetrics metrics_of(const TensorSums& sums) {
  const double difference = std::accumulate(sums.rows.difference.begin(), sums.rows.difference.end(), 0.0),
               reference = std::accumulate(sums.rows.want.begin(), sums.rows.want.end(), 0.0);
  const auto rows = static_cast<int64_t>(sums.rows.want.size()), columns = static_cast<int64_t>(sums.columns.want.size());
  ErrorMetrics out;
  out.max_abs = sums.max_abs;
  out.norm = ratio(std::sqrt(difference), std::sqrt(reference));
  if (difference != 0) out.cosine = sums.dot / (std::sqrt(sums.size) * std::sqrt(reference));
  out.has_rows = columns >= kFewestForNorm && rows > 1;
  out.has_columns = rows >= kFewestForNorm && columns > 1;
  if (out.has_rows) worst_slice(sums.rows, out.worst_row, out.worst_row_at);
  if (out.has_columns) worst_slice(sums.columns, out.worst_column, out.worst_column_at);
  return out;
}

template ErrorMetrics compare(std::span<const float>, std::span<const float>, int64_t, int64_t);
template ErrorMetrics compare(std::span<const float>, std::span<const double>, int64_t, int64_t);
template ErrorMetrics compare(std::span<const double>, std::span<const float>, int64_t, int64_t);
template ErrorMetrics compare(std::span<const double>, std::span<const double>, int64_t, int64_t);

int64_t count_different(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return static_cast<int64_t>(std::max(a.size(), b.size()));
  int64_t n = 0;
  for (size_t i = 0; i < a.size(); ++i) n += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]);
  return n;
}

int64_t count_not_finite(std::span<const float> values) {
  return std::count_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
}

}  // namespace gate
