#include "experiments/gate/op_compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "experiments/gate/op_chunks.cuh"

namespace gate {
namespace {

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

struct Sums {
  double difference, want, got, dot, max_abs;
};
struct RowTerm {
  Got got;
  View want;
  int64_t columns;
  GATE_ANYWHERE void operator()(Sums& s, int64_t row, int64_t c) const {
    const double g = got[row * columns + c], w = want[row * columns + c], d = g - w, size = d < 0 ? -d : d;
    s.difference += d * d;
    s.want += w * w;
    s.got += g * g;
    s.dot += g * w;
    if (!(size <= s.max_abs) && s.max_abs == s.max_abs) s.max_abs = size;  // lets NaN through
  }
};
struct Pair {
  double difference, want;
};
struct ColumnTerm {
  Got got;
  View want;
  int64_t columns;
  GATE_ANYWHERE void operator()(Pair& s, int64_t r, int64_t c) const {
    const double w = want[r * columns + c], d = got[r * columns + c] - w;
    s.difference += d * d;
    s.want += w * w;
  }
};

ErrorMetrics compare(Space space, const Got& got, View want, int64_t rows, int64_t columns) {
  TensorSums t(rows, rows > 1 ? columns : 1);  // one row has no columns to judge, and may be a hundred million elements
  const int64_t per_row = chunks(columns);
  const std::vector<Sums> by_row = values_of<Sums>(row_chunks<Sums>(space, rows, columns, RowTerm{got, want, columns}));
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
    const std::vector<Pair> by_column = values_of<Pair>(column_chunks<Pair>(space, rows, columns, ColumnTerm{got, want, columns}));
    for (size_t i = 0; i < by_column.size(); ++i) {
      const size_t column = i % static_cast<size_t>(columns);
      t.columns.difference[column] += by_column[i].difference;
      t.columns.want[column] += by_column[i].want;
    }
  }
  return metrics_of(t);
}

struct ScaleSums {
  double along, squares, fourths;
};
struct ScaleTerm {
  View got, want;
  int64_t columns;
  GATE_ANYWHERE void operator()(ScaleSums& s, int64_t row, int64_t c) const {
    const double w = want[row * columns + c], squared = w * w;
    s.along += (got[row * columns + c] - w) * w;
    s.squares += squared;
    s.fourths += squared * squared;
  }
};

// Whether a result is further from zero than its answer (1), nearer (-1) or the same, to so many bits. NaN of what is not finite.
struct Side {
  double least;  // of the answer, or it is not asked
  int bits;
  GATE_ANYWHERE bool asks(double want) const { return !((want < 0 ? -want : want) < least) && want != 0; }
  GATE_ANYWHERE double of(double got, double want) const {
    if (!(got - got == 0)) return got - got;
    const double further = nearest(got, bits) - nearest(want, bits), outwards = want < 0 ? -further : further;
    return outwards > 0 ? 1 : outwards < 0 ? -1 : 0;
  }
};
// Of answers, as a share of their root mean square.
constexpr double kNearlyZero = 0x1p-10;

struct LeanSums {
  double sides, count;
};
struct LeanTerm {
  View got, want;
  Side side;
  int64_t columns;
  GATE_ANYWHERE void operator()(LeanSums& s, int64_t row, int64_t c) const {
    const int64_t i = row * columns + c;
    if (!side.asks(want[i])) return;
    s.sides += side.of(got[i], want[i]);
    s.count += 1;
  }
};

using Count = unsigned long long;
GATE_ANYWHERE void count_one(Count& count) {
#ifdef __CUDA_ARCH__
  atomicAdd(&count, Count{1});
#else
  ++count;
#endif
}
struct Eighth {
  Count all, further, nearer;
};
constexpr int64_t kEighths = 66;  // from -4 to 4, and one to either side
struct LeanAlong {
  Eighth* eighths;
  View got, want, along;
  Side side;
  GATE_ANYWHERE void operator()(int64_t i) const {
    if (!side.asks(want[i])) return;
    const double at = floor(8 * along[i]) + kEighths / 2;
    Eighth& e = eighths[at < 0 ? 0 : at < kEighths ? static_cast<int64_t>(at) : kEighths - 1];
    const double of = side.of(got[i], want[i]);
    count_one(e.all);
    if (of < 0)
      count_one(e.nearer);
    else if (of != 0)  // also NaN, which is an error of its own
      count_one(e.further);
  }
};

struct WorstTerm {
  View got, want;
  double floor;
  GATE_ANYWHERE void operator()(double& worst, int64_t, int64_t i) const {
    const double d = got[i] - want[i], size = d < 0 ? -d : d, own = want[i] < 0 ? -want[i] : want[i];
    if (!(size < 1e308))
      worst = std::numeric_limits<double>::quiet_NaN();
    else if (size / (own > floor ? own : floor) > worst)  // false once it is NaN, which must stay
      worst = size / (own > floor ? own : floor);
  }
};

struct CountTerm {
  const std::byte *a, *b;  // b null: all ones are counted
  int64_t width;
  GATE_ANYWHERE void operator()(int64_t& count, int64_t, int64_t i) const {
    bool same = true;
    for (int64_t k = 0; k < width; ++k) same = same && a[i * width + k] == (b == nullptr ? std::byte{0xff} : b[i * width + k]);
    count += b == nullptr ? same : !same;
  }
};
// Counting reads single bytes, while nearly all that is asked about is equal and fully written. So 16 bytes at a time are looked at first:
// a `found` that stays 0 says that there is nothing to count. It may become 1 for nothing.
struct Look {
  const std::byte *a, *b;  // aligned to 16 bytes; b null: elements of all ones are looked for
  int64_t bytes, width;    // width: 2, 4 or 8 where b is null
  int32_t* found;
  GATE_ANYWHERE bool is_suspect(uint32_t x) const { return width == 2 ? (x & 0xffffu) == 0xffffu || x >> 16 == 0xffffu : x == 0xffffffffu; }
  GATE_ANYWHERE void operator()(int64_t i) const {
    if ((i + 1) * 16 > bytes) {
      for (int64_t k = i * 16; k < bytes; ++k)
        if (b == nullptr ? a[k] == std::byte{0xff} : a[k] != b[k]) *found = 1;
      return;
    }
    const uint4 x = reinterpret_cast<const uint4*>(a)[i];
    if (b == nullptr) {
      if (is_suspect(x.x) || is_suspect(x.y) || is_suspect(x.z) || is_suspect(x.w)) *found = 1;
      return;
    }
    const uint4 y = reinterpret_cast<const uint4*>(b)[i];
    if (x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w) *found = 1;
  }
};
// Leaves 1 in `found` where there may be something to count.
void look_for_work(const Memory& found, const std::byte* a, const std::byte* b, int64_t bytes, int64_t width) {
  const auto aligned = [](const std::byte* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (!aligned(a) || !aligned(b) || (b == nullptr && width != 2 && width != 4 && width != 8))
    set_bytes(found.data(), found.space(), std::byte{1}, found.bytes());
  else
    for_each_index(found.space(), gpt2::cuda::ceil_div<int64_t>(bytes, 16), Look{a, b, bytes, width, found.as<int32_t>()});
}
Memory nothing_found(Space space) { return memory_of(space, std::vector<int32_t>{0}); }
bool is_set(const Memory& found) { return values_of<int32_t>(found).front() != 0; }
bool may_count(Space space, const std::byte* a, const std::byte* b, int64_t bytes, int64_t width) {
  const Memory found = nothing_found(space);
  look_for_work(found, a, b, bytes, width);
  return is_set(found);
}

int64_t count(Space space, const std::byte* a, const std::byte* b, int64_t bytes, int64_t width) {
  if (!may_count(space, a, b, bytes, width)) return 0;
  int64_t total = 0;
  for (int64_t x : list_chunks<int64_t>(space, bytes / width, CountTerm{a, b, width})) total += x;
  return total;
}

struct Rounded {
  int64_t not_nearest, not_a_neighbour;
  double error, variance;
  RoundedTogether together;
};
struct RoundedTerm {
  const float* masters;
  const uint16_t* weights;
  GATE_ANYWHERE void operator()(Rounded& r, int64_t, int64_t i) const {
    r.not_nearest += weights[i] != bf16_bits(masters[i]);
    // Neighbours by magnitude: cut off, and one bf16 further from zero.
    const auto bits = std::bit_cast<uint32_t>(masters[i]);
    const uint32_t low = bits >> 16, part = bits & 0xffffu;
    if (weights[i] != low && (part == 0 || weights[i] != low + 1)) {
      ++r.not_a_neighbour;
      return;
    }
    const double p = static_cast<double>(part) / 65536, error = (weights[i] == low ? 0.0 : 1.0) - p;
    r.error += error;
    r.variance += p * (1 - p);
    r.together.look(error, p * (1 - p), i);
  }
};
Rounded rounding_of(const Memory& masters, const Memory& weights) {
  const int64_t n = masters.bytes() / 4;
  if (weights.bytes() != n * 2) throw std::logic_error("rounding: other numbers of weights and of masters");
  static_assert(kChunk % 8 == 0);  // no eight lies in two
  Rounded total{};
  for (Rounded& r : list_chunks<Rounded>(masters.space(), n, RoundedTerm{masters.as<float>(), weights.as<uint16_t>()})) {
    r.together.finish();
    total.together.add(r.together);
    total.not_nearest += r.not_nearest;
    total.not_a_neighbour += r.not_a_neighbour;
    total.error += r.error;
    total.variance += r.variance;
  }
  return total;
}

struct RandomTerm {
  View got, want;
  double least;
  int bits;
  GATE_ANYWHERE void operator()(RoundedAtRandom& s, int64_t, int64_t i) const {
    const double w = want[i];
    if (!((w < 0 ? -w : w) < least)) s.look(got[i], w, bits);
  }
};

double root_mean_square(Space space, View want, int64_t n) {
  double squares = 0;
  for (const Sums& s : list_chunks<Sums>(space, n, RowTerm{Got{want, Fake::none, n}, want, n})) squares += s.want;
  return std::sqrt(squares / static_cast<double>(std::max<int64_t>(n, 1)));
}

}  // namespace

ErrorMetrics compare(Space space, View got, View want, int64_t rows, int64_t columns) {
  return compare(space, Got{got, Fake::none, rows * columns}, want, rows, columns);
}

double worst_element(Space space, View got, View want, int64_t n) {
  const double floor = 0.05 * root_mean_square(space, want, n);
  double worst = 0;
  for (double x : list_chunks<double>(space, n, WorstTerm{got, want, floor})) keep_worst(worst, x);
  return worst;
}

double worst_row_scale(Space space, View got, View want, int64_t rows, int64_t columns, const RowScale& limit) {
  const int64_t per_row = chunks(columns);
  const std::vector<ScaleSums> parts = values_of<ScaleSums>(row_chunks<ScaleSums>(space, rows, columns, ScaleTerm{got, want, columns}));
  double worst = 0;
  for (int64_t row = 0; row < rows; ++row) {
    ScaleSums s{};
    for (int64_t i = row * per_row; i < (row + 1) * per_row; ++i) {
      const ScaleSums& part = parts[static_cast<size_t>(i)];
      s.along += part.along;
      s.squares += part.squares;
      s.fourths += part.fourths;
    }
    if (!std::isfinite(s.along)) return std::numeric_limits<double>::quiet_NaN();
    if (!(s.fourths > 0)) continue;  // zeros, or so small that their roundings are not relative to them
    const double averaged = std::max(std::sqrt(s.fourths), RowScale::least * s.squares);
    worst = std::max(worst, std::abs(s.along) / (limit.shared * s.squares + RowScale::deviations * limit.deviation * averaged));
  }
  return worst;
}

std::optional<Lean> lean_of(Space space, View got, View want, int64_t rows, int64_t columns, int bits) {
  const int64_t per_row = chunks(columns), pieces = rows > 1 ? rows : per_row, of_a_piece = rows > 1 ? per_row : 1;
  if (pieces < kFewestToLean) return std::nullopt;
  const Side side{kNearlyZero * root_mean_square(space, want, rows * columns), bits};
  const std::vector<LeanSums> parts = values_of<LeanSums>(row_chunks<LeanSums>(space, rows, columns, LeanTerm{got, want, side, columns}));
  double sides = 0, count = 0, sides_squared = 0, both = 0, count_squared = 0;
  int64_t asked = 0;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    LeanSums s{};
    for (int64_t i = piece * of_a_piece; i < (piece + 1) * of_a_piece; ++i) {
      s.sides += parts[static_cast<size_t>(i)].sides;
      s.count += parts[static_cast<size_t>(i)].count;
    }
    asked += s.count > 0 ? 1 : 0;
    sides += s.sides;
    count += s.count;
    sides_squared += s.sides * s.sides;
    both += s.sides * s.count;
    count_squared += s.count * s.count;
  }
  if (asked < kFewestToLean) return std::nullopt;
  // A piece's elements have errors in common, so the deviation is that of the pieces' sums about what their sizes let expect.
  const double share = sides / count, squares = sides_squared - 2 * share * both + share * share * count_squared;
  return Lean{share, std::sqrt(std::max(squares, 0.0)) / count};
}

