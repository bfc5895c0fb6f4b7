#include "profiler/collect/energy_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace {

using profiler::EnergySample;
using profiler::collect::EnergyWatch;

constexpr int64_t kMs = 1'000'000;

// A counter of 700 W that jumps every `period_ms`, read when the watch asks for it.
struct Watched {
  std::vector<EnergySample> jumps;
  int reads = 0;
  explicit Watched(int64_t period_ms, int64_t for_ms) {
    EnergyWatch watch;
    for (int64_t now = 7 * kMs; now < for_ms * kMs; now = std::max(now + 1, watch.next_ns())) {
      const auto periods = static_cast<uint64_t>(now / (period_ms * kMs));
      ++reads;
      if (const auto jump = watch.read(now, periods * static_cast<uint64_t>(period_ms) * 700)) jumps.push_back(*jump);
    }
  }
};

TEST(EnergyWatch, SeesEveryJumpWithinHalfAPoll) {
  for (const int64_t period_ms : {20, 100}) {
    const Watched w(period_ms, 5000);
    EXPECT_EQ(w.jumps.size(), static_cast<size_t>(5000 / period_ms) - 1) << period_ms;
    for (const EnergySample& s : w.jumps) {
      const double off = std::remainder(static_cast<double>(s.time_ns), static_cast<double>(period_ms * kMs));
      EXPECT_LE(std::fabs(off), EnergyWatch::kPoll_ns / 2.0 + 1) << period_ms;
    }
  }
}

TEST(EnergyWatch, ReadsSeldomWhereNoJumpIsDue) {
  EXPECT_LT(Watched(100, 5000).reads, 50 * 9) << "about 50 jumps, a few reads around each";
  EXPECT_LT(Watched(1'000'000, 5000).reads, 125 + 95) << "a counter that stands still";
}

// The steps that tracing discards are recorded as warm-up. Read in them, the counter had the joules of four seconds of counted kernels in one
// jump, of which the last timed steps got a share.
TEST(EnergyWatch, EndsWithTheTimedStepsThoughWarmUpComesAgain) {
  using profiler::Phase;
  EnergyWatch watch;
  std::vector<bool> watched;
  for (const Phase phase :
       {Phase::warmup, Phase::timed, Phase::timed, Phase::counters, Phase::pass_counters, Phase::warmup, Phase::activity})
    watched.push_back(watch.watches(phase));
  EXPECT_EQ(watched, (std::vector<bool>{true, true, true, false, false, false, false}));
  // Without counters nothing lies between the timed steps and these.
  EnergyWatch without_counters;
  for (const Phase phase : {Phase::timed, Phase::warmup}) EXPECT_TRUE(without_counters.watches(phase));
}

}  // namespace
