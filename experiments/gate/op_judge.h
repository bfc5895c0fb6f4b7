// The part of the op gate that needs no device: limits, and whether a check under these limits could fail at
// all.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/gate/metrics.h"
#include "experiments/gate/report.h"
#include "experiments/gate/rounded_at_random.h"

namespace gate {

// What a plain fp32 or tf32 kernel may lose without being asked further; beyond it, twice what the baseline
// variant lost on the same inputs. tf32: both factors are cut to 10 bits, at worst 2^-10 each way when cut
// rather than rounded. `terms`: of the longest sum that a product takes in one go; rounding such a sum of random terms in fp32 costs
// about 3.4e-8 sqrt(terms / 2), and twice that is granted.
double op_floor(std::string_view matmul, bool is_matmul, int64_t terms = 1);

// max(floor, 2 x the baseline variant's own error), on the norm and on the worst row and column. `baseline`
// may be nullptr: this is the baseline variant.
Tolerance op_limit(double floor, const ErrorMetrics* baseline);
Tolerance op_limit(Tolerance least, const ErrorMetrics* baseline);

// The most that rounding to the nearest bf16 (8 significant bits) changes a value, relative to it.
inline constexpr double kBf16Unit = 0x1p-8;

// The deviation of such a change: it is spread evenly over the unit to either side, and less in all but the smallest of equal exponent.
inline constexpr double kBf16Deviation = kBf16Unit / 1.7320508075688772;
// The same of a split value, which has 16 significant bits.
inline constexpr double kSplitUnit = 0x1p-16;

// How often a value is rounded to bf16 between the fp32 sums and memory, and what else the op loses.
struct Rounding {
  double count = 0;         // of roundings to nearest; 0: none
  double inside = 0;        // relative to the tensor: what is lost before the sums are done (factors rounded, an
                            // approximate function)
  double terms = 0;         // of the longest sum on tensor cores
  bool stochastic = false;  // the last rounding goes to either neighbour: twice the unit
  explicit operator bool() const { return count > 0 || inside > 0; }
};
// On the norm, on the worst row and column. A rounding changes no element, so no norm and no row either, by
// more than its unit.
Tolerance rounding_limit(const Rounding& rounding);
// Largest |got - want| / max(|want|, 5% of the root mean square of want). NaN when anything is not finite.
// Finds what the norm cannot: cutting off instead of rounding moves single elements by up to two units, the
// norm by less than one.
double worst_element(std::span<const double> got, std::span<const double> want);
// A sum on tensor cores is cut off at 24 bits once for each 16 of its terms, always in the same direction; an element may be 20 times
// smaller than the sums that made it.
double element_limit(const Rounding& rounding);

// The nearest bf16 (ties to even), as a float. Finite values only.
float to_bf16(float value);

// Stochastic rounding of `masters` to `rounded`: every result must be one of the two bf16 neighbours (an
// exact master: itself), and the mean signed error, which is zero in expectation, is given in its standard
// deviations. Elements whose result is no neighbour are in neither sum.
struct StochasticJudgement {
  int64_t not_a_neighbour = 0;
  double bias_sigmas = 0;  // NaN when nothing could be rounded
  RoundedTogether together{};
};
StochasticJudgement judge_stochastic(std::span<const float> masters, std::span<const float> rounded);

// Which way a result leans: of its elements those that lie further from zero than their answers, less those that lie nearer, when both are
// rounded to so many significant bits, as a share of all. Where an error is less than the distance of neighbours, that share is the mean
// error as a share of this distance, so one that always has the same sign is seen far below what a norm allows: cutting off a result makes
// -0.5, cutting off probabilities on their way into a product -0.2 to -0.4. Rounding to the nearest, sums in fp32 and their functions
// err to both sides alike. What noise there is inside a result does not matter, as long as it has no side.
struct Lean {
  double share = 0;      // of the elements; NaN when a result is not finite
  double deviation = 0;  // of that share, from how much the rows differ: what one row's elements have in common is counted once
};
// A tenth of what cutting off makes. Right loops that round as the trainers do lean by less than 0.8% where there are many elements, by 1.6%
// at most (where a deviation is 0.7%), GELU's gradient that is stored in bf16 by 0.5%.
inline constexpr double kLeanGranted = 0.05;
// Six deviations, and what sums on tensor cores are cut off by: a unit of fp32 for each 16 terms, at most, relative to an element whose
// neighbours of `bits` bits are at least 2^-bits of it away.
double lean_limit(const Lean& lean, int bits, int64_t terms);
// Of fewer rows the deviation says little: none is asked. A list of one row is cut into pieces.
inline constexpr int64_t kFewestToLean = 64;
inline constexpr int kBf16Bits = 8, kTf32Bits = 11;
// The bits to which a result is stored that was rounded so: 0 where there is nothing to ask, which is so for fp32, and for what is rounded
// at random, of which the judge of weights asks more.
int bits_of(const Rounding& rounding);

inline constexpr double kFakeNoise = 0.01;  // relative, of the noisy fake

// Wrong answers that are not rejected under `limit`: "zeros", "shuffled", "1% noise". Empty is good. Tensors
// of zeros, and for the shuffle tensors of one element, cannot tell and are not asked.
std::vector<std::string> accepted_fakes(const std::vector<double>& want, int64_t rows, int64_t columns, const Tolerance& limit);

}  // namespace gate
