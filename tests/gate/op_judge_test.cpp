#include "experiments/gate/op_judge.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

#include "experiments/gate/op_memory.h"
#include "experiments/gate/random.h"
#include "gpt2/ops/split_value.cuh"

namespace gate {
namespace {

std::vector<double> random_values(int64_t n) {
  Random random(4);
  std::vector<double> out(static_cast<size_t>(n));
  for (double& x : out) x = static_cast<double>(random.normal());
  return out;
}

TEST(OpJudge, AVariantMayLoseTwiceWhatTheBaselineLoses) {
  ErrorMetrics baseline;
  baseline.norm = 1e-5;
  baseline.worst_row = 1e-4;
  const Tolerance limit = op_limit(2e-6, &baseline);
  EXPECT_DOUBLE_EQ(limit.norm, 2e-5);
  EXPECT_DOUBLE_EQ(limit.row, 2e-4);
  EXPECT_DOUBLE_EQ(limit.column, 1.6e-5) << "the floor where the baseline is exact";
  EXPECT_DOUBLE_EQ(op_limit(2e-6, nullptr).norm, 2e-6);
}

TEST(OpJudge, ABrokenBaselineWidensNothing) {
  ErrorMetrics baseline;
  baseline.norm = baseline.worst_row = baseline.worst_column = std::numeric_limits<double>::quiet_NaN();
  EXPECT_DOUBLE_EQ(op_limit(2e-6, &baseline).norm, 2e-6);
}

TEST(OpJudge, OnlyMatrixProductsMayBeTf32) {
  EXPECT_EQ(op_floor("fp32", true), 2e-6);
  EXPECT_EQ(op_floor("tf32", false), 2e-6);
  EXPECT_EQ(op_floor("tf32", true), 1e-3);
}

TEST(OpJudge, TheLimitsInUseRejectEveryFake) {
  const auto want = random_values(64 * 32);
  EXPECT_TRUE(accepted_fakes(want, 64, 32, tolerance(2e-6)).empty());
  EXPECT_TRUE(accepted_fakes(want, 64, 32, tolerance(1e-3)).empty());
  EXPECT_TRUE(accepted_fakes({3.5}, 1, 1, tolerance(2e-6)).empty());
}

TEST(OpJudge, AVacuousLimitIsFoundOut) {
  const auto want = random_values(64 * 32);
  const Tolerance one_percent{0.02, 1, 1}, anything{10, 10, 10};
  EXPECT_EQ(accepted_fakes(want, 64, 32, one_percent), std::vector<std::string>{"1% noise"});
  EXPECT_EQ(accepted_fakes(want, 64, 32, anything), (std::vector<std::string>{"zeros", "shuffled", "1% noise"}));
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(to_bf16(1.0f), 1.0f);
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f), 1.0f) << "a tie: 1 is even";
  EXPECT_EQ(to_bf16(1.0f + 0x1.8p-7f), 1.0f + 0x1p-6f) << "a tie: up to even";
  EXPECT_EQ(to_bf16(1.0f + 0x1.02p-8f), 1.0f + 0x1p-7f);
  EXPECT_EQ(to_bf16(-1.0f - 0x1.02p-8f), -1.0f - 0x1p-7f);
  EXPECT_EQ(to_bf16(0x1.ffp0f), 2.0f) << "the carry goes into the exponent";
  EXPECT_EQ(to_bf16(0.0f), 0.0f);
}

