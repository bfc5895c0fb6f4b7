// The rule by which a product gets its algorithm, on made times and joules, and on those that were measured on an H200.
#include "mixed/product_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <vector>

namespace mixed {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Micros = std::vector<double>;
using Joules = std::vector<std::vector<double>>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

size_t chosen(const Micros& times, const Joules& joules) { return choose_algorithm(times, joules).value().algorithm; }
bool by_joules(const Micros& times, const Joules& joules) { return choose_algorithm(times, joules).value().by_joules; }

// Weight and input gradient of lm_head at B=64 (docs/study/products-by-joules.md): the second of each takes fewer joules by 4%.
TEST(ProductChoice, TheProductsOfTheHeadGetTheAlgorithmsWithFewerJoules) {
  const Micros weight{6845, 6889, 6931}, input{7106, 7193, 7257};
  EXPECT_THAT(algorithms_to_weigh(MatmulAlgorithm::search, weight), ElementsAre(0, 1, 2));
  EXPECT_THAT(algorithms_to_weigh(MatmulAlgorithm::search, input), ElementsAre(0, 1));
  EXPECT_EQ(chosen(weight, {{4.915, 4.941}, {4.713}, {4.951}}), 1u);
  EXPECT_EQ(chosen(input, {{4.982, 4.969}, {4.782}, {}}), 1u);
  EXPECT_TRUE(by_joules(weight, {{4.915, 4.941}, {4.713}, {4.951}}));
}

// A notice names it where time decided because joules could not be counted.
TEST(ProductChoice, ARuleSaysFromWhichTimeOnItWeighs) {
  EXPECT_EQ(weighs_from(MatmulAlgorithm::fitting_tiles), "2 ms");
  EXPECT_EQ(weighs_from(MatmulAlgorithm::search), "2 ms");
  EXPECT_EQ(weighs_from(MatmulAlgorithm::fewest_joules), "20 us");
  EXPECT_EQ(weighs_from(MatmulAlgorithm::fastest), "");
}

TEST(ProductChoice, SearchWeighsTiesOfLongProductsTheFastestFirst) {
  const auto order = [](const Micros& times) { return algorithms_to_weigh(MatmulAlgorithm::search, times); };
  EXPECT_THAT(order({2029.9, 2100, 2000, 2031}), ElementsAre(2, 0));
  EXPECT_THAT(order({1999, 2000}), IsEmpty()) << "short enough to end before the limit is felt";
  EXPECT_THAT(order({2000, 2031}), IsEmpty()) << "no other is as fast";
  EXPECT_THAT(order({3008, 3007, 3006, 3005, 3004, 3003, 3002, 3001, 3000}), ElementsAre(8, 7, 6, 5, 4, 3)) << "six at most";
  EXPECT_THAT(order(Micros(32, 2000)), ElementsAre(0, 1, 2, 3, 4, 5)) << "the library's order where times are equal";
}

TEST(ProductChoice, FewestJoulesWeighsEveryProductThatIsMoreThanItsLaunch) {
  const auto order = [](const Micros& times) { return algorithms_to_weigh(MatmulAlgorithm::fewest_joules, times); };
  EXPECT_THAT(order({21.5, 20, 21.7}), ElementsAre(1, 0));
  EXPECT_THAT(order({20, 21.6}), ElementsAre(0, 1));
  EXPECT_THAT(order({20, 21.7}), IsEmpty());
  EXPECT_THAT(order({19.9, 20}), IsEmpty());
  EXPECT_THAT(order({32, 31.2, 31, 30, 30.5}), ElementsAre(3, 4, 2, 1)) << "four at most";
}

TEST(ProductChoice, TimeAloneWeighsNothing) {
  for (const MatmulAlgorithm rule : {MatmulAlgorithm::fastest, MatmulAlgorithm::heuristic})
    EXPECT_THAT(algorithms_to_weigh(rule, Micros{7000, 7000}), IsEmpty());
  EXPECT_EQ(chosen({7001, 7000}, {}), 1u);
  EXPECT_FALSE(by_joules({7001, 7000}, {}));
}

// 1% is what windows of one algorithm differ by when nothing is wrong.
TEST(ProductChoice, FewerJoulesWithinTheErrorOfTheCounterAreNoReason) {
  const Micros times{3000, 3010, 3020};
  EXPECT_EQ(chosen(times, {{2.021}, {2.0}, {2.01}}), 1u) << "1.05% more than the fewest are more";
  EXPECT_EQ(chosen(times, {{2.019}, {2.0}, {2.01}}), 0u) << "0.95% are not";
  EXPECT_EQ(chosen(times, {{2.021}, {2.019}, {2.0}}), 1u) << "the fastest of those that take no more than the fewest";
  EXPECT_TRUE(by_joules(times, {{2.009}, {2.0}, {2.0}})) << "joules left the fastest its place";
}

// The first and the last window are of the fastest: a GPU that warmed, or another process, shows in their difference.
TEST(ProductChoice, WindowsThatDisagreeLeaveTheFastestItsPlace) {
  const Micros times{3000, 3010};
  EXPECT_EQ(chosen(times, {{2.0, 2.01}, {1.95}}), 1u);
  EXPECT_EQ(chosen(times, {{2.0, 2.1}, {1.96}}), 0u) << "off by 5%, and 4.6% fewer are no fewer";
  EXPECT_EQ(chosen(times, {{2.1, 2.0}, {1.96}}), 0u) << "in either order";
  EXPECT_EQ(chosen(times, {{2.0, 2.1}, {1.80}}), 1u) << "12% fewer are";
}

TEST(ProductChoice, WhatWasNotWeighedIsNotChosenByJoules) {
  const Micros times{3000, 3010, 3020};
  EXPECT_EQ(chosen(times, {{2.0}, {}, {1.8}}), 2u);
  EXPECT_EQ(chosen(times, {{}, {1.9}, {1.8}}), 0u) << "nothing to compare with the fastest's";
  EXPECT_EQ(chosen(times, {{2.0}, {}, {}}), 0u);
  for (const Joules& none : {Joules{}, Joules{{}, {}, {}}, Joules{{2.0}, {}, {}}, Joules{{}, {1.9}, {1.8}}})
    EXPECT_FALSE(by_joules(times, none));
}

TEST(ProductChoice, ValuesThatAreNoMeasurementsTakeTheirAlgorithmOut) {
  for (const double wrong : {kNan, kInf, -kInf, 0.0, -1.0}) {
    EXPECT_EQ(chosen({wrong, 3010, 3000}, {}), 2u) << wrong;
    EXPECT_THAT(algorithms_to_weigh(MatmulAlgorithm::search, Micros{wrong, 3010, 3000}), ElementsAre(2, 1)) << wrong;
    EXPECT_EQ(chosen({3000, 3010, 3020}, {{2.0}, {wrong}, {1.8}}), 2u) << wrong;
    EXPECT_EQ(chosen({3000, 3010, 3020}, {{2.0, wrong}, {1.7}, {1.8}}), 0u) << wrong;
    EXPECT_FALSE(by_joules({3000, 3010, 3020}, {{2.0, wrong}, {1.7}, {1.8}})) << wrong;
    EXPECT_FALSE(choose_algorithm(Micros{wrong, wrong}, Joules{}).has_value()) << wrong;
    EXPECT_THAT(algorithms_to_weigh(MatmulAlgorithm::search, Micros{wrong, wrong}), IsEmpty()) << wrong;
  }
  EXPECT_FALSE(choose_algorithm(Micros{}, Joules{}).has_value());
}

TEST(ProductChoice, OneAlgorithmIsTheChoice) {
  EXPECT_THAT(algorithms_to_weigh(MatmulAlgorithm::search, Micros{7000}), IsEmpty());
  EXPECT_THAT(algorithms_to_weigh(MatmulAlgorithm::fewest_joules, Micros{7000}), IsEmpty());
  EXPECT_EQ(chosen({7000}, {}), 0u);
  EXPECT_EQ(chosen({7000}, {{5.0}}), 0u);
}

TEST(ProductChoice, JoulesOfOtherAlgorithmsAreAnError) {
  EXPECT_THROW((void)choose_algorithm(Micros{3000, 3010}, Joules{{2.0}}), std::invalid_argument);
}

}  // namespace
}  // namespace mixed
