#include "experiments/gate/op_judge.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "experiments/gate/random.h"

namespace gate {

double op_floor(std::string_view matmul, bool is_matmul, int64_t terms) {
  if (!is_matmul) return 2e-6;
  return std::max(matmul == "tf32" ? 1e-3 : 2e-6, 2 * 3.4e-8 * std::sqrt(static_cast<double>(terms) / 2));
}

Tolerance op_limit(double floor, const ErrorMetrics* baseline) { return op_limit(tolerance(floor), baseline); }

Tolerance op_limit(Tolerance limit, const ErrorMetrics* baseline) {
  if (baseline != nullptr) {
    // std::max(a, NaN) is a: a broken baseline does not widen the limit.
    limit.norm = std::max(limit.norm, 2 * baseline->norm);
    limit.row = std::max(limit.row, 2 * baseline->worst_row);
    limit.column = std::max(limit.column, 2 * baseline->worst_column);
  }
  return limit;
}

namespace {

double units(const Rounding& r) { return (r.count + (r.stochastic ? 1 : 0)) * kBf16Unit; }

}  // namespace

// The constant is for sums in fp32 on tensor cores, which cut off where other units round.
Tolerance rounding_limit(const Rounding& r) {
  const double limit = units(r) + r.inside + 2e-5;
  return {limit, limit + 3 * r.inside, limit + 3 * r.inside};
}

double element_limit(const Rounding& r) { return units(r) + 1e-3 + r.terms / 16 * 0x1p-24 / 0.05; }

double worst_element(std::span<const double> got, std::span<const double> want) {
  double squares = 0;
  for (double x : want) squares += x * x;
  const double least = 0.05 * std::sqrt(squares / static_cast<double>(std::max<size_t>(want.size(), 1)));
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(got[i] - want[i]);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::quiet_NaN();
    if (difference > 0) worst = std::max(worst, difference / std::max(std::abs(want[i]), least));
  }
  return worst;
}

double lean_limit(const Lean& lean, int bits, int64_t terms) {
  return kLeanGranted + 6 * lean.deviation + std::ldexp(static_cast<double>(terms) / 16, bits - 24);
}

int bits_of(const Rounding& r) {
  if (r.stochastic) return 0;
  if (r.count > 0 || r.inside >= kBf16Unit / 2) return kBf16Bits;
  return r.inside == kSplitUnit ? kSplitBits : 0;
}

float to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

StochasticJudgement judge_stochastic(std::span<const float> masters, std::span<const float> rounded) {
  StochasticJudgement out;
  double error = 0, variance = 0;
  for (size_t i = 0; i < masters.size(); ++i) {
    // Neighbours by magnitude: cut off, and one bf16 further from zero.
    const uint32_t bits = std::bit_cast<uint32_t>(masters[i]), low = bits & 0xffff0000u, part = bits & 0xffffu;
    const auto got = std::bit_cast<uint32_t>(rounded[i]);
    if (got != low && (part == 0 || got != low + 0x10000u)) {
      ++out.not_a_neighbour;
      continue;
    }
    // In units of the distance of the neighbours, so that large weights do not decide alone.
    const double p = static_cast<double>(part) / 65536, off = (got == low ? 0.0 : 1.0) - p;
    error += off;
    variance += p * (1 - p);
    out.together.look(off, p * (1 - p), static_cast<int64_t>(i));
  }
  out.together.finish();
  out.bias_sigmas = variance > 0 ? std::abs(error) / std::sqrt(variance) : std::numeric_limits<double>::quiet_NaN();
  return out;
}

std::vector<std::string> accepted_fakes(const std::vector<double>& want, int64_t rows, int64_t columns, const Tolerance& limit) {
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
