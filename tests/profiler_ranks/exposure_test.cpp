// Properties of the cut into work, exposed, hidden and idle time, over steps made at random.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "profiler/ranks/clocks.h"
#include "profiler/ranks/exposure.h"

namespace {

using namespace profiler;

int64_t length_of_union(std::vector<Interval> list, Interval window) {
  int64_t length = 0;
  for (int64_t t = window.begin_ns; t < window.end_ns; ++t)
    for (const Interval& i : list)
      if (i.begin_ns <= t && t < i.end_ns) {
        ++length;
        break;
      }
  return length;
}

RankStep random_step(std::mt19937& random, Interval window, size_t collectives, double offset_ns) {
  const auto interval = [&] {
    std::uniform_int_distribution<int64_t> at(window.begin_ns, window.end_ns);
    const int64_t a = at(random), b = at(random);
    return Interval{std::min(a, b), std::max(a, b)};
  };
  RankStep step;
  step.window = window;
  step.offset_ns = offset_ns;
  const size_t works = random() % 6, others = random() % 2;
  for (size_t i = 0; i < works; ++i) step.work.push_back({interval(), Activity::kernel, static_cast<int64_t>(i), ""});
  for (size_t i = 0; i < others; ++i) step.other_communication.push_back(interval());
  for (size_t j = 0; j < collectives; ++j) {
    CollectiveRun c;
    c.time = interval();
    c.parts = {c.time};
    step.collectives.push_back(c);
  }
  return step;
}

TEST(Exposure, EveryNanosecondOfAStepIsWorkExposedOrIdleWhateverOverlaps) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const size_t collectives = random() % 4;
    std::vector<RankStep> ranks;
    for (int r = 0; r < 3; ++r) ranks.push_back(random_step(random, {100, 400}, collectives, static_cast<double>(random() % 7)));
    const auto all = exposure_of(ranks);
    for (size_t r = 0; r < ranks.size(); ++r) {
      const RankExposure& e = all[r];
      std::vector<Interval> work, communication = ranks[r].other_communication, both;
      for (const RankWork& w : ranks[r].work) work.push_back(w.time);
      for (const CollectiveRun& c : ranks[r].collectives) communication.push_back(c.time);
      both = work;
      both.insert(both.end(), communication.begin(), communication.end());
      const Interval window = ranks[r].window;
      const auto k = static_cast<double>(length_of_union(work, window)), c = static_cast<double>(length_of_union(communication, window)),
                 u = static_cast<double>(length_of_union(both, window));
      EXPECT_NEAR(e.work_ns, k, 1e-9);
      EXPECT_NEAR(e.exposed_ns, u - k, 1e-9);
      EXPECT_NEAR(e.hidden_ns, c - (u - k), 1e-9);
      EXPECT_NEAR(e.work_ns + e.exposed_ns + e.idle_ns, e.window_ns, 1e-9);
      if (!ranks[r].other_communication.empty()) continue;
      // The collectives' own times sum to the rank's.
      double exposed = 0, hidden = 0;
      for (const CollectiveShare& s : e.collectives) {
        exposed += s.exposed_ns;
        hidden += s.hidden_ns;
        EXPECT_NEAR(s.wait.exposed_ns + s.transfer.exposed_ns + s.drain.exposed_ns, s.exposed_ns, 1e-9);
        EXPECT_NEAR(s.wait.time_ns + s.transfer.time_ns + s.drain.time_ns, s.end_ns - s.begin_ns, 1e-9);
      }
      EXPECT_NEAR(exposed, e.exposed_ns, 1e-9);
      EXPECT_NEAR(hidden, e.hidden_ns, 1e-9);
    }
  }
}

TEST(Timeline, CommunicationBesideWorkCostsNothingAndSharesStillSumToTheWindow) {
  // Work 0..100 and 50..150 overlap; communication 80..200: hidden to 150, exposed to 200.
  const Timeline t = make_timeline({{0, 100}, {50, 150}, {80, 200, true}}, {0, 220});
  EXPECT_DOUBLE_EQ(t.share_ns[0], 75);
  EXPECT_DOUBLE_EQ(t.share_ns[1], 75);
  EXPECT_DOUBLE_EQ(t.share_ns[2], 50);
  EXPECT_DOUBLE_EQ(t.hidden_ns[2], 70);
  EXPECT_DOUBLE_EQ(t.hidden_ns[0], 0);
  EXPECT_DOUBLE_EQ(t.exposed_all_ns, 50);
  EXPECT_DOUBLE_EQ(t.hidden_all_ns, 70);
  EXPECT_DOUBLE_EQ(t.overlap_ns, 100) << "50 to 150: whatever runs beside whatever";
  EXPECT_DOUBLE_EQ(std::accumulate(t.share_ns.begin(), t.share_ns.end(), 0.0) + t.idle_ns, t.window_ns);
}

