// Documents of random recordings against the oracle's.
#include "tests/oracle/step_oracle.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/oracle/random_run.h"

namespace {

using namespace profiler;

constexpr uint64_t kSeeds = 30;

// What a collector writes of many steps: statistics of all, and in full only the step shown, or the newest two of which one is shown.
Recording written_with_statistics(const Recording& r, bool two) {
  Recording out = r;
  std::map<std::pair<Activity, int64_t>, std::vector<double>> samples;
  int64_t newest = 0;
  for (const LaunchRecord& l : r.launches) {
    samples[{l.activity, l.index}].push_back(static_cast<double>(l.end_ns - l.start_ns));
    newest = std::max(newest, l.step);
  }
  for (const auto& [key, list] : samples)
    out.stats.push_back({key.first, key.second, static_cast<int64_t>(list.size()), *oracle::median(list), 0, 0, 0});
  std::erase_if(out.launches, [&](const LaunchRecord& l) { return l.step != newest && !(two && l.step == newest - 1); });
  return out;
}

TEST(StepOracle, EveryNumberOfARandomStepIsWhatSweepsAndPlainSumsGive) {
  int64_t of_medians = 0, of_one_step = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const oracle::Run run = oracle::random_run(seed, 1);
    const Recording& r = run.ranks[0].recording;
    const ProfileDocument d = build_profile(r, run.run, run.ceilings, run.options);
    oracle::expect_step(r, run.run, run.ceilings, d);
    oracle::expect_surroundings(r, run.run, run.options, d);
    if (seed % 4 == 0) oracle::expect_readable(d);
    ++(d.collection.time_basis == "one_traced_step" ? of_one_step : of_medians);
    if (HasFailure()) return;  // the first seed tells enough
  }
  EXPECT_GT(of_medians, 5);
  EXPECT_GT(of_one_step, 5);
}

TEST(StepOracle, StepsOfWhichOnlyStatisticsWereKeptGiveTheSameNumbers) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const oracle::Run run = oracle::random_run(seed, 1);
    const Recording r = written_with_statistics(run.ranks[0].recording, seed % 2 == 0);
    oracle::expect_step(r, run.run, run.ceilings, build_profile(r, run.run, run.ceilings, run.options));
    if (HasFailure()) return;
  }
}

}  // namespace
