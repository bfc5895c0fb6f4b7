// The arithmetic of a split master, against numbers in double: what the weight is, and that the master comes back.
#include "gpt2/ops/split_master.cuh"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace gpt2::ops {
namespace {

float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
double weight_of(const SplitMaster& s) { return static_cast<double>(as_float(static_cast<uint32_t>(s.weight) << 16)); }

// The lower bits near which a rounding turns, and at both ends.
std::vector<uint32_t> turning_lows() {
  std::vector<uint32_t> lows{0x4000, 0xc000};
  for (const uint32_t center : {0x0000u, 0x8000u, 0xffffu})
    for (int d = -3; d <= 3; ++d) {
      const int64_t low = static_cast<int64_t>(center) + d;
      if (low >= 0 && low <= 0xffff) lows.push_back(static_cast<uint32_t>(low));
    }
  return lows;
}

// Every upper half there is, finite: both signs, denormals, both sides of every power of two.
template <class Use>
void for_every_finite_high(const Use& use) {
  for (uint32_t high = 0; high <= 0xffff; ++high)
    if (is_finite(high << 16)) use(high);
}

// By distances in double, from the two bf16 numbers around the master.
void expect_nearest(uint32_t bits) {
  const SplitMaster s = split_nearest(bits);
  ASSERT_EQ(join(s), bits) << std::hex << bits;
  const uint32_t high = bits >> 16;
  if (high == 0x7f7f || high == 0xff7f) return;  // the number above is infinite
  const double x = static_cast<double>(as_float(bits)), toward_zero = static_cast<double>(as_float(high << 16)),
               away = static_cast<double>(as_float((high + 1) << 16));
  const double below = std::abs(x - toward_zero), above = std::abs(x - away);
  const bool up = above < below || (above == below && high % 2 == 1);
  ASSERT_EQ(weight_of(s), up ? away : toward_zero) << std::hex << bits;
}

TEST(SplitMaster, EveryWeightIsTheNearestAndEveryMasterComesBackNearWhereRoundingTurns) {
  const std::vector<uint32_t> lows = turning_lows();
  for_every_finite_high([&](uint32_t high) {
    for (const uint32_t low : lows) expect_nearest(high << 16 | low);
  });
}

TEST(SplitMaster, EveryLowerHalfOfSomeUpperHalves) {
  for (const uint32_t high : {0x0000u, 0x0001u, 0x007fu, 0x0080u, 0x3f80u, 0x3f81u, 0x3fffu, 0x7f7eu, 0x8000u, 0xbf80u, 0xbf7fu, 0xff7eu})
    for (uint32_t low = 0; low <= 0xffff; ++low) expect_nearest(high << 16 | low);
}

// What one bit is for: both masters half a step from an even weight have that weight and the same lower bits.
TEST(SplitMaster, TheTwoMastersHalfAStepFromAnEvenWeightAreToldApart) {
  const SplitMaster below = split_nearest(0x3f818000u), above = split_nearest(0x3f828000u);
  EXPECT_EQ(below.weight, 0x3f82);
  EXPECT_EQ(above.weight, 0x3f82);
  EXPECT_EQ(below.low, above.low);
  EXPECT_NE(below.up, above.up);
  EXPECT_EQ(join(below), 0x3f818000u);
  EXPECT_EQ(join(above), 0x3f828000u);
}

TEST(SplitMaster, AMasterThatRoundsToInfinityIsStillReadBack) {
  const SplitMaster s = split_nearest(0x7f7fffffu);
  EXPECT_EQ(s.weight, 0x7f80);
  EXPECT_EQ(join(s), 0x7f7fffffu);
  EXPECT_EQ(join(split_nearest(0xff7fffffu)), 0xff7fffffu);
  EXPECT_EQ(join(split_randomly(0x7f7fffffu, 1)), 0x7f7fffffu);
}

TEST(SplitMaster, InfinitiesAndNotANumberStayWhatTheyAre) {
  for (const uint32_t infinite : {0x7f800000u, 0xff800000u}) {
    EXPECT_EQ(join(split_nearest(infinite)), infinite);
    EXPECT_EQ(join(split_randomly(infinite, 0xffff)), infinite);
    EXPECT_TRUE(std::isinf(weight_of(split_randomly(infinite, 0xffff))));
  }
  for (const uint32_t nan : {0x7fc00000u, 0x7fffffffu, 0x7f800001u, 0xffffffffu}) {
    for (const SplitMaster& s : {split_nearest(nan), split_randomly(nan, 0xffff)}) {
      EXPECT_TRUE(std::isnan(weight_of(s))) << std::hex << nan;
      EXPECT_TRUE(std::isnan(as_float(join(s)))) << std::hex << nan;
    }
  }
}

// The weight that adding the random bits below and cutting them off gives (as adamw.cu rounds fp32 masters), whatever is drawn.
TEST(SplitMaster, ARandomWeightIsThatOfTheCarryAndTheMasterComesBack) {
  const std::vector<uint32_t> lows = turning_lows();
  for_every_finite_high([&](uint32_t high) {
    for (const uint32_t low : lows)
      for (const uint32_t random : {0u, 1u, 0x7fffu, 0x8000u, 0xfffeu, 0xffffu}) {
        const uint32_t bits = high << 16 | low;
        const SplitMaster s = split_randomly(bits, random);
        ASSERT_EQ(s.weight, static_cast<uint16_t>((bits + random) >> 16)) << std::hex << bits << " " << random;
        ASSERT_EQ(join(s), bits) << std::hex << bits << " " << random;
      }
  });
}

TEST(SplitMaster, UpAsOftenAsTheDistanceFromBelowSays) {
  for (const uint32_t low : {0u, 1u, 0x4000u, 0x8000u, 0xffffu}) {
    uint32_t ups = 0;
    for (uint32_t random = 0; random <= 0xffff; ++random) ups += split_randomly(0x3f800000u | low, random).up ? 1 : 0;
    EXPECT_EQ(ups, low);
  }
}

}  // namespace
}  // namespace gpt2::ops
