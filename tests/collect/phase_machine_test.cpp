#include "profiler/collect/phase_machine.h"

#include <gtest/gtest.h>

namespace profiler::collect {
namespace {

std::vector<StepOrders> all(std::vector<PhasePlan> phases) {
  PhaseMachine m(phases);
  std::vector<StepOrders> orders;
  while (const auto o = m.begin_step()) orders.push_back(*o);
  EXPECT_FALSE(m.begin_step());
  return orders;
}

TEST(PhaseMachine, WalksThePhasesInOrderAndThenLeavesStepsAlone) {
  const auto o = all({{Phase::warmup, 2}, {Phase::timed, 3}, {Phase::counters, 1}, {Phase::pass_counters, 1}, {Phase::activity, 5}});
  ASSERT_EQ(o.size(), 12u);
  for (size_t i = 0; i < o.size(); ++i) EXPECT_EQ(o[i].step, static_cast<int64_t>(i));
  EXPECT_EQ(o[1].collecting, Phase::warmup);
  EXPECT_EQ(o[2].collecting, Phase::timed);
  EXPECT_TRUE(o[2].first_of_phase);
  EXPECT_TRUE(o[4].last_of_phase);
  EXPECT_EQ(o[5].collecting, Phase::counters);
  EXPECT_EQ(o[6].collecting, Phase::pass_counters);
  EXPECT_FALSE(o[10].last_of_plan);
  EXPECT_TRUE(o[11].last_of_plan);
}

TEST(PhaseMachine, FirstTwoActivityStepsAreRecordedAsWarmup) {
  const auto o = all({{Phase::activity, 5}});
  EXPECT_EQ(o[0].collecting, Phase::activity);
  EXPECT_EQ(o[0].recorded, Phase::warmup);
  EXPECT_EQ(o[1].recorded, Phase::warmup);
  EXPECT_EQ(o[2].recorded, Phase::activity);
}

TEST(PhaseMachine, AShortActivityPhaseStillKeepsOneStep) {
  const auto one = all({{Phase::activity, 1}});
  EXPECT_EQ(one[0].recorded, Phase::activity);
  const auto two = all({{Phase::activity, 2}});
  EXPECT_EQ(two[0].recorded, Phase::warmup);
  EXPECT_EQ(two[1].recorded, Phase::activity);
}

TEST(PhaseMachine, LaunchesAreCountedInTheLastWarmupStepOnlyIfCountersFollow) {
  const auto with = all({{Phase::warmup, 3}, {Phase::timed, 2}, {Phase::counters, 1}});
  EXPECT_FALSE(with[1].count_launches);
  EXPECT_TRUE(with[2].count_launches);
  EXPECT_FALSE(with[3].count_launches);
  const auto without = all({{Phase::warmup, 3}, {Phase::timed, 2}, {Phase::activity, 1}});
  for (const auto& o : without) EXPECT_FALSE(o.count_launches);
}

TEST(PhaseMachine, EmptyPhasesDoNotExist) {
  const auto o = all({{Phase::warmup, 0}, {Phase::timed, 1}, {Phase::counters, 0}});
  ASSERT_EQ(o.size(), 1u);
  EXPECT_TRUE(o[0].last_of_plan);
  EXPECT_TRUE(all({}).empty());
}

}  // namespace
}  // namespace profiler::collect
