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
  EXPECT_NEAR(ratio_pct(r.truth->mean), 1, 1e-3);
  EXPECT_EQ(r.truth->n, 3);
  EXPECT_EQ(r.held(), true);
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
