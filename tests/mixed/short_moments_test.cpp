// Moments in two bytes: what rounding at random may give, that a saved moment comes back, which random bits there are, and what rounding does to
// an average over many steps. The arithmetic is the kernels' own, on the host.
#include "gpt2/ops/short_moment.cuh"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gpt2/ops/random_bits.cuh"

namespace gpt2::ops::short_moments {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000u;

float number_of(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bits_in(float x) { return std::bit_cast<uint32_t>(x); }

float m_drawn(float x, uint32_t random) { return value_of_short_m(short_m_bits(x, random)); }
float v_drawn(float x, uint32_t random) { return value_of_short_v(short_v_bits(x, random)); }

// A checkpoint gives a run its moments back, and a step that draws anew and moves nothing leaves them.
TEST(ShortMoments, EveryValueSurvivesTheWayThroughFp32) {
  int64_t wrong = 0, numbers = 0;
  for (uint32_t stored = 0; stored <= 0xffff; ++stored) {
    const float m = value_of_short_m(stored << 16), v = value_of_short_v(stored << 16);
    for (const uint32_t random : {0u, kShortToNearest, 0xffffu}) {
      if (!std::isnan(m)) wrong += short_m_bits(m, random) >> 16 != stored;
      if (!std::isnan(v)) wrong += short_v_bits(v, random) >> 16 != stored;
    }
    numbers += (std::isnan(m) ? 0 : 1) + (std::isnan(v) ? 0 : 1);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(numbers, 2 * 0x10000 - 2 * 127 - 255) << "all but NaN: 7 bits of fraction and a sign, 8 bits without";
}

// Of 65,536 draws so many round away from zero as the part that is cut off has such parts.
TEST(ShortMoments, RoundingAtRandomGoesToEitherNeighbourWithItsProbability) {
  for (const uint32_t kept : {0x0000u, 0x0001u, 0x3f80u, 0x3fffu, 0x7f7fu, 0xbf80u, 0xff7fu})
    for (const uint32_t rest : {0u, 1u, 0x7fffu, 0x8000u, 0xfffeu}) {
      const bool has_v = kept < 0x8000;
      const float m = number_of(kept << 16 | rest), v = number_of((kept << 16 | rest) & 0x7fffffffu);
      const uint32_t rest_of_v = rest % 0x8000 * 2, kept_of_v = bits_in(v) >> 15;
      int64_t m_away = 0, v_away = 0;
      for (uint32_t random = 0; random <= 0xffff; ++random) {
        const uint32_t m_got = bits_in(m_drawn(m, random)), v_got = bits_in(v_drawn(v, random));
        ASSERT_TRUE(m_got == kept << 16 || m_got == (kept + 1) << 16) << std::hex << bits_in(m) << " " << random;
        ASSERT_TRUE(v_got == kept_of_v << 15 || v_got == (kept_of_v + 1) << 15) << std::hex << bits_in(v) << " " << random;
        m_away += m_got != kept << 16;
        v_away += v_got != kept_of_v << 15;
      }
      ASSERT_EQ(m_away, rest) << std::hex << kept;
      if (has_v) {
        ASSERT_EQ(v_away, rest_of_v) << std::hex << kept;
      }
    }
}

TEST(ShortMoments, InfinitiesStayAndNaNStaysOne) {
  for (uint32_t random = 0; random <= 0xffff; ++random) {
    for (const uint32_t infinite : {kInfinityBits, kInfinityBits | 0x80000000u})
      ASSERT_EQ(bits_in(m_drawn(number_of(infinite), random)), infinite);
    ASSERT_EQ(bits_in(v_drawn(number_of(kInfinityBits), random)), kInfinityBits);
    for (const uint32_t nan : {0x7fffffffu, 0x7fc00000u, 0xffc00000u}) {  // the device's, and the host's of either sign
      ASSERT_TRUE(std::isnan(m_drawn(number_of(nan), random))) << std::hex << nan;
      ASSERT_TRUE(std::isnan(v_drawn(number_of(nan), random))) << std::hex << nan;
    }
  }
}

// ---- random bits ------------------------------------------------------------------------------------------------------------

// Of 16 bits that are evenly spread.
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kMean = 32767.5, kVariance = (65536.0 * 65536.0 - 1) / 12;
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - kMean) * (b[i] - kMean);
  return sum / static_cast<double>(a.size()) / kVariance;
}

TEST(MomentHalfWords, AreEvenAndBelongToNoNeighbourAndNoOtherStep) {
  constexpr int64_t kEights = 1 << 15;
  const auto draws = [](uint32_t seed, int64_t first) {
    std::array<std::vector<double>, 16> of_place;  // m of element k of the eight, then v
    for (int64_t i = first; i < first + kEights; ++i) {
      const MomentHalfWords random(seed, i);
      for (int k = 0; k < 8; ++k) {
        of_place[static_cast<size_t>(k)].push_back(random.of_m(k));
        of_place[static_cast<size_t>(8 + k)].push_back(random.of_v(k));
      }
    }
    return of_place;
  };
  const auto now = draws(1000, 0), next = draws(1001, 0), far = draws(1000 + 4096, 0), later = draws(1000, int64_t{1} << 33);
  // 32,768 draws: a mean has a deviation of 105, a correlation one of 0.0055.
  for (size_t a = 0; a < 16; ++a) {
    double mean = 0;
    for (const double x : now[a]) mean += x / static_cast<double>(kEights);
    EXPECT_NEAR(mean, 32767.5, 6 * 105) << a;
    for (size_t b = 0; b < a; ++b) EXPECT_LT(std::abs(correlation(now[a], now[b])), 0.06) << a << " and " << b;
    EXPECT_LT(std::abs(correlation(now[a], next[a])), 0.03) << a;
    EXPECT_LT(std::abs(correlation(now[a], far[a])), 0.03) << a;
    EXPECT_LT(std::abs(correlation(now[a], later[a])), 0.03) << a << ": indices beyond 32 bits";
  }
}

// ---- averages over many steps -----------------------------------------------------------------------------------------------

struct Off {
  double mean = 0, deviation = 0;
};
// v as the kernel makes it, relative to that in double, after so many steps with the gradients g(step, element).
template <class Gradient>
Off second_moments(float beta2, float start, int steps, const Gradient& g, size_t elements) {
  const auto rest = static_cast<float>(1.0 - static_cast<double>(beta2));
  std::vector<float> v(elements, v_drawn(start, kShortToNearest));
  std::vector<double> exact(v.begin(), v.end());
  for (int t = 1; t <= steps; ++t)
    for (size_t i = 0; i < v.size(); ++i) {
      const float x = g(t, i);
      const MomentHalfWords random(static_cast<uint32_t>(t), static_cast<int64_t>(i / 8));
      v[i] = v_drawn(std::fmaf(beta2, v[i], rest * x * x), random.of_v(static_cast<int>(i % 8)));
      exact[i] = static_cast<double>(beta2) * exact[i] + (1 - static_cast<double>(beta2)) * static_cast<double>(x) * static_cast<double>(x);
    }
  Off off;
  const auto relative = [&](size_t i) { return static_cast<double>(v[i]) / exact[i] - 1; };
  for (size_t i = 0; i < v.size(); ++i) off.mean += relative(i) / static_cast<double>(elements);
  for (size_t i = 0; i < v.size(); ++i) off.deviation += std::pow(relative(i) - off.mean, 2) / static_cast<double>(elements);
  off.deviation = std::sqrt(off.deviation);
  return off;
}

// Right in the mean for every beta2, also where a step moves v by a thousandth of the distance of neighbours.
TEST(ShortMoments, AtRandomDecayAsTheyShould) {
  for (const float beta2 : {0.99f, 0.999f, 0.9999f, 0.999999f})
    EXPECT_NEAR(second_moments(
                    beta2, 1e-4f, 2000, [](int, size_t) { return 0.0f; }, 4096)
                    .mean,
                0, 6 * 0.03 / 64)
        << beta2;
}

// The draws of the last 500 steps leave 2 to 3% of v.
TEST(ShortMoments, AtRandomAreOffByTheRootOfTheStepsTheyRemember) {
  const auto noise = [](int t, size_t i) {
    double sum = 0;  // about normal: of 12 even numbers
    for (int k = 0; k < 12; ++k) sum += random_word(static_cast<uint32_t>(t * 16 + k), static_cast<int64_t>(i)) * 0x1p-32;
    return static_cast<float>(0.01 * (sum - 6));
  };
  const Off off = second_moments(0.999f, 0, 4000, noise, 512);
  EXPECT_NEAR(off.mean, 0, 5e-3);
  EXPECT_GT(off.deviation, 0.018);
  EXPECT_LT(off.deviation, 0.033);
}

}  // namespace
}  // namespace gpt2::ops::short_moments
