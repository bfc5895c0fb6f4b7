// A document of ranks whose sections contradict each other is refused with the field, as passes that do not add up are.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "profiler/document/json.h"
#include "tests/profiler/fixture.h"
#include "tests/profiler_ranks/ranks_fixture.h"

namespace {

using namespace profiler;
using nlohmann::json;
using testing::HasSubstr;

// Rank 1 computes 60 us longer before the second reduction; a short collective at the head bounds the clocks to 20 us.
std::vector<RankRecording> recordings_of(int64_t size = 2) {
  ranks::RankShape a, b;
  b.rank = 1;
  a.ops = b.ops = ranks::two_bucket_step();
  b.ops[3].end_ns += 60'000;
  b.ops[4].begin_ns += 60'000;
  for (ranks::RankShape* s : {&a, &b}) {
    s->size = size;
    s->ops.insert(s->ops.begin(), ranks::all_reduce(-30'000, -10'000, 1, 9));
  }
  return {ranks::recording(a), ranks::recording(b)};
}
json joined_ranks() { return json::parse(to_json(join_ranks(recordings_of(), fixture::gpt2_run(), {}, fixture::options(), {}))); }

std::string reading_error(const json& document) {
  try {
    profile_from_json(document.dump(), "p.json");
    return "";
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
}
std::string error_with_changed(const std::string& place, const json& value) {
  json changed = joined_ranks();
  changed[json::json_pointer(place)] = value;
  return reading_error(changed);
}

TEST(RankDocument, IsReadAsJoinedWithAllRanksAndWithSome) {
  EXPECT_EQ(reading_error(joined_ranks()), "");
  JoinOptions partial;
  partial.partial = true;
  const json two_of_three = json::parse(to_json(join_ranks(recordings_of(3), fixture::gpt2_run(), {}, fixture::options(), partial)));
  EXPECT_EQ(two_of_three["world"]["size"], 3);
  EXPECT_EQ(reading_error(two_of_three), "");
}

// No answer contradicts nothing.
TEST(RankDocument, IsReadWhereRanksCouldNotBeCompared) {
  const auto read_back = [](const std::vector<RankRecording>& recordings) {
    const ProfileDocument d = join_ranks(recordings, fixture::gpt2_run(), {}, fixture::options(), {});
    EXPECT_TRUE(d.collectives.empty());
    EXPECT_GT(d.world.collectives.value_or(0), 0);
    return reading_error(json::parse(to_json(d)));
  };
  auto killed = recordings_of();
  killed[1].recording.launches.clear();
  EXPECT_EQ(read_back(killed), "");
  auto other = recordings_of();
  std::erase_if(other[1].recording.launches, [](const LaunchRecord& l) { return l.end_ns - l.start_ns == 20'000; });
  EXPECT_EQ(read_back(other), "");
}

TEST(RankDocument, RanksThatAreNotThoseOfTheWorldAreRefused) {
  EXPECT_EQ(error_with_changed("/world/main_rank", 7), "p.json: world.main_rank: found 7, expected a rank of ranks[]: 0, 1");
  EXPECT_EQ(error_with_changed("/world/slowest_rank", 2), "p.json: world.slowest_rank: found 2, expected a rank of ranks[]: 0, 1");
  EXPECT_EQ(error_with_changed("/world/size", 3),
            "p.json: world.size: found 3, expected 2: the rows of ranks, as missing has no row rank_missing");
  EXPECT_EQ(error_with_changed("/world/ranks", 1), "p.json: world.ranks: found 1, expected 2: the rows of ranks");
  EXPECT_EQ(error_with_changed("/ranks/1/rank", 2), "p.json: ranks[1].rank: found 2, expected 0 to 1: world.size is 2");
  EXPECT_EQ(error_with_changed("/ranks/1/rank", 0), "p.json: ranks[1].rank: found 0, the rank of ranks[0] too, expected each once");
  EXPECT_EQ(error_with_changed("/lanes/0/rank", 5), "p.json: lanes[0].rank: found 5, expected a rank of ranks[]: 0, 1");
  EXPECT_EQ(error_with_changed("/collectives/0/last_rank", 5),
            "p.json: collectives[0].last_rank: found 5, expected a rank of ranks[]: 0, 1");
  json fewer = joined_ranks();
  fewer["ranks"].erase(1);
  EXPECT_EQ(reading_error(fewer), "p.json: world.ranks: found 2, expected 1: the rows of ranks");
  fewer["ranks"] = json::array();
  EXPECT_EQ(reading_error(fewer), "p.json: ranks: found no row, expected one of each rank: world is there");
}

// Without `ranks` the other sections were skipped, and the document passed for one of a single rank.
TEST(RankDocument, SectionsOfRanksWithoutTheRanksAreRefused) {
  json without = joined_ranks();
  without.erase("ranks");
  without["timing"].erase("states");  // whose tokens/s are of two ranks
  EXPECT_EQ(reading_error(without), "p.json: ranks: is missing, expected one row of each rank: world is there");
  for (const char* section : {"world", "rank_passes", "collectives", "collective_ranks", "lanes"}) {
    without.erase(section);
    EXPECT_EQ(reading_error(without).empty(), std::string(section) == "lanes") << section;
  }
}

// 9e9 tokens/s were shown as they stood, and `diff` compared a mean step of 1 ns.
TEST(RankDocument, RatesThatDoNotFollowFromTheirStepsAreRefused) {
  const json whole = joined_ranks();
  ASSERT_FALSE(whole["timing"]["states"].empty());
  json faster = whole;
  faster["timing"]["tokens_per_s"] = 9e9;
  faster["world"]["tokens_per_s"] = 18e9;
  EXPECT_THAT(reading_error(faster), HasSubstr("p.json: timing.tokens_per_s: found 9000000000"));
  EXPECT_THAT(error_with_changed("/timing/states/0/step_time_ns", 1),
              HasSubstr("p.json: timing.states[0].step_time_ns: found 1, expected"));
  EXPECT_THAT(error_with_changed("/timing/states/0/tokens_per_s", 9e9),
              HasSubstr("p.json: timing.states[0].tokens_per_s: found 9000000000"));
  // Older documents have those of one rank there.
  json older = whole;
  json& row = older["timing"]["states"][0];
  row["tokens_per_s"] = row["tokens_per_s"].get<double>() / 2;
  const ProfileDocument read = profile_from_json(older.dump(), "p.json");
  EXPECT_DOUBLE_EQ(*read.timing.states[0].tokens_per_s, whole["timing"]["states"][0]["tokens_per_s"].get<double>());
}

TEST(RankDocument, CommunicationThatDoesNotAddUpIsRefused) {
  const json good = joined_ranks();
  const double exposed = good["world"]["exposed_ns"], hidden = good["world"]["hidden_ns"];
  ASSERT_GT(exposed, 1000);
  ASSERT_GT(hidden, 1000);
  EXPECT_EQ(error_with_changed("/world/communication_ns", 1000),
            fmt::format("p.json: world.communication_ns: found 1000, expected {}: exposed_ns + hidden_ns", exposed + hidden));
  EXPECT_THAT(error_with_changed("/world/exposed_ns", 0),
              HasSubstr("p.json: world.exposed_wait_ns + exposed_transfer_ns + exposed_drain_ns: found"));
  json moved = good;
  moved["world"]["exposed_ns"] = exposed + 1000, moved["world"]["hidden_ns"] = hidden - 1000;
  EXPECT_EQ(reading_error(moved),
            fmt::format("p.json: world.exposed_ns: found {}, expected {}: that of ranks[0], which is main_rank", exposed + 1000, exposed));
  moved = good;
  moved["world"]["hidden_ns"] = hidden + 9e9, moved["world"]["communication_ns"] = exposed + hidden + 9e9;
  EXPECT_THAT(reading_error(moved), HasSubstr("p.json: world.hidden_ns: found 9000"));
  for (const char* part : {"exposed_wait_ns", "exposed_transfer_ns", "exposed_drain_ns"}) {
    EXPECT_THAT(error_with_changed(std::string("/world/") + part, exposed + 1), HasSubstr("at most: they are parts of exposed_ns")) << part;
    EXPECT_THAT(error_with_changed(std::string("/collective_ranks/0/") + part, 9e9),
                HasSubstr("p.json: collective_ranks[0].exposed_wait_ns + exposed_transfer_ns + exposed_drain_ns: found 9000"))
        << part;
    moved = good;
    ASSERT_TRUE(moved["world"].contains(part));
    moved["world"][part] = 0;
    if (good["world"][part] != 0.0) {
      EXPECT_THAT(reading_error(moved), HasSubstr(fmt::format("world.{}: found 0, expected", part)));
    }
  }
  EXPECT_THAT(error_with_changed("/ranks/1/exposed_wait_ns", 9e9),
              HasSubstr("p.json: ranks[1].exposed_wait_ns: found 9000000000, expected"));
  EXPECT_THAT(error_with_changed("/ranks/1/idle_ns", 9e9), HasSubstr("p.json: ranks[1].device_ns: found "));
  EXPECT_THAT(error_with_changed("/world/bytes", 1),
              HasSubstr("p.json: world.bytes: found 1, expected 61000000: the sum of collectives[].bytes"));
}

TEST(RankDocument, TokensOfAllRanksAreThoseOfOneTimesTheRanks) {
  const double one = joined_ranks()["timing"]["tokens_per_s"];
  EXPECT_EQ(error_with_changed("/world/tokens_per_s", one),
            fmt::format("p.json: world.tokens_per_s: found {}, expected {}: world.size x timing.tokens_per_s", one, 2 * one));
  json without = joined_ranks();
  without["timing"].erase("tokens_per_s");
  EXPECT_EQ(reading_error(without), "p.json: timing.tokens_per_s: is missing, expected that of one rank: world.tokens_per_s is there");
}

TEST(RankDocument, RowsOfPassesAndCollectivesThatAreGoneOrTwiceAreRefused) {
  const json good = joined_ranks();
  json changed = good;
  changed["rank_passes"].push_back(changed["rank_passes"][0]);
  EXPECT_EQ(reading_error(changed), fmt::format("p.json: rank_passes[{}]: found {} of rank 0 a second time, expected each once",
                                                good["rank_passes"].size(), good["rank_passes"][0]["pass"].get<std::string>()));
  changed = good;
  changed["rank_passes"].erase(0);
  EXPECT_THAT(reading_error(changed), HasSubstr("the rows of passes, which are main_rank's"));
  EXPECT_THAT(error_with_changed("/rank_passes/0/time_ns", 1), HasSubstr("p.json: rank_passes[0].time_ns: found 1, expected"));
  EXPECT_THAT(error_with_changed("/rank_passes/0/pass", "lunch"),
              HasSubstr("p.json: rank_passes[0].pass: found 'lunch', expected one of passes[]"));
  EXPECT_THAT(error_with_changed("/rank_passes/0/rank", 4), HasSubstr("p.json: rank_passes[0].rank: found 4"));
  for (size_t i = 0; i < good["rank_passes"].size(); ++i)
    if (good["rank_passes"][i]["pass"] == "communication") {
      EXPECT_THAT(error_with_changed(fmt::format("/rank_passes/{}/hidden_ns", i), 1),
                  HasSubstr(fmt::format("p.json: rank_passes[{}].hidden_ns: found 1, expected", i)));
    }
  changed = good;
  changed["collectives"].erase(2);
  EXPECT_EQ(reading_error(changed), "p.json: world.collectives: found 3, expected 2: the rows of collectives");
  changed = good;
  changed["collectives"] = json::array(), changed["collective_ranks"] = json::array();
  EXPECT_EQ(reading_error(changed), "p.json: world.collectives: found 3, expected 0: the rows of collectives");
  EXPECT_EQ(error_with_changed("/collectives/1/sequence", 5),
            "p.json: collectives[1].sequence: found 5, expected 1: its place in the list");
  EXPECT_EQ(error_with_changed("/collective_ranks/0/sequence", 3),
            "p.json: collective_ranks[0].sequence: found 3, expected one of the 3 in collectives[]");
  EXPECT_EQ(error_with_changed("/collective_ranks/0/rank", 1),
            "p.json: collective_ranks[1]: found collective 0 of rank 1 a second time, expected each once");
  changed = good;
  changed["collective_ranks"].erase(5);
  EXPECT_EQ(reading_error(changed), "p.json: collective_ranks: found 5 rows, expected 6: each collective on each rank");
}

}  // namespace
