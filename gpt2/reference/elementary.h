// exp for float that the compiler can vectorize, and the sigmoid form of GELU. In double the C library's exp
// is used: there the reference is the oracle, and its error must be nobody's question.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace gpt2::reference {

inline double exponential(double x) { return std::exp(x); }

// e^x to 1.2e-7 relative on [-87.3, 88.3]; arguments outside are moved to that range (so e^-200 gives 1e-38,
// never 0), NaN stays. Cody & Waite reduction x = n ln 2 + r, |r| <= ln(2)/2, then Taylor's series to r^7
// (remainder 5e-9).
inline float exponential(float x) {
  x = x < -87.3f ? -87.3f : x;
  x = x > 88.3f ? 88.3f : x;
  constexpr float kRound = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits of the sum
  const float shifted = x * 0x1.715476p0f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;  // ln 2 in two parts: the first times n is exact
  float series = 1.0f / 5040.0f;
  series = series * r + 1.0f / 720.0f;
  series = series * r + 1.0f / 120.0f;
  series = series * r + 1.0f / 24.0f;
  series = series * r + 1.0f / 6.0f;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u);
  return series * power;
}

// GELU in its tanh form, 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks & Gimpel
// 2016), written as x sigmoid(2u): the same function, without the cancellation of 1 + tanh(u) for negative u.
inline constexpr double kTwoRootTwoOverPi = 1.5957691216057307117597842397375;
template <typename Real>
inline Real exp_of_minus_2u(Real x) {
  return exponential(-static_cast<Real>(kTwoRootTwoOverPi) * (x + Real(0.044715) * x * x * x));
}
template <typename Real>
inline Real gelu(Real x) {
  return x / (Real(1) + exp_of_minus_2u(x));
}
template <typename Real>
inline Real gelu_derivative(Real x) {
  const Real e = exp_of_minus_2u(x);
  const Real gate = Real(1) / (Real(1) + e);
  const Real rest = e < Real(1) ? e * gate : Real(1) - gate;  // 1 - gate: without cancellation, and without inf * 0
  return gate + x * gate * rest * static_cast<Real>(kTwoRootTwoOverPi) * (Real(1) + Real(3 * 0.044715) * x * x);
}

}  // namespace gpt2::reference
