// A step whose loss or gradient norm lies far above those before it, and whose update a run may leave out: the rule of llm.c's outlier
// detector (llmc/outlier_detector.h), turned round so that a limit is known before the step is.
#pragma once
#include <cstddef>
#include <vector>

namespace gpt2 {

// llm.c takes the z-score of a value among the last kWindow values, itself included: (x - mean) / deviation, of the population. It grows
// with x, so z(x) > most is x > limit. With the mean and variance of the kWindow - 1 values before x and n = kWindow,
//   limit = mean + most * sqrt(variance * n / (n - 1 - most^2)).
class OutlierLimit {
 public:
  static constexpr size_t kWindow = 128;
  static constexpr float kLargest = 11;  // of `most`: no z-score is above sqrt(n - 1)
  // most: the largest z-score that is no outlier, at most kLargest; 0: there are no outliers.
  explicit OutlierLimit(double most) : most_(most) {}
  // For the next value. Infinity until kWindow values were seen.
  double limit() const;
  // Also a value that was above the limit: what stays high is no outlier for long. `x` is finite.
  void add(double x);

 private:
  double most_;
  std::vector<double> last_;  // the newest at next_ - 1
  size_t next_ = 0;
};

}  // namespace gpt2
