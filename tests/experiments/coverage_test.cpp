// What `experiment coverage` makes of its logs. That it plants and measures is seen in tests/cli.
#include "experiments/session/coverage.h"

#include <gtest/gtest.h>

#include <cmath>

namespace experiments {
namespace {

// Rounds of one process of each arm; the planted one takes so much longer.
RunLog log_of(std::initializer_list<double> percents) {
  RunLog log;
  for (const double percent : percents) {
    for (const char arm : {'A', 'B'}) {
      AloneRun r;
      r.arm = arm;
      r.pair = static_cast<int>(log.runs.size()) / 2;
      r.position = arm == 'B';
      r.steps = 100;
      r.total_ns = 1e9 * (arm == 'A' ? 1 : 1 + percent / 100);
      log.runs.push_back(r);
    }
  }
  return log;
}

RunLog decided(double low_pct, double high_pct) {
  RunLog log;
  log.decision.verdict = Verdict::slower;
  log.decision.interval = Interval{std::log1p(low_pct / 100), std::log1p(high_pct / 100)};
  return log;
}

std::vector<CoverageRow> rows(const std::vector<RunLog>& verdicts, const std::vector<RunLog>& truths) {
  return coverage_rows(std::vector<std::string>(verdicts.size(), "dram:1"), verdicts, truths);
}

TEST(Coverage, TheTruthIsTheMeanOfTheLongRounds) {
  const CoverageRow r = rows({decided(0.9, 1.1)}, {log_of({0.8, 1.2, 1.0})}).front();
  ASSERT_TRUE(r.truth);
  EXPECT_NEAR(ratio_pct(r.truth->rounds.mean), 1, 1e-3);
  EXPECT_EQ(r.truth->rounds.n, 3);
}

// Values of a plant whose rounds spread by 0.1%, two below and two above the mean.
RunLog four_rounds(double percent) { return log_of({percent - 0.0866, percent - 0.0866, percent + 0.0866, percent + 0.0866}); }

TEST(Coverage, TheTruthIsAsUncertainAsTheRoundsOfAllPlantsSay) {
  const double one = rows({decided(0, 2)}, {four_rounds(1)}).front().truth->half;
  EXPECT_NEAR(100 * one, 4.541 * 0.1 / 2, 4e-3);  // t(99%, 3) sd / sqrt(4); logarithms are 1% less
  // Four plants with 3 degrees of freedom each are worth 12 / (1 + 3/4): 6.
  const std::vector<CoverageRow> four =
      rows(std::vector(4, decided(0, 2)), {four_rounds(1), four_rounds(1), four_rounds(1), four_rounds(1)});
  EXPECT_NEAR(100 * four[2].truth->half, 3.143 * 0.1 / 2, 4e-3);
  // A plant whose own rounds agree by luck is no surer than the others.
  const std::vector<CoverageRow> two = rows(std::vector(2, decided(0, 2)), {four_rounds(1), log_of({1, 1, 1, 1})});
  EXPECT_DOUBLE_EQ(two[0].truth->half, two[1].truth->half);
}

TEST(Coverage, AnIntervalMayMissTheMeanByWhatTheTruthIsUncertain) {
  const std::vector<RunLog> truth{four_rounds(1)};                     // +- 0.227
  EXPECT_EQ(rows({decided(1.05, 1.65)}, truth).front().held(), true);  // 0.35 from the middle, sqrt(0.3^2 + 0.227^2) = 0.376 allowed
  EXPECT_EQ(rows({decided(1.10, 1.70)}, truth).front().held(), false);
  EXPECT_EQ(rows({decided(0.35, 0.95)}, truth).front().held(), true);
  EXPECT_EQ(rows({decided(0.30, 0.90)}, truth).front().held(), false);
}

TEST(Coverage, ATruthThatIsLessCertainThanTheIntervalJudgesNothing) {
  EXPECT_FALSE(rows({decided(0.79, 1.21)}, {four_rounds(1)}).front().held());
  EXPECT_FALSE(rows({decided(2.79, 3.21)}, {four_rounds(1)}).front().held());
  EXPECT_EQ(rows({decided(0.76, 1.24)}, {four_rounds(1)}).front().held(), true);
  EXPECT_EQ(coverage_exit_code(rows({decided(0.79, 1.21)}, {four_rounds(1)})), 4);
}

TEST(Coverage, AnIntervalOnEitherSideOfTheTruthMisses) {
  EXPECT_EQ(rows({decided(1.05, 1.3)}, {log_of({1, 1})}).front().held(), false);
  EXPECT_EQ(rows({decided(0.7, 0.95)}, {log_of({1, 1})}).front().held(), false);
}

TEST(Coverage, TheWitnessAtEqualClocksIsHeldAgainstTheSameTruth) {
  RunLog verdict = decided(0.9, 1.1);
  verdict.equal_clocks = EqualClocks{EqualClocksBy::turns, {{}, {std::log1p(0.015), std::log1p(0.018)}}, std::nullopt};
  const CoverageRow r = rows({verdict}, {log_of({1, 1})}).front();
  EXPECT_EQ(r.held(), true);
  EXPECT_EQ(r.held_at_equal_clocks(), false);
}

TEST(Coverage, NothingIsJudgedWithoutATruthNorAfterAnInvalidOrInterruptedRun) {
  EXPECT_FALSE(rows({decided(0.9, 1.1)}, {log_of({1})}).front().held());
  EXPECT_FALSE(rows({RunLog()}, {log_of({1, 1})}).front().held());
  RunLog invalid = decided(0.9, 1.1), interrupted = invalid;
  invalid.decision.verdict = Verdict::invalid;
  interrupted.decision.reason = reason::kInterrupted;  // its interval is of no look
  for (const RunLog& log : {invalid, interrupted}) EXPECT_FALSE(rows({log}, {log_of({1, 1})}).front().held());
}

TEST(Coverage, LongRunsThatFailedSayWhy) {
  RunLog failed = log_of({});
  failed.decision.verdict = Verdict::invalid;
  failed.decision.sentence = "invalid: another process used the device";
  const std::vector<CoverageRow> both = rows({decided(0.9, 1.1), decided(0.9, 1.1)}, {log_of({1, 1}), failed});
  EXPECT_EQ(both[0].truth_failed, "");
  EXPECT_EQ(both[1].truth_failed, failed.decision.sentence);
  EXPECT_EQ(coverage_exit_code(both), 4);
}

TEST(Coverage, OneIntervalInTwelveMayMiss) {
  const RunLog good = decided(0.9, 1.1), bad = decided(1.05, 1.1), truth = log_of({1, 1});
  std::vector<RunLog> verdicts(12, good);
  const std::vector<RunLog> truths(12, truth);
  EXPECT_EQ(coverage_exit_code(rows(verdicts, truths)), 0);
  verdicts[7] = bad;
  EXPECT_EQ(coverage_exit_code(rows(verdicts, truths)), 0);
  verdicts[2] = bad;
  EXPECT_EQ(coverage_exit_code(rows(verdicts, truths)), 1);
  EXPECT_EQ(coverage_exit_code(rows({good, bad}, {truth, truth})), 1);
}

TEST(Coverage, WhatCouldNotBeJudgedIsNoSuccess) {
  const RunLog good = decided(0.9, 1.1);
  EXPECT_EQ(coverage_exit_code(rows({good, good}, {log_of({1, 1}), log_of({1})})), 4);
  EXPECT_EQ(coverage_exit_code({}), 4);
  RunLog invalid = good;
  invalid.decision.verdict = Verdict::invalid;
  EXPECT_EQ(coverage_exit_code(rows({good, invalid}, {log_of({1, 1}), log_of({1, 1})})), 1);
}

}  // namespace
}  // namespace experiments
