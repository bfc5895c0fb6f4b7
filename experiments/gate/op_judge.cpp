#include "experiments/gate/op_judge.h"

#include <algorithm>

#include "experiments/gate/random.h"

namespace gate {

double op_floor(std::string_view matmul, bool is_matmul) {
  return is_matmul && matmul == "tf32" ? 1e-3 : 2e-6;
}

Tolerance op_limit(double floor, const ErrorMetrics* baseline) {
  Tolerance limit = tolerance(floor);
  if (baseline != nullptr) {
    // std::max(a, NaN) is a: a broken baseline does not widen the limit.
    limit.norm = std::max(limit.norm, 2 * baseline->norm);
    limit.row = std::max(limit.row, 2 * baseline->worst_row);
    limit.column = std::max(limit.column, 2 * baseline->worst_column);
  }
  return limit;
}

std::vector<std::string> accepted_fakes(const std::vector<double>& want, int64_t rows, int64_t columns,
                                        const Tolerance& limit) {
  std::vector<std::string> accepted;
  if (std::all_of(want.begin(), want.end(), [](double x) { return x == 0; })) return accepted;
  const auto accepts = [&](const std::vector<double>& fake) {
    return from_metrics("", "", compare<double, double>(fake, want, rows, columns), limit).passed;
  };
  if (accepts(std::vector<double>(want.size(), 0.0))) accepted.emplace_back("zeros");
  std::vector<double> fake(want.rbegin(), want.rend());
  if (fake != want && accepts(fake)) accepted.emplace_back("shuffled");
  Random random(1);
  fake = want;
  for (double& x : fake) x *= 1 + (random.bits() % 2 == 0 ? kFakeNoise : -kFakeNoise);
  if (accepts(fake)) accepted.emplace_back("1% noise");
  return accepted;
}

}  // namespace gate
