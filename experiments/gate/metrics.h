// How far one tensor is from another: on the whole, on its worst row and on its worst column. A single bad
// row of thousands disappears in the norm, a bad output channel disappears in every row; each is looked at on
// its own. Anything not finite, on either side, makes the errors NaN or infinite, and only `error <= budget`
// passes: so NaN fails.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace gate {

// A maximum that keeps a NaN: what comes behind it compares false with it, either way. Whether x took its place.
inline bool keep_worst(double& worst, double x) {
  if (std::isnan(worst) || x <= worst) return false;
  worst = x;
  return true;
}

struct ErrorMetrics {
  double norm = 0;       // |got - want| / |want|  (0 if both are all zeros, infinite if only `want` is)
  double cosine = 1;     // of the angle between the two; 1 if both are all zeros
  double max_abs = 0;    // largest |got - want|
  double worst_row = 0;  // largest over rows of |got_r - want_r| / max(|want_r|, upper quartile of non-zero |want_r|)
  int64_t worst_row_at = 0;
  double worst_column = 0;  // the same over columns
  int64_t worst_column_at = 0;
  bool has_rows = false;  // false: too few columns for a row to be a sample (worst_row is then 0 and means nothing)
  bool has_columns = false;
};

// Both (rows, columns) row-major, rows * columns elements. The floor at the upper quartile keeps rows that
// are zero in exact arithmetic (the key bias, unused positions) from dividing rounding noise by nothing. Sums
// are in double. Throws std::invalid_argument when the sizes do not match.
template <typename Got, typename Want>
ErrorMetrics compare(std::span<const Got> got, std::span<const Want> want, int64_t rows, int64_t columns);

// Sums of squares from which the metrics of a (rows, columns) tensor follow, wherever they were added up.
struct SliceSums {
  std::vector<double> difference, want;
  explicit SliceSums(int64_t n) : difference(static_cast<size_t>(n)), want(static_cast<size_t>(n)) {}
};
struct TensorSums {
  TensorSums(int64_t row_count, int64_t column_count) : rows(row_count), columns(column_count) {}
  SliceSums rows, columns;
  double size = 0, dot = 0;  // |got|^2, got . want
  double max_abs = 0;
};
ErrorMetrics metrics_of(const TensorSums& sums);

// Number of elements whose bit patterns differ (so NaN equals itself and 0 differs from -0).
int64_t count_different(std::span<const float> a, std::span<const float> b);
int64_t count_not_finite(std::span<const float> values);

}  // namespace gate