WorstLean worst_lean_along(Space space, View got, View want, View along, int64_t n, int bits) {
  const Memory eighths = memory_of(space, std::vector<Eighth>(kEighths));
  const Side side{kNearlyZero * root_mean_square(space, want, n), bits};
  for_each_index(space, n, LeanAlong{eighths.as<Eighth>(), got, want, along, side});
  const std::vector<Eighth> counted = values_of<Eighth>(eighths);
  WorstLean worst;
  for (size_t i = 0; i < counted.size(); ++i) {
    const auto further = static_cast<double>(counted[i].further), nearer = static_cast<double>(counted[i].nearer);
    if (further + nearer == 0) continue;
    const double all = static_cast<double>(counted[i].all), share = std::abs(further - nearer) / all,
                 of_limit = share / lean_limit({.deviation = std::sqrt(further + nearer) / all}, bits, 0);
    if (of_limit > worst.of_limit) worst = {of_limit, static_cast<int64_t>(i)};
  }
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
AnyDifferent::AnyDifferent(Space space) : found_(nothing_found(space)) {}
void AnyDifferent::look(const void* a, const void* b, int64_t bytes) {
  look_for_work(found_, static_cast<const std::byte*>(a), static_cast<const std::byte*>(b), bytes, 1);
}
bool AnyDifferent::found() {
  if (!is_set(found_)) return false;
  set_bytes(found_.data(), found_.space(), std::byte{0}, found_.bytes());
  return true;
}
int64_t count_all_ones(Space space, const void* data, int64_t bytes, int64_t width) {
  return count(space, static_cast<const std::byte*>(data), nullptr, bytes, width);
}
int64_t count_not_rounded(const Memory& masters, const Memory& weights) { return rounding_of(masters, weights).not_nearest; }

RoundedAtRandom rounded_at_random(Space space, View got, View want, int64_t n, int bits, double least) {
  const double size = least > 0 ? least * root_mean_square(space, want, n) : 0;
  RoundedAtRandom total{};
  for (const RoundedAtRandom& part : list_chunks<RoundedAtRandom>(space, n, RandomTerm{got, want, size, bits})) total.add(part);
  return total;
}

StochasticJudgement judge_stochastic(const Memory& masters, const Memory& weights) {
  const Rounded r = rounding_of(masters, weights);
  return {r.not_a_neighbour, r.variance > 0 ? std::abs(r.error) / std::sqrt(r.variance) : std::numeric_limits<double>::quiet_NaN(),
          r.together};
}

}  // namespace gate
