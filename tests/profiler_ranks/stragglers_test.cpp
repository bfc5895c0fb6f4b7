// Who is late at a collective, and why, by steps written down by hand.
#include "profiler/ranks/stragglers.h"

#include <gtest/gtest.h>

namespace {

using namespace profiler;

RankWork work(int64_t index, const char* op, int64_t begin_ns, int64_t end_ns) { return {{begin_ns, end_ns}, Activity::kernel, index, op}; }
CollectiveRun collective(int64_t begin_ns, int64_t end_ns) {
  CollectiveRun c;
  c.time = {begin_ns, end_ns};
  c.parts = {c.time};
  return c;
}

// Both begin the first collective at 400. Behind it each op of rank 1 takes 25 ns longer and 20 ns pass without work, so that rank 1 comes to
// the second one 70 ns late. Before the first one its qkv took 100 ns longer, and it idled for 90 ns.
std::vector<RankStep> in_step_then_late() {
  RankStep a, b;
  a.window = {0, 700};
  a.work = {work(0, "qkv", 0, 200), work(1, "fc", 200, 400), work(2, "proj", 500, 550), work(3, "residual", 550, 600)};
  a.collectives = {collective(400, 500), collective(600, 770)};
  b.window = {0, 770};
  b.work = {work(0, "qkv", 0, 300), work(1, "fc", 300, 310), work(2, "proj", 500, 575), work(3, "residual", 575, 650)};
  b.collectives = {collective(400, 500), collective(670, 770)};
  return {a, b};
}

// The clock of rank `r` shows `behind_ns` less, which its offset makes good.
void set_back(RankStep& r, int64_t behind_ns) {
  const auto shift = [&](Interval& i) {
    i.begin_ns -= behind_ns;
    i.end_ns -= behind_ns;
  };
  shift(r.window);
  for (RankWork& w : r.work) shift(w.time);
  for (CollectiveRun& c : r.collectives) {
    shift(c.time);
    for (Interval& part : c.parts) shift(part);
  }
  r.offset_ns = static_cast<double>(behind_ns);
}

TEST(Arrivals, OnlyWhatCameBehindTheLastCollectiveInStepIsTheReason) {
  for (const int64_t behind_ns : {0, 5000}) {
    std::vector<RankStep> ranks = in_step_then_late();
    set_back(ranks[1], behind_ns);
    const std::vector<Arrival> arrivals = arrivals_of(ranks, 10.0);
    ASSERT_EQ(arrivals.size(), 2u);
    EXPECT_FALSE(arrivals[0].last) << behind_ns;
    ASSERT_EQ(arrivals[1].last, 1u) << behind_ns;
    EXPECT_DOUBLE_EQ(arrivals[1].late_ns, 70);
    EXPECT_EQ(arrivals[1].because, "proj") << "of two ops that took equally much longer the first by name, and 25 ns are more than 20 idle";
  }
}

// Sums of `peer` behind a collective run longer on rank 1 and make it late. They are no op, and nobody waits for the host meanwhile.
TEST(Arrivals, ARankThatAddsUpWhatCameIsNotIdle) {
  std::vector<RankStep> ranks(2);
  for (RankStep& r : ranks) {
    const int64_t late = &r == &ranks[1] ? 60 : 0;
    r.window = {0, 900 + late};
    r.work = {work(0, "qkv", 0, 400), work(1, "proj", 600 + late, 700 + late)};
    r.collectives = {collective(400, 500), collective(700 + late, 900 + late)};
    r.other_communication = {{500, 600 + late}};
  }
  const std::vector<Arrival> arrivals = arrivals_of(ranks, 10.0);
  ASSERT_EQ(arrivals[1].last, 1u);
  EXPECT_DOUBLE_EQ(arrivals[1].late_ns, 60);
  EXPECT_EQ(arrivals[1].because, "");
  // What took longer there is then the reason, however little of it.
  ranks[1].work[1].time.begin_ns -= 5;
  EXPECT_EQ(arrivals_of(ranks, 10.0)[1].because, "proj");
}

TEST(Slowest, ARankThatBegunLateIsWaitingForItsHostUntilTheGapsOfAllSayThatItLoadsData) {
  std::vector<RankStep> ranks(2);
  ranks[0].window = {0, 1000};
  ranks[1].window = {50, 1050};
  std::vector<RankExposure> exposures(2);
  const std::vector<Arrival> arrivals = {{1, 50, "host"}};
  const auto why = [&](std::optional<double> gap_of_0, double idle_of_1) {
    exposures[1].idle_ns = idle_of_1;
    return slowest_of(ranks, exposures, arrivals, {{1500, false, gap_of_0}, {1500, false, 1e6}}).value().why;
  };
  EXPECT_EQ(why(9e5, 0), "data");
  EXPECT_EQ(why(1e6, 0), "host") << "its gaps are as long as those of the other";
  EXPECT_EQ(why(std::nullopt, 0), "host") << "nobody knows the gaps of rank 0";
  EXPECT_EQ(why(9e5, 50), "host") << "it idled within the step for as long as it began late";
}

// One step is explained once: as the row of the collective says it, not by what the rank did before and after.
TEST(Slowest, IsExplainedByTheCollectiveAtWhichItWasLatest) {
  std::vector<RankStep> ranks(2);
  ranks[0].window = ranks[1].window = {0, 1000};
  std::vector<RankExposure> exposures(2);
  exposures[1].idle_ns = 500;
  const auto why = [&](const std::vector<Arrival>& arrivals) {
    return slowest_of(ranks, exposures, arrivals, {{1500, false, {}}, {1500, false, {}}}).value().why;
  };
  EXPECT_EQ(why({{1, 20, "host"}, {1, 70, "proj"}, {1, 60, "host"}}), "op proj");
  EXPECT_EQ(why({{1, 20, "proj"}, {1, 70, "host"}}), "host");
  EXPECT_EQ(why({{1, 20, "proj"}, {1, 70, "work"}}), "work");
  EXPECT_EQ(why({{1, 20, "proj"}, {1, 70, ""}}), "");
}

}  // namespace
