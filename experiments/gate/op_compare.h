// How far a result is from its answer, and counts of elements, in the space where they lie. Gives what
// metrics.h and op_judge.h give for values on the host.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/gate/metrics.h"
#include "experiments/gate/op_judge.h"
#include "experiments/gate/op_memory.h"
#include "experiments/gate/report.h"
#include "experiments/gate/rounded_at_random.h"

namespace gate {

ErrorMetrics compare(Space space, View got, View want, int64_t rows, int64_t columns);
// As worst_element of op_judge.h.
double worst_element(Space space, View got, View want, int64_t n);
// A factor that a whole row has too much, as a share of what chance allows: the largest over rows of
//   |sum of (got - want) want| / (RowScale::shared * sum of want^2 + RowScale::deviations * sum_in_quadrature of deviation * want^2),
// where the last sum is not less than RowScale::least * deviation * sum of want^2.
// Roundings of single elements average out in it, a wrong statistic or factor of the row does not, so it sees what is smaller than one
// rounding. NaN when anything is not finite.
struct RowScale {
  double deviation = 0;  // of an element's rounding, relative to it
  double shared = 2e-4;  // that all elements of a row may be off by together: sums in fp32, approximate functions
  // As many as for chance alone would be far too many: where a row is one bf16 number times a row of such numbers, its roundings follow from
  // 128 mantissas only, and average out no further. A head played in double needed 7 of them in 600 rows; half a rounding on a row took 36.
  static constexpr double deviations = 14;
  // Of a row's sum of squares what roundings average out to at best: as over 768 elements (sqrt(3 / 768)), where the number above was found. With
  // 255 times a power of two as the one number 2,560 elements were off by 1.1 times what 14 deviations of their own allow (a head played in
  // double, 1,300 rows), and by 0.6 times this.
  static constexpr double least = 1.0 / 16;
};
double worst_row_scale(Space space, View got, View want, int64_t rows, int64_t columns, const RowScale& limit);
// Elements that are nearly zero beside the root mean square of `want` are not asked: what is left of a sum that cancels has its sign from
// roundings of terms. Nothing where there are fewer than kFewestToLean rows.
std::optional<Lean> lean_of(Space space, View got, View want, int64_t rows, int64_t columns, int bits);
// The same of elements that are functions of one number each, `along`, which lies anywhere among the numbers: apart for each eighth from -4
// to 4, and for what lies below and above. A wrong constant leans one way for some numbers and the other way for others. For results that are
// rounded once, after a function in fp32: what is rounded before it lies on few numbers, of which each has its own error.
struct WorstLean {
  double of_limit = 0;  // the share of an eighth, as a part of kLeanGranted and six deviations of so many elements
  int64_t eighth = -1;
};
WorstLean worst_lean_along(Space space, View got, View want, View along, int64_t n, int bits);
// As accepted_fakes of op_judge.h.
std::vector<std::string> accepted_fakes(Space space, View want, int64_t rows, int64_t columns, const Tolerance& limit);

// Elements of `width` bytes whose bits differ.
int64_t count_different(Space space, const void* a, const void* b, int64_t bytes, int64_t width);
// The same question about many pairs of buffers, of which nearly all are equal: the device is asked for one answer about all.
class AnyDifferent {
 public:
  explicit AnyDifferent(Space space);
  void look(const void* a, const void* b, int64_t bytes);
  // Whether any pair since the last answer may differ: true may be wrong, false is not.
  bool found();

 private:
  Memory found_;
};
// Elements of which every bit is set: the NaN poison, which no arithmetic produces on these devices.
int64_t count_all_ones(Space space, const void* data, int64_t bytes, int64_t width);

// Whether bf16 `weights` are the fp32 `masters` rounded to the nearest: how many are not.
int64_t count_not_rounded(const Memory& masters, const Memory& weights);
// The sums of rounded_at_random.h over the elements whose `want` is at least so many times its root mean square.
RoundedAtRandom rounded_at_random(Space space, View got, View want, int64_t n, int bits, double least);
// As judge_stochastic of op_judge.h.
StochasticJudgement judge_stochastic(const Memory& masters, const Memory& weights);

}  // namespace gate
