// A value in an upper half and a lower byte, against its definition in 64 bits: which numbers both are, and what they are together.
#include "gpt2/ops/split_value.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace gpt2::ops {
namespace {

constexpr uint32_t kInfinity = 0x7f800000u;

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
float upper_of(const SplitValue& v) { return float_of(static_cast<uint32_t>(v.upper) << 16); }
bool is_nan(uint32_t bits) { return (bits & 0x7fffffffu) > kInfinity; }
// What no arithmetic makes; see split_bits.
bool is_odd_nan(uint32_t bits) { return is_nan(bits) && ((bits & 0x7fffffu) < 0x8000u || bits > 0xffff7f7fu); }

// The multiple of `step` nearest to `bits`, the larger one of two: farther from zero, because a float's bits count its magnitude.
int64_t nearest(int64_t bits, int64_t step) { return (bits + step / 2) / step * step; }

void expect_split(uint32_t bits) {
  if (is_odd_nan(bits)) return;
  const SplitValue v = split_value(float_of(bits));
  const float joined = join_value(v);
  if (is_nan(bits)) {
    ASSERT_TRUE(std::isnan(upper_of(v))) << std::hex << bits;
    ASSERT_TRUE(std::isnan(joined)) << std::hex << bits;
    return;
  }
  const int64_t value = nearest(bits, 0x100), upper = nearest(value, 0x10000);
  ASSERT_EQ(int64_t{v.upper} << 16, upper) << std::hex << bits;
  ASSERT_EQ(int64_t{bits_of(joined)}, value) << std::hex << bits;
  // Of a kernel that has them in registers.
  ASSERT_EQ(bits_of(value_of_split(split_bits(float_of(bits)))), bits_of(joined)) << std::hex << bits;
  ASSERT_EQ(bits_of(upper_of_split(split_bits(float_of(bits)))), bits_of(upper_of(v))) << std::hex << bits;
}

// Near the turning points of both roundings, and one number between any two of them.
std::vector<uint32_t> lows_near_turns() {
  std::vector<uint32_t> lows{0x1234, 0x4000, 0xa5a5, 0xc000};
  for (const int center : {0x0000, 0x0080, 0x0100, 0x7f00, 0x7f80, 0x8000, 0x8080, 0x8100, 0xff00, 0xff80, 0xffff})
    for (int low = center - 2; low <= center + 2; ++low)
      if (low >= 0 && low <= 0xffff) lows.push_back(static_cast<uint32_t>(low));
  return lows;
}

// Every upper half there is: both signs, denormals, infinities, and every NaN that arithmetic makes.
TEST(SplitValue, BothPartsAreWhatTheyAreDefinedToBeNearWhereRoundingTurns) {
  const std::vector<uint32_t> lows = lows_near_turns();
  for (uint32_t high = 0; high <= 0xffff; ++high)
    for (const uint32_t low : lows) {
      expect_split(high << 16 | low);
      if (HasFatalFailure()) return;
    }
}

TEST(SplitValue, EveryLowerHalfOfSomeUpperHalves) {
  for (const uint32_t high : {0x0000u, 0x0001u, 0x007fu, 0x0080u, 0x3f80u, 0x3f81u, 0x3fffu, 0x7f7eu, 0x7f7fu, 0x7f80u, 0x7fffu, 0x8000u,
                              0xbf80u, 0xff7fu, 0xff80u, 0xffffu})
    for (uint32_t low = 0; low <= 0xffff; ++low) {
      expect_split(high << 16 | low);
      if (HasFatalFailure()) return;
    }
}

// By distances in double, not by integers: 2^-16 of the value for both parts, 2^-8 for the upper half and what the first rounding adds.
TEST(SplitValue, AreOffBySixteenAndByEightSignificantBits) {
  double worst = 0, worst_upper = 0;
  for (uint32_t bits = 0x3f800000u; bits < 0x40000000u; bits += 7) {
    for (const double x : {static_cast<double>(float_of(bits)), -static_cast<double>(float_of(bits))}) {
      const SplitValue v = split_value(static_cast<float>(x));
      worst = std::max(worst, std::abs(static_cast<double>(join_value(v)) / x - 1));
      worst_upper = std::max(worst_upper, std::abs(static_cast<double>(upper_of(v)) / x - 1));
    }
  }
  EXPECT_LE(worst, 0x1p-16);
  EXPECT_GT(worst, 0.99 * 0x1p-16);
  EXPECT_LE(worst_upper, 0x1p-8 + 0x1p-16);
  EXPECT_GT(worst_upper, 0.99 * 0x1p-8);
}

// What is between -128 and 127 has no +128: above an even upper half a tie would need it.
TEST(SplitValue, AValueHalfAStepAboveAnEvenUpperHalfIsBelowTheNext) {
  const SplitValue v = split_value(float_of(0x3f808000u));
  EXPECT_EQ(v.upper, 0x3f81);
  EXPECT_EQ(v.lower, -128);
  EXPECT_EQ(join_value(v), float_of(0x3f808000u));
  EXPECT_EQ(join_value(split_value(float_of(0x3f807f80u))), float_of(0x3f808000u)) << "the first rounding makes it that tie";
}

TEST(SplitValue, ZeroBytesAreZero) {
  EXPECT_EQ(bits_of(join_value({})), 0u);
  EXPECT_EQ(split_value(0.0f).upper, 0);
  EXPECT_EQ(split_value(0.0f).lower, 0);
  EXPECT_EQ(bits_of(join_value(split_value(-0.0f))), 0x80000000u);
}

TEST(SplitValue, InfinitiesAndNotANumberStayWhatTheyAre) {
  for (const uint32_t infinite : {kInfinity, kInfinity | 0x80000000u}) {
    EXPECT_EQ(bits_of(join_value(split_value(float_of(infinite)))), infinite);
    EXPECT_EQ(bits_of(upper_of(split_value(float_of(infinite)))), infinite);
  }
  // Of the device, of this machine, and quiet ones of others.
  for (const uint32_t nan : {0x7fffffffu, 0xffc00000u, 0x7fc00000u, 0x7fff7f7fu, 0x7fff7f80u}) {
    EXPECT_TRUE(std::isnan(join_value(split_value(float_of(nan))))) << std::hex << nan;
    EXPECT_TRUE(std::isnan(upper_of(split_value(float_of(nan))))) << std::hex << nan;
  }
}

TEST(SplitValue, NearTheLargestNumberTheUpperHalfIsInfiniteAndTheValueIsNot) {
  for (const uint32_t sign : {0u, 0x80000000u}) {
    const SplitValue near = split_value(float_of(sign | 0x7f7f9000u)), largest = split_value(float_of(sign | 0x7f7fffffu));
    EXPECT_TRUE(std::isinf(upper_of(near)));
    EXPECT_EQ(bits_of(join_value(near)), sign | 0x7f7f9000u);
    EXPECT_TRUE(std::isinf(upper_of(largest)));
    EXPECT_EQ(bits_of(join_value(largest)), sign | kInfinity) << "16 bits round it to infinity";
  }
}

// Eight values with eight different lower bytes, in every place: what one byte in the wrong place would change.
TEST(SplitValue, EightAtOnceAreTheSameAsOneByOne) {
  uint32_t bits = 1;
  for (int turn = 0; turn < 200'000; ++turn) {
    uint32_t split[8];
    SplitValue one[8];
    for (int k = 0; k < 8; ++k) {
      bits = bits * 1664525u + 1013904223u;
      const float x = float_of(bits ^ bits >> 15);
      split[k] = split_bits(x);
      one[k] = split_value(x);
    }
    const SplitPack packed = pack_split(split);
    float values[8];
    unpack_split(packed, values);
    for (int k = 0; k < 8; ++k) {
      ASSERT_EQ(packed.upper[k / 2] >> 16 * (k % 2) & 0xffffu, one[k].upper) << turn << " " << k;
      ASSERT_EQ(static_cast<int8_t>(packed.lower[k / 4] >> 8 * (k % 4) & 0xffu), one[k].lower) << turn << " " << k;
      ASSERT_EQ(bits_of(values[k]), bits_of(join_value(one[k]))) << turn << " " << k;
    }
  }
}

}  // namespace
}  // namespace gpt2::ops