TEST(Bf16, ARoundingLosesNoMoreThanItsUnit) {
  double worst = 0;
  for (double x : random_values(100'000)) {
    const double value = static_cast<double>(static_cast<float>(x));
    worst = std::max(worst, std::abs(static_cast<double>(to_bf16(static_cast<float>(x))) - value) / std::abs(value));
  }
  EXPECT_LE(worst, kBf16Unit);
  EXPECT_GT(worst, 0.9 * kBf16Unit) << "half of it would be too tight a limit";
}

TEST(Bf16, WhatAnAnswerReadsIsWhatTheKernelGets) {
  uint16_t stored[3] = {};
  const double values[3] = {1.0, -2.5, 1.0 + 0x1.02p-8};
  for (int64_t i = 0; i < 3; ++i) store_value(stored, Element::bf16, i, values[i]);
  EXPECT_EQ(stored[0], 0x3f80);
  const View read{stored, Element::bf16};
  EXPECT_EQ(read[0], 1.0);
  EXPECT_EQ(read[1], -2.5);
  EXPECT_EQ(read[2], 1.0 + 0x1p-7) << "rounded before it is read, not after";
  for (double x : random_values(1000)) {
    const auto value = static_cast<float>(x);
    EXPECT_EQ(bf16_bits(value), std::bit_cast<uint32_t>(to_bf16(value)) >> 16);
  }
}

// Values from one binade to the next have the largest relative errors at its lower end. Upper halves first, lower bytes behind all of them.
// The trainer's own functions, which share no line with the gate's, make the same bytes.
TEST(SplitValues, TheUpperHalfIsTheRoundedValueAndBothAreOffByTheirUnitAtMost) {
  constexpr int64_t kCount = 100'000;
  std::vector<std::byte> stored(3 * kCount);
  std::vector<float> values;
  for (double x : random_values(kCount)) values.push_back(static_cast<float>(x));
  for (int64_t i = 0; i < kCount; ++i)
    store_value(stored.data(), Element::split, i, static_cast<double>(values[static_cast<size_t>(i)]), kCount);
  const View both{stored.data(), Element::split, kCount}, upper{stored.data(), Element::bf16, kCount};
  double worst = 0, worst_upper = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const float value = values[static_cast<size_t>(i)];
    const auto error = [value](double got) { return std::abs(got / static_cast<double>(value) - 1); };
    worst = std::max(worst, error(both[i]));
    worst_upper = std::max(worst_upper, error(upper[i]));
    const gpt2::ops::SplitValue trainers = gpt2::ops::split_value(value);
    ASSERT_EQ(upper[i], bf16_value(trainers.upper)) << value;
    ASSERT_EQ(stored[static_cast<size_t>(2 * kCount + i)], static_cast<std::byte>(trainers.lower)) << value;
  }
  EXPECT_LE(worst, kSplitUnit);
  EXPECT_GT(worst, 0.8 * kSplitUnit) << "half of it would be too tight a limit";
  EXPECT_LE(worst_upper, kBf16Unit + kSplitUnit) << "it is the value of both that is rounded";
}

// By hand: 1, the value half a step of bf16 above it, one that becomes that when it is rounded to 16 bits, and their neighbours.
TEST(SplitValues, TiesGoAwayFromZero) {
  const auto parts = [](uint32_t bits) {
    const Parts p = parts_of(std::bit_cast<float>(bits));
    return std::pair<int, int>(p.upper, p.lower);
  };
  EXPECT_EQ(parts(0x3f800000u), std::pair(0x3f80, 0));
  EXPECT_EQ(parts(0x3f808000u), std::pair(0x3f81, -128));
  EXPECT_EQ(parts(0xbf808000u), std::pair(0xbf81, -128));
  EXPECT_EQ(parts(0x3f807f80u), std::pair(0x3f81, -128));
  EXPECT_EQ(parts(0x3f807f7fu), std::pair(0x3f80, 127));
  EXPECT_EQ(parts(0x3f80ff80u), std::pair(0x3f81, 0)) << "the carry goes into the upper half";
  EXPECT_EQ(value_of(parts_of(std::bit_cast<float>(0x3f807f7fu))), static_cast<double>(std::bit_cast<float>(0x3f807f00u)));
}

class OneRounding : public ::testing::Test {
 protected:
  // `want` stored as `store` says, judged as a result that is rounded once.
  bool passes(const std::function<float(float)>& store) const {
    const auto want = random_values(64 * 32);
    std::vector<double> got(want.size());
    for (size_t i = 0; i < want.size(); ++i) got[i] = static_cast<double>(store(static_cast<float>(want[i])));
    const Rounding once{.count = 1};
    return from_metrics("", "", compare<double, double>(got, want, 64, 32), rounding_limit(once)).passed &&
           worst_element(got, want) <= element_limit(once);
  }
};
TEST_F(OneRounding, ToTheNearestPasses) { EXPECT_TRUE(passes(to_bf16)); }
TEST_F(OneRounding, CuttingOffIsFound) {
  EXPECT_FALSE(passes([](float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u); }));
}
TEST_F(OneRounding, ToAShorterFormatIsFound) {
  EXPECT_FALSE(passes([](float x) { return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x10000u) & 0xfffe0000u); }));
}

TEST(OpJudge, WhatIsRoundedIsAskedWhetherItLeans) {
  EXPECT_EQ(bits_of({}), 0);
  EXPECT_EQ(bits_of({.inside = 1e-5}), 0) << "fp32";
  EXPECT_EQ(bits_of({.count = 1}), kBf16Bits);
  EXPECT_EQ(bits_of({.count = 1, .inside = 1e-3}), kBf16Bits);
  EXPECT_EQ(bits_of({.inside = kBf16Unit}), kBf16Bits) << "rounded on the way";
  EXPECT_EQ(bits_of({.inside = kSplitUnit}), kSplitBits);
  EXPECT_EQ(bits_of({.inside = 2 * kSplitUnit}), 0) << "at random, to either neighbour";
  EXPECT_EQ(bits_of({.count = 1, .stochastic = true}), 0);
  EXPECT_DOUBLE_EQ(lean_limit({.share = 0.5, .deviation = 0.01}, kBf16Bits, 1 << 14), kLeanGranted + 0.06 + 0x1p-6);
}

