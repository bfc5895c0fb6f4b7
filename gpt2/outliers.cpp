#include "gpt2/outliers.h"

#include <cmath>
#include <limits>

namespace gpt2 {

void OutlierLimit::add(double x) {
  if (last_.size() < kWindow) {
    last_.push_back(x);
    return;
  }
  last_[next_] = x;
  next_ = (next_ + 1) % kWindow;
}

double OutlierLimit::limit() const {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const double n = kWindow;
  if (most_ <= 0 || last_.size() < kWindow) return kNone;
  // The next value takes the place of the oldest, which stands at next_.
  double mean = 0, variance = 0;
  for (size_t i = 0; i < kWindow; ++i)
    if (i != next_) mean += last_[i];
  mean /= n - 1;
  for (size_t i = 0; i < kWindow; ++i)
    if (i != next_) variance += (last_[i] - mean) * (last_[i] - mean) / (n - 1);
  return mean + most_ * std::sqrt(variance * n / (n - 1 - most_ * most_));
}

}  // namespace gpt2
