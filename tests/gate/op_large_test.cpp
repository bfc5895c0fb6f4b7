// Whether the judge still fails where tensors are large: errors planted in answers of the sizes that train,
// each as small as a bug in a capped loop leaves it. Everything runs on the host, with the limits of the
// cases.
#include <gtest/gtest.h>

#include <cmath>

#include "experiments/gate/op_answers.h"
#include "experiments/gate/op_compare.h"
#include "experiments/gate/op_inputs.h"

namespace gate {
namespace {

constexpr int64_t kRows = 16384 + 37, kColumns = 768;

Memory drawn(int64_t n, Element element, uint64_t seed) {
  Memory m(Space::host, n * bytes_of_element(element));
  fill(m, element, Values{.seed = seed});
  return m;
}

class Planted : public ::testing::TestWithParam<Element> {
 protected:
  Element element() const { return GetParam(); }
  Rounding rounding() const { return element() == Element::bf16 ? Rounding{.count = 1} : Rounding{}; }
  Tolerance limit() const { return rounding() ? rounding_limit(rounding()) : op_limit(op_floor("fp32", false), nullptr); }
  bool passes(const Memory& got, const Memory& want, int64_t rows, int64_t columns) const {
    const bool elements =
        !rounding() || worst_element(Space::host, view(got, element()), view(want), rows * columns) <= element_limit(rounding());
    return elements && from_metrics("", "", compare(Space::host, view(got, element()), view(want), rows, columns), limit()).passed;
  }
  // An answer, and a result that is right.
  void draw(int64_t rows, int64_t columns) {
    want_ = answer::stored(Space::host, view(drawn(rows * columns, Element::f32, 3), Element::f32), Element::f32, rows * columns);
    got_ = Memory(Space::host, rows * columns * bytes_of_element(element()));
    convert(got_, element(), view(want_), rows * columns);
    ASSERT_TRUE(passes(got_, want_, rows, columns));
  }
  void set(int64_t i, double value) { store_value(got_.data(), element(), i, value); }
  double got(int64_t i) const { return view(got_, element())[i]; }
  Memory want_, got_;
};

TEST_P(Planted, ALastRowThatIsTheOneBeforeIsFound) {
  draw(kRows, kColumns);
  for (int64_t c = 0; c < kColumns; ++c) set((kRows - 1) * kColumns + c, got((kRows - 2) * kColumns + c));
  EXPECT_FALSE(passes(got_, want_, kRows, kColumns));
}
TEST_P(Planted, AColumnThatIsSkippedInTheSecondTurnIsFound) {
  draw(kRows, kColumns);
  for (int64_t r = 2112; r < kRows; ++r) set(r * kColumns + 517, 0);
  EXPECT_FALSE(passes(got_, want_, kRows, kColumns));
}
TEST_P(Planted, ARowOfSixteenThousandThatIsTwoPercentOffIsFound) {
  draw(kRows, kColumns);
  for (int64_t c = 0; c < kColumns; ++c) set(9000 * kColumns + c, got(9000 * kColumns + c) * (element() == Element::bf16 ? 1.04 : 1.0001));
  EXPECT_FALSE(passes(got_, want_, kRows, kColumns));
}
TEST_P(Planted, ATailOfAFlatTensorThatIsLeftOutIsFound) {
  constexpr int64_t n = kRows * 4 * kColumns / 4 + 1;
  draw(1, n);
  set(n - 1, 0);
  EXPECT_FALSE(passes(got_, want_, 1, n));
}
INSTANTIATE_TEST_SUITE_P(Stored, Planted, ::testing::Values(Element::f32, Element::bf16),
                         [](const auto& of) { return of.param == Element::f32 ? "fp32" : "bf16"; });

// Sums over rows: what a loop that misses some rows gives.
bool sum_passes(int64_t rows_summed, Tolerance limit) {
  const Memory values = drawn(kRows * kColumns, Element::f32, 5);
  const Memory want = answer::column_sums(Space::host, view(values, Element::f32), kRows, kColumns);
  const Memory sums = answer::column_sums(Space::host, view(values, Element::f32), rows_summed, kColumns);
  Memory got(Space::host, kColumns * 4);
  convert(got, Element::f32, view(sums), kColumns);
  return from_metrics("", "", compare(Space::host, view(got, Element::f32), view(want), 1, kColumns), limit).passed;
}
TEST(PlantedSums, RowsOfTheTailThatAreNotAddedAreFound) {
  for (const Tolerance& limit : {op_limit(op_floor("fp32", true, kRows), nullptr), op_limit(op_floor("tf32", true, kRows), nullptr),
                                 rounding_limit({.inside = 1e-6 + 0x1p-24 * kRows / 16}), rounding_limit({.inside = kBf16Unit})}) {
    EXPECT_TRUE(sum_passes(kRows, limit));
    EXPECT_FALSE(sum_passes(kRows - 1, limit)) << limit.norm;
    EXPECT_FALSE(sum_passes(16384, limit)) << limit.norm;
  }
}

TEST(PlantedSums, AMillionthOfTheGradientsMissingFromTheNormIsFound) {
  constexpr int64_t n = 4'000'001;
  Memory g(Space::host, n * 4);
  const double matters = 0.05 * std::sqrt(static_cast<double>(n));
  fill(g, Element::f32, Values{.seed = 8, .deviation = 0.1, .spikes = {Values::Spike{0, matters}, {n - 1, matters}}});
  const double norm = answer::norm(Space::host, view(g, Element::f32), n);
  EXPECT_LE(std::abs(norm - norm * (1 + 1e-9)) / norm, op_floor("fp32", false));
  EXPECT_GT(std::abs(answer::norm(Space::host, view(g, Element::f32), n - 1) - norm) / norm, op_floor("fp32", false)) << "the last element";
  Memory without = copy_of(g);
  for (int64_t i = 2'000'000; i < 2'000'000 + 64; ++i) without.as<float>()[i] = 0;
  EXPECT_GT(std::abs(answer::norm(Space::host, view(without, Element::f32), n) - norm) / norm, op_floor("fp32", false))
      << "64 in the middle";
}

// What a limit of one and a half units on every row cannot see: a row whose factor was rounded, and the rounding not taken back.
TEST(RowScale, ThatIsOneRoundingOffIsFoundBeneathTheRoundingsOfItsElements) {
  constexpr int64_t rows = 500, columns = 768;
  const Memory drawn_values = drawn(rows * columns, Element::f32, 9);
  const Memory want = answer::stored(Space::host, view(drawn_values, Element::f32), Element::f32, rows * columns);
  const RowScale limit{.deviation = std::sqrt(2.0) * kBf16Deviation};
  const Rounding rounding{.count = 1, .inside = kBf16Unit / 2};  // as lm_head's dx
  const auto as_bf16 = [](double x) { return static_cast<double>(to_bf16(static_cast<float>(x))); };
  for (const double factor : {1.0, 1.0039, 0.9961}) {
    Memory got(Space::host, rows * columns * 2);
    for (int64_t i = 0; i < rows * columns; ++i) {
      const double product = as_bf16(as_bf16(view(want)[i] / 0.37) * 0.37);  // rounded twice
      store_value(got.data(), Element::bf16, i, i / columns == 77 ? product * factor : product);
    }
    const View result = view(got, Element::bf16);
    EXPECT_TRUE(from_metrics("", "", compare(Space::host, result, view(want), rows, columns), rounding_limit(rounding)).passed) << factor;
    EXPECT_EQ(worst_row_scale(Space::host, result, view(want), rows, columns, limit) <= 1, factor == 1) << factor;
  }
  EXPECT_FALSE(worst_row_scale(Space::host, view(want), View{}, 0, 0, limit) > 0) << "nothing is nothing off";
  Memory broken = copy_of(want);
  broken.as<double>()[5] = NAN;
  EXPECT_FALSE(worst_row_scale(Space::host, view(broken), view(want), rows, columns, limit) <= 1);
}

// Fakes are refused under every limit that a product of this size has.
TEST(LimitsOfLongSums, RefuseEveryFake) {
  const Memory want = answer::stored(Space::host, view(drawn(512 * 256, Element::f32, 6), Element::f32), Element::f32, 512 * 256);
  for (const int64_t terms : {768, 4096, 16421, 50304})
    for (const char* rate : {"fp32", "tf32"})
      EXPECT_TRUE(accepted_fakes(Space::host, view(want), 512, 256, op_limit(op_floor(rate, true, terms), nullptr)).empty()) << terms;
  EXPECT_LT(op_floor("fp32", true, 50304), 2e-5);
  EXPECT_EQ(op_floor("fp32", true, 768), 2e-6);
}

}  // namespace
}  // namespace gate
