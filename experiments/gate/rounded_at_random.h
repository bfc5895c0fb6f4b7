// Whether numbers were rounded at random to fewer bits than fp32 has: each to one of its two neighbours, so that the mean is right. One who
// cuts off, or rounds to the nearest, leaves no element further off than that; sums over many elements tell them apart.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "experiments/gate/moment_bits.h"
#include "experiments/gate/op_memory.h"

namespace gate {

// The distance of neighbours around `value` that have so many significant bits and fp32's exponents.
GATE_ANYWHERE inline double spacing(double value, int bits) {
  constexpr int kLeast = -126;  // exponent of the smallest normal number
  const int exponent = static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7ff) - 1023;
  return std::bit_cast<double>(static_cast<uint64_t>((exponent > kLeast ? exponent : kLeast) - (bits - 1) + 1023) << 52);
}
// The nearest number of so many significant bits, ties to even.
GATE_ANYWHERE inline double nearest(double value, int bits) {
  const double unit = spacing(value, bits);
  return rint(value / unit) * unit;
}
// The most that rounding to either neighbour changes a number; relative, so that one next to a power of two may pass it.
GATE_ANYWHERE inline double either_neighbour(double value, int bits) {
  const double least = spacing(0, bits), relative = std::bit_cast<double>(static_cast<uint64_t>(1023 - (bits - 1)) << 52);
  return relative * (value < 0 ? -value : value) + least;
}

// Sums over elements, in units of the distance of neighbours. Of an element p of the way from the nearer zero to the other, the error is 1 - p
// with the probability p, else -p: its mean is 0, and that of its square p (1 - p).
struct RoundedAtRandom {
  double count, error, error_variance, square, square_variance;

  GATE_ANYWHERE void look(double got, double want, int bits) {
    if (want == 0) return;
    const double unit = spacing(want, bits), size = (want < 0 ? -want : want) / unit;
    if (!(size < 0x1p24)) {
      error = NAN;
      return;
    }
    const double p = size - static_cast<double>(static_cast<int64_t>(size)), q = p * (1 - p),
                 e = (want < 0 ? want - got : got - want) / unit;
    count += 1;
    error += e;
    error_variance += q;
    square += e * e - q;
    square_variance += q * (1 - 3 * q) - q * q;
  }
  GATE_ANYWHERE void add(const RoundedAtRandom& o) {
    count += o.count;
    error += o.error;
    error_variance += o.error_variance;
    square += o.square;
    square_variance += o.square_variance;
  }
  // How far both sums are from 0, in their deviations, beyond `granted` of the distance of neighbours in every element: arithmetic in fp32 is
  // off by that much, in places by the same in all elements. Squares feel an error of the arithmetic only in second order. Cutting off
  // makes the error half a distance; rounding to the nearest makes the squares a twelfth less. NaN where anything is not finite.
  double bias(double granted) const { return deviations(error, granted, error_variance); }
  double spread() const { return deviations(square, 0.01, square_variance); }

 private:
  double deviations(double sum, double granted, double variance) const {
    if (!std::isfinite(sum)) return NAN;
    return std::fmax(0, std::abs(sum) - granted * count) / std::sqrt(std::fmax(variance, 1));
  }
};

// What eights may be off by whatever their number, as a share. Of moments: their eight share a hash, of which each takes its own product.
// Of weights: each has a hash of its own; two that share one make the squares half as much again.
inline constexpr double kMomentsTogether = 0.25, kWeightsTogether = 0.03;

// Whether elements that lie together are rounded by bits of their own: the sum of the errors of eight has the square of so many independent
// ones. Where they share a byte it has up to 4.5 times as much, and every mean above is still right.
class RoundedTogether {
 public:
  GATE_ANYWHERE void look(double got, double want, int bits, int64_t element) {
    RoundedAtRandom one{};
    one.look(got, want, bits);
    look(one.error, one.error_variance, element);
  }
  // An error in units of the distance of neighbours, and its variance p (1 - p).
  GATE_ANYWHERE void look(double error, double variance, int64_t element) {
    if (element / 8 != eight_) finish();
    eight_ = element / 8;
    sum_ += error;
    variance_ += variance;
    spread_ += variance * (1 - 6 * variance);
  }
  GATE_ANYWHERE void finish() {
    squares_ += sum_ * sum_;
    variances_ += variance_;
    square_variance_ += 2 * variance_ * variance_ + spread_;
    sum_ = variance_ = spread_ = 0;
  }
  // Of both none is in the middle of an eight.
  GATE_ANYWHERE void add(const RoundedTogether& o) {
    squares_ += o.squares_;
    variances_ += o.variances_;
    square_variance_ += o.square_variance_;
  }
  // How far the squares are from what they should be, as a share of it; and what they may be, with six deviations beyond what is granted;
  // where hardly an element can be rounded up, the one that is may be.
  double excess() const { return variances_ > 0 ? std::abs(squares_ / variances_ - 1) : 0; }
  double limit(double granted) const { return granted + (variances_ > 0 ? 6 * std::sqrt(std::fmax(square_variance_, 1)) / variances_ : 0); }

 private:
  int64_t eight_ = -1;
  double sum_ = 0, variance_ = 0, spread_ = 0;  // of an eight; the last is the fourth cumulant of its sum
  double squares_ = 0, variances_ = 0, square_variance_ = 0;
};

}  // namespace gate
