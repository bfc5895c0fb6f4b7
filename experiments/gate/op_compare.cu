#include "experiments/gate/op_compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "experiments/gate/op_each.cuh"

namespace gate {
namespace {

constexpr int64_t kChunk = 256;
int64_t chunks(int64_t n) { return gpt2::cuda::ceil_div<int64_t>(n, kChunk); }
GATE_ANYWHERE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// A result, or a wrong one made of the answer.
enum class Fake { none, zeros, reversed, noise };
struct Got {
  View values;  // Fake::none: the result; else the answer
  Fake fake = Fake::none;
  int64_t n = 0;
  GATE_ANYWHERE double operator[](int64_t i) const {
    switch (fake) {
      case Fake::none:
        return values[i];
      case Fake::zeros:
        return 0;
      case Fake::reversed:
        return values[n - 1 - i];
      case Fake::noise: {
        const uint64_t mixed = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ull;
        return values[i] * (1 + ((mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9ull >> 63 == 0 ? kFakeNoise : -kFakeNoise));
      }
    }
    return 0;
  }
};

// Of a chunk of a row.
struct Sums {
  double difference, want, got, dot, max_abs;
};
struct RowChunk {
  Sums* out;
  Got got;
  View want;
  int64_t columns, per_row;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / per_row, chunk = i % per_row;
    Sums s{};
    for (int64_t c = chunk * kChunk; c < least((chunk + 1) * kChunk, columns); ++c) {
      const double g = got[row * columns + c], w = want[row * columns + c], d = g - w, size = d < 0 ? -d : d;
      s.difference += d * d;
      s.want += w * w;
      s.got += g * g;
      s.dot += g * w;
      if (!(size <= s.max_abs) && s.max_abs == s.max_abs) s.max_abs = size;  // lets NaN through
    }
    out[i] = s;
  }
};
struct Pair {
  double difference, want;
};
// Index: a column, within a chunk of rows.
struct ColumnChunk {
  Pair* out;
  Got got;
  View want;
  int64_t rows, columns;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t chunk = i / columns, c = i % columns;
    Pair s{};
    for (int64_t r = chunk * kChunk; r < least((chunk + 1) * kChunk, rows); ++r) {
      const double w = want[r * columns + c], d = got[r * columns + c] - w;
      s.difference += d * d;
      s.want += w * w;
    }
    out[i] = s;
  }
};

ErrorMetrics compare(Space space, const Got& got, View want, int64_t rows, int64_t columns) {
  TensorSums t(rows, rows > 1 ? columns : 1);  // one row has no columns to judge, and may be a hundred million elements
  const int64_t per_row = chunks(columns);
  const Memory row_parts(space, rows * per_row * static_cast<int64_t>(sizeof(Sums)));
  for_each_index(space, rows * per_row, RowChunk{row_parts.as<Sums>(), got, want, columns, per_row});
  const std::vector<Sums> by_row = values_of<Sums>(row_parts);
  for (size_t i = 0; i < by_row.size(); ++i) {
    const Sums& s = by_row[i];
    const size_t row = i / static_cast<size_t>(per_row);
    t.rows.difference[row] += s.difference;
    t.rows.want[row] += s.want;
    t.size += s.got;
    t.dot += s.dot;
    if (!(s.max_abs <= t.max_abs) && !std::isnan(t.max_abs)) t.max_abs = s.max_abs;
  }
  if (rows > 1) {
    const Memory column_parts(space, chunks(rows) * columns * static_cast<int64_t>(sizeof(Pair)));
    for_each_index(space, chunks(rows) * columns, ColumnChunk{column_parts.as<Pair>(), got, want, rows, columns});
    const std::vector<Pair> by_column = values_of<Pair>(column_parts);
    for (size_t i = 0; i < by_column.size(); ++i) {
      const size_t column = i % static_cast<size_t>(columns);
      t.columns.difference[column] += by_column[i].difference;
      t.columns.want[column] += by_column[i].want;
    }
  }
  return metrics_of(t);
}

struct WorstOfChunk {
  double* out;
  View got, want;
  int64_t n;
  double floor;
  GATE_ANYWHERE void operator()(int64_t chunk) const {
    double worst = 0;
    for (int64_t i = chunk * kChunk; i < least((chunk + 1) * kChunk, n); ++i) {
      const double d = got[i] - want[i], size = d < 0 ? -d : d, own = want[i] < 0 ? -want[i] : want[i];
      if (!(size < 1e308))
        worst = std::numeric_limits<double>::quiet_NaN();
      else if (size > 0 && !(size / (own > floor ? own : floor) <= worst))
        worst = size / (own > floor ? own : floor);
    }
    out[chunk] = worst;
  }
};

struct CountChunk {
  int64_t* out;
  const std::byte *a, *b;  // b null: all ones are counted
  int64_t n, width;
  GATE_ANYWHERE void operator()(int64_t chunk) const {
    int64_t count = 0;
    for (int64_t i = chunk * kChunk; i < least((chunk + 1) * kChunk, n); ++i) {
      bool same = true;
      for (int64_t k = 0; k < width; ++k) same = same && a[i * width + k] == (b == nullptr ? std::byte{0xff} : b[i * width + k]);
      count += b == nullptr ? same : !same;
    }
    out[chunk] = count;
  }
};
int64_t count(Space space, const std::byte* a, const std::byte* b, int64_t bytes, int64_t width) {
  const int64_t n = bytes / width;
  const Memory parts(space, chunks(n) * 8);
  for_each_index(space, chunks(n), CountChunk{parts.as<int64_t>(), a, b, n, width});
  int64_t total = 0;
  for (int64_t x : values_of<int64_t>(parts)) total += x;
  return total;
}

struct Rounded {
  int64_t not_nearest, not_a_neighbour;
  double error, variance;
};
struct RoundedChunk {
  Rounded* out;
  const float* masters;
  const uint16_t* weights;
  int64_t n;
  GATE_ANYWHERE void operator()(int64_t chunk) const {
    Rounded r{};
    for (int64_t i = chunk * kChunk; i < least((chunk + 1) * kChunk, n); ++i) {
      r.not_nearest += weights[i] != bf16_bits(masters[i]);
      // Neighbours by magnitude: cut off, and one bf16 further from zero.
      const auto bits = std::bit_cast<uint32_t>(masters[i]);
      const uint32_t low = bits >> 16, part = bits & 0xffffu;
      if (weights[i] != low && (part == 0 || weights[i] != low + 1)) {
        ++r.not_a_neighbour;
        continue;
      }
      const double p = static_cast<double>(part) / 65536;
      r.error += (weights[i] == low ? 0.0 : 1.0) - p;
      r.variance += p * (1 - p);
    }
    out[chunk] = r;
  }
};
Rounded rounding_of(const Memory& masters, const Memory& weights) {
  const int64_t n = masters.bytes() / 4;
  if (weights.bytes() != n * 2) throw std::logic_error("rounding: other numbers of weights and of masters");
  const Memory parts(masters.space(), chunks(n) * static_cast<int64_t>(sizeof(Rounded)));
  for_each_index(masters.space(), chunks(n), RoundedChunk{parts.as<Rounded>(), masters.as<float>(), weights.as<uint16_t>(), n});
  Rounded total{};
  for (const Rounded& r : values_of<Rounded>(parts)) {
    total.not_nearest += r.not_nearest;
    total.not_a_neighbour += r.not_a_neighbour;
    total.error += r.error;
    total.variance += r.variance;
  }
  return total;
}

}  // namespace