TEST(OpJudge, Bf16LimitsRejectEveryFake) {
  const auto want = random_values(64 * 32);
  for (const Rounding& r : {Rounding{.count = 1}, {.count = 2}, {.count = 1, .inside = kBf16Unit / 2}, {.count = 1, .stochastic = true}})
    EXPECT_TRUE(accepted_fakes(want, 64, 32, rounding_limit(r)).empty()) << r.count << " " << r.inside;
}

class Stochastic : public ::testing::Test {
 protected:
  StochasticJudgement judge(const std::function<float(float, double)>& round) {
    Random random(8);
    std::vector<float> masters, rounded;
    for (int i = 0; i < 20'000; ++i) {
      masters.push_back(random.normal());
      rounded.push_back(round(masters.back(), random.uniform()));
    }
    return judge_stochastic(masters, rounded);
  }
  static float cut(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u); }
  static float away(float x) { return std::bit_cast<float>((std::bit_cast<uint32_t>(x) & 0xffff0000u) + 0x10000u); }
  static double part(float x) { return static_cast<double>(std::bit_cast<uint32_t>(x) & 0xffffu) / 65536; }
};
TEST_F(Stochastic, ByDistancePasses) {
  const auto j = judge([](float x, double u) { return u < part(x) ? away(x) : cut(x); });
  EXPECT_EQ(j.not_a_neighbour, 0);
  EXPECT_LE(j.bias_sigmas, 6);
  EXPECT_LE(j.together.excess(), j.together.limit(kWeightsTogether));
}
// Each is rounded without bias, and so is their sum.
TEST_F(Stochastic, TwoByOneDrawGoTogether) {
  int64_t drawn = 0;
  double draw = 0;
  const auto j = judge([&](float x, double u) {
    if (drawn++ % 2 == 0) draw = u;
    return draw < part(x) ? away(x) : cut(x);
  });
  EXPECT_EQ(j.not_a_neighbour, 0);
  EXPECT_LE(j.bias_sigmas, 6);
  EXPECT_NEAR(j.together.excess(), 0.5, 0.2);
  EXPECT_GT(j.together.excess(), j.together.limit(kWeightsTogether));
}
// Of a million elements the limit is nearly what is granted.
TEST(RoundedTogetherOfMany, IsGrantedThreePercent) {
  Random random(9);
  RoundedTogether apart, pairs;
  double draw = 0;
  for (int64_t i = 0; i < 1'000'000; ++i) {
    const double p = random.uniform(), q = p * (1 - p), own = random.uniform();
    if (i % 2 == 0) draw = own;
    apart.look((own < p ? 1.0 : 0.0) - p, q, i);
    pairs.look((draw < p ? 1.0 : 0.0) - p, q, i);
  }
  apart.finish();
  pairs.finish();
  EXPECT_LT(apart.limit(kWeightsTogether), 0.06);
  EXPECT_LE(apart.excess(), apart.limit(kWeightsTogether));
  EXPECT_NEAR(pairs.excess(), 0.5, 0.05);
}
TEST_F(Stochastic, CuttingOffIsBiased) {
  EXPECT_GT(judge([](float x, double) { return cut(x); }).bias_sigmas, 6);
}
TEST_F(Stochastic, UpTooSeldomIsBiased) {
  EXPECT_GT(judge([](float x, double u) { return u < part(x) / 2 ? away(x) : cut(x); }).bias_sigmas, 6);
}
TEST_F(Stochastic, AnythingElseIsNoNeighbour) {
  EXPECT_EQ(judge([](float x, double) { return away(away(x)); }).not_a_neighbour, 20'000);
}

// A hundred weights halfway between neighbours, all rounded up: half a distance each against a deviation of half a distance.
TEST_F(Stochastic, ABiasIsCountedInDeviationsOfWhatRoundingMayDo) {
  const std::vector<float> masters(100, std::bit_cast<float>(0x3f808000u)), up(100, std::bit_cast<float>(0x3f810000u));
  EXPECT_NEAR(judge_stochastic(masters, up).bias_sigmas, 10, 1e-9);
}

}  // namespace
}  // namespace gate