// Rank r's clock is off by theta_r; every collective ends after all have begun. The offsets found lie within what is said of them.
TEST(Clocks, OffsetsAreRecoveredWithinTheBoundThatIsPrinted) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const size_t n = 2 + random() % 4;
    std::vector<int64_t> theta;
    std::vector<std::vector<Interval>> times(n);
    for (size_t r = 0; r < n; ++r) theta.push_back(static_cast<int64_t>(random() % 2'000'000) - 1'000'000);
    int64_t now = 0;
    for (int j = 0; j < 5; ++j) {
      std::vector<int64_t> begin;
      for (size_t r = 0; r < n; ++r) begin.push_back(now + static_cast<int64_t>(random() % 1000));
      const int64_t arrive = *std::max_element(begin.begin(), begin.end());
      for (size_t r = 0; r < n; ++r) {
        const int64_t end = arrive + 1 + static_cast<int64_t>(random() % 500);
        times[r].push_back({begin[r] - theta[r], end - theta[r]});
        now = std::max(now, end);
      }
    }
    std::vector<std::string> clocks;
    for (size_t r = 0; r < n; ++r) clocks.push_back("clock " + std::to_string(r));
    const ClockAlignment a = align_clocks(times, clocks);
    ASSERT_FALSE(a.contradictory);
    ASSERT_TRUE(a.uncertainty_ns);
    for (size_t r = 0; r < n; ++r) {
      const double truth = static_cast<double>(theta[r] - theta[0]);
      EXPECT_LE(std::abs(a.ranks[r].offset_ns - truth), a.ranks[r].uncertainty_ns.value() + 1e-9);
      for (size_t s = 0; s < n; ++s)
        EXPECT_LE(std::abs((a.ranks[r].offset_ns - a.ranks[s].offset_ns) - static_cast<double>(theta[r] - theta[s])),
                  *a.uncertainty_ns + 1e-9);
    }
  }
}

TEST(Clocks, BoundsThatNoOffsetFulfilsAreSeen) {
  // Rank 1 ends the first one long before rank 0 begins it, and begins the second one long after rank 0 has ended it.
  const ClockAlignment a = align_clocks({{{1000, 1100}, {2000, 2100}}, {{0, 100}, {3000, 3100}}}, {"a", "b"});
  EXPECT_TRUE(a.contradictory);
  EXPECT_FALSE(a.uncertainty_ns);
}

// One clock for both, by name; the collective of 0 to 30 ns here and 0 to 10 ns there would allow 30 ns one way and 10 ns the other.
TEST(Clocks, TheUncertaintyOfASharedClockIsTheLargerOfItsSides) {
  const ClockAlignment a = align_clocks({{{0, 30}}, {{0, 10}}}, {"c", "c"});
  EXPECT_TRUE(a.shared);
  EXPECT_DOUBLE_EQ(a.ranks[1].offset_ns, 0);
  EXPECT_DOUBLE_EQ(a.ranks[1].uncertainty_ns.value(), 30);
}

// Ranks 0 and 1 name one clock, rank 2 another.
TEST(Clocks, ANamedClockIsSharedOnlyWhereTheCollectivesAllowIt) {
  const auto of_rank_1 = [](Interval here, Interval there) { return align_clocks({{here}, {there}, {here}}, {"c", "c", "d"}).ranks[1]; };
  // Rank 1 ended as rank 0 began: 0 to 140 ns are possible, and 0 is one of them.
  EXPECT_DOUBLE_EQ(of_rank_1({0, 100}, {-40, 0}).offset_ns, 0);
  EXPECT_DOUBLE_EQ(of_rank_1({0, 100}, {-40, 0}).uncertainty_ns.value(), 140);
  // Rank 1 began 100 ns after rank 0 had ended: its clock is 100 to 300 ns ahead, whatever its name.
  EXPECT_DOUBLE_EQ(of_rank_1({1000, 1100}, {1200, 1300}).offset_ns, -200);
  EXPECT_DOUBLE_EQ(of_rank_1({1000, 1100}, {1200, 1300}).uncertainty_ns.value(), 100);
}

TEST(Clocks, WithoutACollectiveNothingIsKnown) {
  const ClockAlignment a = align_clocks({{}, {}}, {"a", "b"});
  EXPECT_FALSE(a.uncertainty_ns);
}

}  // namespace