ErrorMetrics compare(Space space, View got, View want, int64_t rows, int64_t columns) {
  return compare(space, Got{got, Fake::none, rows * columns}, want, rows, columns);
}

double worst_element(Space space, View got, View want, int64_t n) {
  const Memory row_parts(space, chunks(n) * static_cast<int64_t>(sizeof(Sums)));
  for_each_index(space, chunks(n), RowChunk{row_parts.as<Sums>(), Got{want, Fake::none, n}, want, n, chunks(n)});
  double squares = 0;
  for (const Sums& s : values_of<Sums>(row_parts)) squares += s.want;
  const double floor = 0.05 * std::sqrt(squares / static_cast<double>(std::max<int64_t>(n, 1)));
  const Memory parts(space, chunks(n) * 8);
  for_each_index(space, chunks(n), WorstOfChunk{parts.as<double>(), got, want, n, floor});
  double worst = 0;
  for (double x : values_of<double>(parts))
    if (!(x <= worst) && !std::isnan(worst)) worst = x;
  return worst;
}

std::vector<std::string> accepted_fakes(Space space, View want, int64_t rows, int64_t columns, const Tolerance& limit) {
  std::vector<std::string> accepted;
  const auto metrics = [&](Fake fake) { return compare(space, Got{want, fake, rows * columns}, want, rows, columns); };
  const auto passes = [&](const ErrorMetrics& m) { return from_metrics("", "", m, limit).passed; };
  const ErrorMetrics zeros = metrics(Fake::zeros);
  if (zeros.max_abs == 0) return accepted;  // an answer of zeros cannot tell
  if (passes(zeros)) accepted.emplace_back("zeros");
  const ErrorMetrics reversed = metrics(Fake::reversed);
  if (reversed.max_abs != 0 && passes(reversed)) accepted.emplace_back("shuffled");
  if (passes(metrics(Fake::noise))) accepted.emplace_back("1% noise");
  return accepted;
}

int64_t count_different(Space space, const void* a, const void* b, int64_t bytes, int64_t width) {
  return count(space, static_cast<const std::byte*>(a), static_cast<const std::byte*>(b), bytes, width);
}
int64_t count_all_ones(Space space, const void* data, int64_t bytes, int64_t width) {
  return count(space, static_cast<const std::byte*>(data), nullptr, bytes, width);
}
int64_t count_not_rounded(const Memory& masters, const Memory& weights) { return rounding_of(masters, weights).not_nearest; }

StochasticJudgement judge_stochastic(const Memory& masters, const Memory& weights) {
  const Rounded r = rounding_of(masters, weights);
  return {r.not_a_neighbour, r.variance > 0 ? std::abs(r.error) / std::sqrt(r.variance) : std::numeric_limits<double>::quiet_NaN()};
}

}  // namespace gate
