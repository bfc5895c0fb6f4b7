// Moments in three bytes: what rounding at random may give, that a saved moment comes back, which random bytes there are, and what rounding
// does to an average over many steps. The arithmetic is the kernels' own, on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gpt2/ops/random_bits.cuh"
#include "gpt2/ops/split_value.cuh"

namespace gpt2::ops {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000u;

float number_of(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bits_in(float x) { return std::bit_cast<uint32_t>(x); }
bool is_nan_of(uint32_t bits) { return (bits & 0x7fffffffu) > kInfinityBits; }

// Every number that three bytes hold, read as fp32 and written again: a checkpoint gives a run its moments back, bit for bit.
TEST(Moments, EverySplitValueSurvivesTheWayThroughFp32) {
  int64_t wrong = 0, numbers = 0;
  for (uint32_t kept = 0; kept < uint32_t{1} << 24; ++kept) {
    const uint32_t bits = kept << 8;
    if (is_nan_of(bits)) continue;
    ++numbers;
    const SplitValue stored = split_value(number_of(bits));
    const float read = join_value(stored);
    const SplitValue again = split_value(read);
    wrong += bits_in(read) != bits || again.upper != stored.upper || again.lower != stored.lower;
    // A step that is left out, or that draws anew, changes nothing either.
    for (const uint32_t random : {0u, 0x80u, 0xffu}) {
      const SplitValue drawn = parts_of_split(split_bits_randomly(read, random));
      wrong += drawn.upper != stored.upper || drawn.lower != stored.lower;
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(numbers, (1 << 24) - 2 * ((1 << 15) - 1)) << "all but NaN: 15 bits of fraction, not all zero, of either sign";
}

// And every pair of parts that the kernels can leave is one of those: nothing else is ever read.
TEST(Moments, WhatIsWrittenFromFp32IsTheNearest) {
  for (uint32_t bits = 0x3f800000u; bits < 0x3f800000u + 0x30000u; ++bits) {
    const float read = join_value(split_value(number_of(bits)));
    ASSERT_EQ(bits_in(read), (bits + 0x80u) & ~0xffu) << std::hex << bits;
  }
}

// Of 256 bytes so many round away from zero as the part that is cut off has 256ths; the value in registers is what memory will hold.
TEST(Moments, RoundingAtRandomGoesToEitherNeighbourWithItsProbability) {
  for (const uint32_t high : {0x000000u, 0x000001u, 0x007fffu, 0x008000u, 0x3f8000u, 0x3f807fu, 0x3f8080u, 0x3fffffu, 0x7f7fffu, 0x800000u,
                              0x800001u, 0xbf8000u, 0xbfff7fu, 0xff7fffu})
    for (uint32_t low = 0; low <= 0xff; ++low) {
      const uint32_t bits = high << 8 | low;
      int64_t away = 0;
      for (uint32_t random = 0; random <= 0xff; ++random) {
        const uint32_t split = split_bits_randomly(number_of(bits), random);
        const uint32_t value = bits_in(value_of_split(split));
        ASSERT_TRUE(value == high << 8 || value == (high + 1) << 8) << std::hex << bits << " " << random;
        ASSERT_EQ(bits_in(join_value(parts_of_split(split))), value) << std::hex << bits << " " << random;
        away += value != high << 8;
      }
      ASSERT_EQ(away, low) << std::hex << bits;
    }
}

TEST(Moments, InfinitiesStayAndNaNStaysOne) {
  for (uint32_t random = 0; random <= 0xff; ++random) {
    for (const uint32_t infinite : {0x7f800000u, 0xff800000u}) {
      EXPECT_EQ(bits_in(value_of_split(split_bits_randomly(number_of(infinite), random))), infinite);
      EXPECT_EQ(bits_in(join_value(parts_of_split(split_bits_randomly(number_of(infinite), random)))), infinite);
    }
    // The device's, the host's of either sign, and what the first becomes in memory.
    for (const uint32_t nan : {0x7fffffffu, 0x7fc00000u, 0xffc00000u, 0x7fff7f00u}) {
      EXPECT_TRUE(std::isnan(value_of_split(split_bits_randomly(number_of(nan), random)))) << std::hex << nan;
      EXPECT_TRUE(std::isnan(upper_of_split(split_bits_randomly(number_of(nan), random)))) << std::hex << nan;
      EXPECT_TRUE(std::isnan(join_value(parts_of_split(split_bits_randomly(number_of(nan), random))))) << std::hex << nan;
    }
  }
}

TEST(Moments, EightValuesPackAsOneByOne) {
  uint32_t split[8];
  for (uint32_t k = 0; k < 8; ++k) split[k] = split_bits_randomly((k % 2 == 0 ? 1.0f : -1.0f) / static_cast<float>(3 + k), 31 * k);
  const SplitPack packed = pack_split(split);
  float values[8];
  unpack_split(packed, values);
  for (size_t k = 0; k < 8; ++k) {
    const SplitValue one = parts_of_split(split[k]);
    EXPECT_EQ(static_cast<uint16_t>(packed.upper[k / 2] >> (k % 2 * 16)), one.upper) << k;
    EXPECT_EQ(static_cast<int8_t>(packed.lower[k / 4] >> (k % 4 * 8)), one.lower) << k;
    EXPECT_EQ(bits_in(values[k]), bits_in(value_of_split(split[k]))) << k;
  }
}

// ---- random bytes -----------------------------------------------------------------------------------------------------------

// [element][moment] of a step.
std::vector<std::array<double, 2>> draws(uint32_t seed, int64_t eights, int64_t first = 0) {
  std::vector<std::array<double, 2>> out;
  for (int64_t i = first; i < first + eights; ++i) {
    const MomentBytes random(seed, i);
    for (int k = 0; k < 8; ++k) out.push_back({static_cast<double>(random.of_m(k)), static_cast<double>(random.of_v(k))});
  }
  return out;
}

// Of bytes that are evenly spread: deviation 73.9.
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - 127.5) * (b[i] - 127.5);
  return sum / static_cast<double>(a.size()) / (65535.0 / 12);
}

TEST(MomentBytes, AreEvenAndBelongToNoNeighbourAndNoOtherStep) {
  constexpr int64_t kEights = 1 << 15;
  const auto now = draws(1000, kEights), next = draws(1001, kEights), far = draws(1000 + 4096, kEights),
             later = draws(1000, kEights, int64_t{1} << 33);
  std::array<std::vector<double>, 16> of_place;  // m of element k of the eight, then v
  std::array<std::vector<double>, 16> of_next, of_far, of_later;
  for (size_t i = 0; i < now.size(); ++i)
    for (size_t moment = 0; moment < 2; ++moment) {
      const size_t place = i % 8 + 8 * moment;
      of_place[place].push_back(now[i][moment]);
      of_next[place].push_back(next[i][moment]);
      of_far[place].push_back(far[i][moment]);
      of_later[place].push_back(later[i][moment]);
    }
  // 32,768 draws: a mean has a deviation of 0.41, a correlation one of 0.0055.
  for (size_t a = 0; a < 16; ++a) {
    double mean = 0;
    for (const double x : of_place[a]) mean += x / static_cast<double>(kEights);
    EXPECT_NEAR(mean, 127.5, 2.5) << a;
    std::array<int, 256> count{};
    for (const double x : of_place[a]) ++count[static_cast<size_t>(x)];
    EXPECT_GT(*std::min_element(count.begin(), count.end()), 128 - 68) << a;  // of 128, whose deviation is 11.3
    EXPECT_LT(*std::max_element(count.begin(), count.end()), 128 + 68) << a;
    for (size_t b = 0; b < a; ++b) EXPECT_LT(std::abs(correlation(of_place[a], of_place[b])), 0.06) << a << " and " << b;
    EXPECT_LT(std::abs(correlation(of_place[a], of_next[a])), 0.03) << a;
    EXPECT_LT(std::abs(correlation(of_place[a], of_far[a])), 0.03) << a;
    EXPECT_LT(std::abs(correlation(of_place[a], of_later[a])), 0.03) << a << ": indices beyond 32 bits";
  }
}

// ---- averages over many steps -----------------------------------------------------------------------------------------------

enum class Stored { nearest, at_random };

float stored_moment(Stored stored, float next, int t, size_t element) {
  if (stored == Stored::nearest) return value_of_split(split_bits(next));
  const MomentBytes random(static_cast<uint32_t>(t), static_cast<int64_t>(element / 8));
  return value_of_split(split_bits_randomly(next, random.of_v(static_cast<int>(element % 8))));
}

struct Off {
  double mean = 0, deviation = 0;
};
// Of the values, relative to what each should be.
Off off_from(const std::vector<float>& values, const std::vector<double>& want) {
  Off off;
  const auto n = static_cast<double>(values.size());
  const auto relative = [&](size_t i) { return static_cast<double>(values[i]) / want[i] - 1; };
  for (size_t i = 0; i < values.size(); ++i) off.mean += relative(i) / n;
  for (size_t i = 0; i < values.size(); ++i) off.deviation += std::pow(relative(i) - off.mean, 2) / n;
  off.deviation = std::sqrt(off.deviation);
  return off;
}

// Second moments as the kernel makes them, and in double, after so many steps with the gradients g(step, element).
template <class Gradient>
Off second_moments(Stored stored, float beta2, float start, int steps, const Gradient& g, size_t elements = 64) {
  const auto rest = static_cast<float>(1.0 - static_cast<double>(beta2));
  std::vector<float> v(elements, value_of_split(split_bits(start)));
  std::vector<double> exact(v.begin(), v.end());
  for (int t = 1; t <= steps; ++t)
    for (size_t i = 0; i < v.size(); ++i) {
      const float x = g(t, i);
      v[i] = stored_moment(stored, std::fmaf(beta2, v[i], rest * x * x), t, i);
      exact[i] = static_cast<double>(beta2) * exact[i] + (1 - static_cast<double>(beta2)) * static_cast<double>(x) * static_cast<double>(x);
    }
  return off_from(v, exact);
}

// Why moments are not rounded to nearest: v stops where 0.001 (g^2 - v) is less than half of the distance to the next number, 0.8 to 1.5% of
// it away; with 0.9999 ten times as far. From 0.99999 on a step moves v by about half a distance: it stands, or goes a whole one.
TEST(SecondMoments, RoundedToNearestStopShortOfASquareThatStays) {
  const auto off = [](float beta2, float g, float start, int steps) {
    return second_moments(
               Stored::nearest, beta2, start, steps, [g](int, size_t) { return g; }, 1)
        .mean;
  };
  for (const float g : {0.01f, 0.0137f, 0.0081f}) {
    const double below = off(0.999f, g, 0, 20000), above = off(0.999f, g, 4 * g * g, 20000);
    EXPECT_LT(below, -0.007) << g;
    EXPECT_GT(below, -0.016) << g;
    EXPECT_GT(above, 0.007) << g;
    EXPECT_LT(above, 0.016) << g;
  }
  EXPECT_LT(off(0.9999f, 0.01f, 0, 100000), -0.07);
  EXPECT_NEAR(off(0.99999f, 0, 1.25f, 10000), std::exp(0.1) - 1, 1e-3) << "it stood; 0.905 of it should be left";
  EXPECT_LT(off(0.99999f, 0, 1.99f, 10000), -0.03) << "it fell too fast";
}

// No further off than fp32 is, which stops where 0.001 (g^2 - v) is less than 2^-25 to 2^-24 of v: 3e-5 to 6e-5 of it away.
TEST(SecondMoments, RoundedAtRandomComeToASquareThatStays) {
  for (const float g : {0.01f, 0.0137f, 0.0081f})
    for (const float start : {0.0f, 4.0f}) {
      const Off off = second_moments(Stored::at_random, 0.999f, start * g * g, 20000, [g](int, size_t) { return g; });
      EXPECT_NEAR(off.mean, 0, 6e-5) << g << " from " << start;
      EXPECT_LT(off.deviation, 3e-5) << g;
    }
}

// Of gradients that change: the draws of the last 500 steps leave 0.41 of a distance times the root of 500, 1.4e-4 to 2.8e-4 of v. Rounding to
// nearest leaves less here, because the gradients themselves shake v off its places.
TEST(SecondMoments, RoundedAtRandomAreOffByTheRootOfTheStepsTheyRemember) {
  const auto noise = [](int t, size_t i) {
    double sum = 0;  // about normal: of 12 even numbers
    for (int k = 0; k < 12; ++k) sum += random_word(static_cast<uint32_t>(t * 16 + k), static_cast<int64_t>(i)) * 0x1p-32;
    return static_cast<float>(0.01 * (sum - 6));
  };
  const Off random = second_moments(Stored::at_random, 0.999f, 0, 4000, noise, 512),
            nearest = second_moments(Stored::nearest, 0.999f, 0, 4000, noise, 512);
  EXPECT_NEAR(random.mean, 0, 4e-5);
  EXPECT_GT(random.deviation, 1.4e-4);
  EXPECT_LT(random.deviation, 2.8e-4);
  EXPECT_NEAR(nearest.mean, 0, 4e-5);
  EXPECT_LT(nearest.deviation, random.deviation);
}

// Whatever beta2 is, also where a step moves v by less than a tenth of the distance of neighbours.
TEST(SecondMoments, RoundedAtRandomDecayAsTheyShould) {
  for (const float beta2 : {0.99f, 0.999f, 0.9999f, 0.999999f})
    EXPECT_NEAR(second_moments(Stored::at_random, beta2, 1e-4f, 2000, [](int, size_t) { return 0.0f; }).mean, 0, 2e-4) << beta2;
}

// A first moment remembers ten steps: the draws of those are all that is in it.
TEST(FirstMoments, RoundedAtRandomAreOffByAboutTheDistanceOfNeighbours) {
  std::vector<float> m_seen;
  std::vector<double> want;
  float m = 0;
  double exact = 0;
  for (int t = 1; t <= 4000; ++t) {
    const float g = 0.01f * std::sin(0.37f * static_cast<float>(t)) + 0.02f;
    const float next = std::fmaf(0.9f, m, static_cast<float>(1.0 - static_cast<double>(0.9f)) * g);
    m = value_of_split(split_bits_randomly(next, MomentBytes(static_cast<uint32_t>(t), 5).of_m(t % 8)));
    exact = static_cast<double>(0.9f) * exact + (1 - static_cast<double>(0.9f)) * static_cast<double>(g);
    if (t <= 200) continue;
    m_seen.push_back(m);
    want.push_back(exact);
  }
  const Off off = off_from(m_seen, want);
  EXPECT_NEAR(off.mean, 0, 5e-6);
  EXPECT_LT(off.deviation, 4e-5);
}

}  // namespace
}  // namespace gpt2::ops
