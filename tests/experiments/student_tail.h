// P(T > t) of Student's t, by the integral itself: with t = sqrt(n) tan(a) the density is cos(a)^(n - 1). It shares nothing with the library
// that the statistics use.
#pragma once
#include <cmath>
#include <numbers>

namespace experiments {

inline double student_tail(double t, int degrees) {
  // Simpson's rule. The power is even where it ends, so the ends cost no precision from 3 degrees on.
  const auto integral = [&](double from) {
    constexpr int kParts = 4000;
    const double step = (std::numbers::pi / 2 - from) / kParts;
    double sum = 0;
    for (int i = 0; i <= kParts; ++i) {
      const double value = i == kParts && degrees > 1 ? 0 : std::pow(std::cos(from + i * step), degrees - 1);
      sum += value * (i == 0 || i == kParts ? 1 : i % 2 ? 4 : 2);
    }
    return sum * step / 3;
  };
  return integral(std::atan(t / std::sqrt(degrees))) / integral(-std::numbers::pi / 2);
}

}  // namespace experiments
