// What a person and a script see of several ranks: tables, trace, CSV, page, diff.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "profiler/diff/diff.h"
#include "profiler/document/build_profile.h"
#include "profiler/report/csv.h"
#include "profiler/report/html.h"
#include "profiler/report/markdown.h"
#include "profiler/report/page.h"
#include "profiler/report/table.h"
#include "profiler/report/trace.h"
#include "tests/golden.h"
#include "tests/profiler_ranks/ranks_fixture.h"

namespace {

using namespace profiler;
using testing::HasSubstr;

// Rank 1 computes 60 us longer before the second reduction; a short collective at the head bounds the clocks to 20 us.
ProfileDocument two_ranks() {
  ranks::RankShape a, b;
  b.rank = 1;
  a.ops = b.ops = ranks::two_bucket_step();
  b.ops[3].end_ns += 60'000;
  b.ops[4].begin_ns += 60'000;
  for (ranks::RankShape* s : {&a, &b}) s->ops.insert(s->ops.begin(), ranks::all_reduce(-30'000, -10'000, 1, 9));
  return ranks::join({a, b});
}

TEST(RankReport, TheTablesSayWhatIsExposedWhoIsLateAndWhoseNumbersTheyAre) {
  const ProfileDocument d = two_ranks();
  for (const std::string& text : {table_text(d, {TableBy::kernel, 20, 400, false}), markdown_text(d, 20)}) {
    EXPECT_THAT(text, HasSubstr("2 ranks on one host; passes and kernels are those of rank 0, the median one."));
    // 20 us of the head and 300 us of the tail run alone, 300 us beside the backward pass.
    EXPECT_THAT(text, HasSubstr("Communication 0.620 ms per step: 0.320 ms exposed"));
    EXPECT_THAT(text, HasSubstr("0.300 ms hidden beside other work (48%)"));
    EXPECT_THAT(text, HasSubstr("Slowest: rank 1, up to 60 us late, because op qkv took longer there."));
    EXPECT_THAT(text, HasSubstr("worst"));
    EXPECT_THAT(text, testing::AnyOf(HasSubstr("all_reduce"), HasSubstr("all\\_reduce")));
  }
}

// Sums of `peer` are communication of no collective: without them the parts of what is exposed would not add up to it.
TEST(RankReport, WhatIsExposedOutsideOfCollectivesHasAPartOfItsOwn) {
  ProfileDocument d = two_ranks();
  EXPECT_THAT(table_text(d, {TableBy::kernel, 20, 400, false}),
              HasSubstr("0.320 ms exposed (waiting 0.060 ms, transfer 0.260 ms, draining 0.000 ms),"));
  d.world.exposed_ns = 411'000;
  EXPECT_THAT(table_text(d, {TableBy::kernel, 20, 400, false}),
              HasSubstr("0.411 ms exposed (waiting 0.060 ms, transfer 0.260 ms, draining 0.000 ms, outside of collectives 0.091 ms),"));
  EXPECT_THAT(rank_words(rank_change(d, d).value()),
              HasSubstr("(B's 0.411: waiting 0.060 ms, transfer 0.260 ms, draining 0.000 ms, outside of"));
}

TEST(RankReport, TokensPerSecondOfAStateAreOfAllRanks) {
  ranks::RankShape a, b;
  b.rank = 1;
  a.ops = b.ops = ranks::two_bucket_step();
  RunInfo run;
  run.tokens_per_step = 4096;
  run.steps.resize(10);
  for (RunStep& s : run.steps) s.time_ns = 2e6;
  ProfileOptions timed;
  timed.first_timed_step = 2, timed.timed_steps = 8;
  const ProfileDocument d = join_ranks({ranks::recording(a), ranks::recording(b)}, run, {}, timed, {});
  ASSERT_FALSE(d.timing.states.empty());
  EXPECT_NEAR(d.timing.states[0].tokens_per_s.value(), 4096 * 2 / (d.timing.states[0].step_time_ns * 1e-9), 1);
}

// run.json is rank 0's: the headline over another rank's tables said nothing of it.
TEST(RankReport, StepsThatAnotherRankTimedAreSaidToBeItsOwn) {
  ProfileDocument d = two_ranks();
  d.world.main_rank = 1;
  EXPECT_THAT(table_text(d, {}), HasSubstr("those of rank 1, the median one."));
  d.run.trainer = "reference";
  EXPECT_THAT(table_text(d, {TableBy::kernel, 20, 400, false}),
              HasSubstr("those of rank 1, the median one, the step times above of rank 0."));
}

// Without an arrival the table has no column "last at", to which the sentence led the reader.
TEST(RankReport, TheSentenceNamesColumnsThatTheTableHas) {
  ProfileDocument d = two_ranks();
  EXPECT_THAT(table_text(d, {TableBy::kernel, 20, 400, false}), HasSubstr("device to last at are of one traced step"));
  for (RankRow& r : d.ranks) r.last_arrivals.reset();
  EXPECT_THAT(table_text(d, {TableBy::kernel, 20, 400, false}), HasSubstr("device to late are of one traced step"));
  for (RankRow& r : d.ranks) r.late_ns.reset();
  EXPECT_THAT(table_text(d, {TableBy::kernel, 20, 400, false}), HasSubstr("device to waits are of one traced step"));
}

TEST(RankReport, EveryTextOfTwoRanksAsAFile) {
  const ProfileDocument d = two_ranks();
  expect_golden("profiler_ranks/data/two.txt", table_text(d, {}));
  expect_golden("profiler_ranks/data/two-wide.txt", table_text(d, {TableBy::op, 30, 300, false}));
  expect_golden("profiler_ranks/data/two.md", markdown_text(d, 20));
  expect_golden("profiler_ranks/data/two.page.json", page_json(d));
  expect_golden("profiler_ranks/data/two.trace.json", trace_text(d));
  for (const auto& [name, rows] :
       {std::pair{"rank", CsvRows::rank}, {"collective", CsvRows::collective}, {"collective_rank", CsvRows::collective_rank}})
    expect_golden(std::string("profiler_ranks/data/two.") + name + ".csv", csv_text(d, rows));
}

TEST(RankReport, TheTraceHasAProcessPerRankWhoseSlicesOfATrackDoNotOverlap) {
  const auto j = nlohmann::json::parse(trace_text(two_ranks()));
  std::map<int64_t, std::string> processes;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<double, double>>> tracks;
  int64_t begins = 0, ends = 0;
  std::set<int64_t> ids;  // a viewer takes two events of one id for one
  for (const auto& e : j["traceEvents"]) {
    if (e["name"] == "process_name") processes[e["pid"]] = e["args"]["name"];
    if (e["ph"] == "X") tracks[{e["pid"], e["tid"]}].push_back({e["ts"], e["ts"].get<double>() + e["dur"].get<double>()});
    begins += e["ph"] == "b";
    if (e["ph"] == "b") ids.insert(e["id"].get<int64_t>());
    ends += e["ph"] == "e";
  }
  EXPECT_EQ(processes, (std::map<int64_t, std::string>{{0, "rank 0 on host-boot-a"}, {1, "rank 1 on host-boot-a"}}));
  EXPECT_EQ(begins, 6);
  EXPECT_EQ(ids.size(), 6u);
  EXPECT_EQ(ends, 6);
  EXPECT_EQ(tracks.size(), 4u);
  for (auto& [track, slices] : tracks) {
    std::sort(slices.begin(), slices.end());
    for (size_t i = 0; i + 1 < slices.size(); ++i) EXPECT_LE(slices[i].second, slices[i + 1].first);
  }
}

TEST(RankReport, ClocksOfTheTraceAreOne) {
  ranks::RankShape a, b;
  b.rank = 1;
  a.ops = b.ops = ranks::two_bucket_step();
  b.clock_ns = -7'000'000'000;
  b.boot = "boot-b";
  std::map<int64_t, double> first;
  const auto j = nlohmann::json::parse(trace_text(ranks::join({a, b})));
  for (const auto& e : j["traceEvents"])
    if (e["ph"] == "X" && !first.contains(e["pid"])) first[e["pid"]] = e["ts"];
  EXPECT_NEAR(first.at(0), first.at(1), 1);  // us
}

// Perfetto drops events that lie before 0, and a rank that began before main_rank lost the begin of its step there.
TEST(RankReport, TheTraceHasNoEventBeforeZero) {
  ProfileDocument d = two_ranks();
  const auto text_of_rank_0 = [&] {
    std::vector<std::pair<double, double>> all;
    for (const auto& e : nlohmann::json::parse(trace_text(d))["traceEvents"])
      if (e["ph"] == "X" && e["pid"] == 0) all.emplace_back(e["ts"], e["dur"]);
    return all;
  };
  const auto usual = text_of_rank_0();
  for (LaneRow& l : d.lanes) l.start_ns -= 900'000;
  for (CollectiveRankRow& c : d.collective_ranks) c.start_ns -= 900'000, c.end_ns -= 900'000;
  EXPECT_EQ(text_of_rank_0(), usual);
  const auto j = nlohmann::json::parse(trace_text(d));
  EXPECT_EQ(j["otherData"].value("main_rank_begins_us", 0.0), 900);
  double first = 1e9;
  for (const auto& e : j["traceEvents"])
    if (e.contains("ts")) first = std::min(first, e["ts"].get<double>());
  EXPECT_EQ(first, 0);
}

TEST(RankReport, CsvHasARowPerRankAndPerCollective) {
  const ProfileDocument d = two_ranks();
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(lines(csv_text(d, CsvRows::rank)), 3);
  EXPECT_EQ(lines(csv_text(d, CsvRows::collective)), 4);
  EXPECT_EQ(lines(csv_text(d, CsvRows::collective_rank)), 7);
}

TEST(RankReport, ThePageOfOneRankKnowsNothingOfRanks) {
  const ProfileDocument d = two_ranks();
  EXPECT_TRUE(nlohmann::json::parse(page_json(d))["tables"].contains("ranks"));
  if (has_charts()) {
    EXPECT_THAT(html_text(d), HasSubstr("Ranks and communication"));
  }
  const ProfileDocument one = build_profile(ranks::recording({}).recording, std::nullopt, {}, {});
  EXPECT_FALSE(nlohmann::json::parse(page_json(one))["tables"].contains("ranks"));
}

// Both hide nothing and take 300 us: the one that was launched first stands first.
TEST(RankReport, CollectivesThatExposeEquallyMuchStandInTheOrderOfTheStep) {
  ranks::RankShape a, b;
  b.rank = 1;
  a.ops = b.ops = {{"forward/0/qkv", 0, 400'000},
                   ranks::all_reduce(400'000, 700'000, 40, 0),
                   {"backward/0/qkv", 700'000, 1'200'000},
                   ranks::all_reduce(1'200'000, 1'500'000, 20, 1)};
  const std::string text = markdown_text(ranks::join({a, b}), 20);
  const size_t first = text.find("| fp32 | 0 | 40.0 |"), second = text.find("| fp32 | 1 | 20.0 |");
  ASSERT_NE(first, std::string::npos) << text;
  ASSERT_NE(second, std::string::npos) << text;
  EXPECT_LT(first, second);
}

TEST(RankDiff, AStepWithoutATotalIsNotSplit) {
  ranks::RankShape a, b;
  b.rank = 1;
  a.ops = b.ops = ranks::two_bucket_step();
  ProfileDocument two = ranks::join({a, b}), untimed = two;
  untimed.totals.time_ns.reset();
  ASSERT_TRUE(rank_change(two, two));
  EXPECT_FALSE(rank_change(untimed, two));
  EXPECT_FALSE(rank_change(two, untimed));
}

TEST(RankDiff, OneGpuAgainstTwoIsExposedTimePlusSlowerWorkPlusUpdatePlusIdle) {
  ranks::RankShape alone;
  alone.ops = {{"forward/0/qkv", 0, 400'000},
               {"backward/1/qkv", 400'000, 780'000},
               {"backward/0/qkv", 780'000, 1'160'000},
               {"optimizer/-/adamw", 1'160'000, 1'460'000}};
  const ProfileDocument one = build_profile(ranks::recording(alone).recording, std::nullopt, {}, {});
  ranks::RankShape a, b;
  b.rank = 1;
  a.ops = b.ops = ranks::two_bucket_step();
  const ProfileDocument two = ranks::join({a, b});
  const ProfileDiff diff = diff_profiles(one, two);
  ASSERT_TRUE(diff.ranks);
  const RankChange& c = *diff.ranks;
  EXPECT_EQ(c.b_ranks, 2);
  EXPECT_DOUBLE_EQ(c.step_ns, 240'000);
  EXPECT_DOUBLE_EQ(c.exposed_ns, 300'000);
  EXPECT_DOUBLE_EQ(c.work_ns, 40'000);  // 800 us of backward pass instead of 760
  EXPECT_NEAR(c.work_pct, 40.0 / 1160 * 100, 1e-9);
  EXPECT_DOUBLE_EQ(c.update_ns, -100'000);
  EXPECT_DOUBLE_EQ(c.idle_ns, 0);
  EXPECT_NEAR(c.exposed_ns + c.work_ns + c.update_ns + c.idle_ns + c.rest_ns, c.step_ns, 1e-6);
  EXPECT_THAT(diff_table(diff, {}), HasSubstr("1 rank -> 2 ranks, on the device +0.240 ms = exposed communication +0.300"));
  EXPECT_FALSE(diff_profiles(one, one).ranks);
  const RankChange with_idle = diff_profiles(one, two_ranks()).ranks.value();
  EXPECT_GT(with_idle.idle_ns, 0);
  EXPECT_NEAR(with_idle.exposed_ns + with_idle.work_ns + with_idle.update_ns + with_idle.idle_ns + with_idle.rest_ns, with_idle.step_ns,
              1e-6);
}

}  // namespace
