// The watchdog's judgement, with times that the tests make up.
#include "gpt2/distributed/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "gpt2/distributed/identity.h"
#include "gpt2/distributed/launcher.h"
#include "gpt2/distributed/socket_channel.h"

namespace gpt2::distributed {
namespace {
using ::testing::AllOf;
using ::testing::HasSubstr;

// Rank 0 of three watches ranks 1 and 2.
struct Watched {
  Watch watch{{"rank 0", "rank 1 (pid 11 on a)", "rank 2 (pid 12 on b)"}, {1, 2}, {5, 30}, 100};
  void all_beat(double now, Beat beat = {7, Phase::step, false, 0, 30}) {
    for (int r = 0; r < 3; ++r) watch.beat(r, beat, now);
  }
};

TEST(Watch, FindsNothingWhileBeatsCome) {
  Watched w;
  for (double t = 100; t < 200; t += 4) {
    w.all_beat(t);
    EXPECT_FALSE(w.watch.judge(t + 4.9));
  }
}

TEST(Watch, ASilentRankIsStopped) {
  Watched w;
  w.all_beat(100);
  w.watch.beat(1, {7, Phase::step, false, 0, 30}, 104);
  EXPECT_FALSE(w.watch.judge(105));
  const auto f = w.watch.judge(105.1);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->rank, 2);
  EXPECT_EQ(f->exit_code, 3);
  EXPECT_THAT(f->what, AllOf(HasSubstr("rank 2 (pid 12 on b)"), HasSubstr("in step 7"), HasSubstr("stopped")));
}

TEST(Watch, SilenceProvesNothingWhileThisProcessDidNotRun) {
  Watched w;
  w.all_beat(100);
  w.watch.was_away(160);
  EXPECT_FALSE(w.watch.judge(161));
  EXPECT_TRUE(w.watch.judge(166));
}

TEST(Watch, AnEndWithoutAWordIsAFailureAndAGoodbyeIsNone) {
  Watched w;
  w.all_beat(100, {3, Phase::checkpoint, false, 0, 0});
  w.watch.goodbye(1);
  w.watch.closed(1);
  EXPECT_FALSE(w.watch.judge(200 - 99));
  w.watch.closed(2);
  const auto f = w.watch.judge(101);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->rank, 2);
  EXPECT_THAT(f->what, HasSubstr("ended without a word, last seen while it saved step 3"));
  EXPECT_TRUE(ended_without_a_word(*f));
  EXPECT_FALSE(ended_without_a_word({1, "rank 1: a disk is full", 3}));
}

TEST(Watch, TheRankThatDoesNotWaitIsTheOneThatIsStuck) {
  Watched w;
  w.watch.beat(0, {7, Phase::step, true, 31, 30}, 200);
  w.watch.beat(1, {7, Phase::step, false, 31, 30}, 200);
  w.watch.beat(2, {7, Phase::step, true, 31, 30}, 200);
  const auto f = w.watch.judge(200);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->rank, 1);
  EXPECT_THAT(f->what, HasSubstr("has been in step 7 for 31 s"));
}

TEST(Watch, ARankIsQuietForAsLongAsItSaidAndSinceItSaidSo) {
  Watched w;
  w.watch.beat(0, {7, Phase::step, true, 20, 30}, 200);
  w.watch.beat(1, {7, Phase::step, false, 27, 30}, 200);
  w.watch.beat(2, {7, Phase::step, true, 20, 30}, 200);
  EXPECT_FALSE(w.watch.judge(202));
  const auto f = w.watch.judge(204);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->rank, 1);
  EXPECT_THAT(f->what, HasSubstr("has been in step 7 for 31 s"));
}

TEST(Watch, ALongCheckpointOrEvaluationIsNotStuck) {
  for (const Phase phase : {Phase::start, Phase::evaluation, Phase::checkpoint, Phase::end}) {
    Watched w;
    w.all_beat(200, {7, phase, false, 1000, 30});
    EXPECT_FALSE(w.watch.judge(200));
  }
  Watched w;
  w.all_beat(200, {7, Phase::step, false, 1000, 0});  // no limit yet
  EXPECT_FALSE(w.watch.judge(200));
}

TEST(Watch, WhereAllWaitTheOneBehindIsNamed) {
  Watched w;
  w.all_beat(200, {7, Phase::step, true, 31, 30});
  ASSERT_TRUE(w.watch.judge(200));
  EXPECT_EQ(w.watch.judge(200)->rank, -1);
  w.watch.beat(2, {6, Phase::step, true, 31, 30}, 200);
  EXPECT_EQ(w.watch.judge(200)->rank, 2);
  EXPECT_THAT(w.watch.judge(200)->what, HasSubstr("rank 2 (pid 12 on b) is still in step 6"));
}

TEST(Watch, ReplicasThatDifferInABitAreFoundAndTheMinorityIsNamed) {
  const uint64_t loss = std::bit_cast<uint64_t>(2.5), other = loss + 1, norm = std::bit_cast<uint64_t>(1.0);
  Watched w;
  w.all_beat(100);
  for (int r = 0; r < 3; ++r) w.watch.finished(r, 1, loss, norm);
  EXPECT_FALSE(w.watch.judge(100));
  // Out of order, and a step that not all have finished: no verdict yet.
  w.watch.finished(1, 3, loss, norm);
  w.watch.finished(0, 2, loss, norm);
  w.watch.finished(2, 2, loss, norm);
  EXPECT_FALSE(w.watch.judge(100));
  w.watch.finished(1, 2, other, norm);
  const auto f = w.watch.judge(100);
  ASSERT_TRUE(f);
  EXPECT_EQ(f->rank, 1);
  EXPECT_EQ(f->exit_code, 1);
  EXPECT_THAT(f->what,
              AllOf(HasSubstr("step 2"), HasSubstr("loss"), HasSubstr("2.5000000000000004 on rank 1"), HasSubstr("on ranks 0, 2")));
}

TEST(Watch, TheNormIsComparedToo) {
  Watched w;
  w.all_beat(100);
  for (int r = 0; r < 3; ++r) w.watch.finished(r, 4, 1, r == 0 ? 2 : 3);
  ASSERT_TRUE(w.watch.judge(100));
  EXPECT_EQ(w.watch.judge(100)->rank, 0);
  EXPECT_THAT(w.watch.judge(100)->what, HasSubstr("gradient norm"));
}

TEST(Places, FollowFromTheHosts) {
  const auto place = [](int rank, World given) {
    given.rank = rank;
    given.size = 5;
    return with_places(given, {"a", "b", "a", "b", "b"});
  };
  World unknown;
  unknown.local_rank = unknown.local_size = unknown.node = unknown.nodes = -1;
  EXPECT_EQ(place(2, unknown).local_rank, 1);
  EXPECT_EQ(place(2, unknown).local_size, 2);
  EXPECT_EQ(place(4, unknown).local_rank, 2);
  EXPECT_EQ(place(4, unknown).local_size, 3);
  EXPECT_EQ(place(4, unknown).node, 1);
  EXPECT_EQ(place(4, unknown).nodes, 2);
  World given;
  given.local_rank = 7;
  EXPECT_EQ(place(1, given).local_rank, 7);  // the starter knows better
}

TEST(Identity, RefusesTheFirstFieldThatDiffersWithValuesAndRanks) {
  const auto rank = [](const std::string& rate, const std::string& gpu) {
    return Identity{{"build", "x"}, {"--lr", rate}, {"GPU", gpu, Must::differ_on_a_host}, {"clock", gpu, Must::nothing}};
  };
  EXPECT_FALSE(disagreement({rank("1", "a"), rank("1", "b")}, {"h", "h"}));
  EXPECT_THAT(disagreement({rank("1", "a"), rank("2", "b"), rank("1", "c")}, {"h", "h", "h"}).value(),
              HasSubstr("the ranks differ in --lr: '1' on ranks 0, 2; '2' on rank 1"));
  EXPECT_THAT(disagreement({rank("1", "a"), rank("1", "b"), rank("1", "a")}, {"h", "h", "h"}).value(),
              HasSubstr("ranks 0 and 2 have the same GPU: a"));
  EXPECT_FALSE(disagreement({rank("1", "a"), rank("1", "a")}, {"h", "i"}));
}

TEST(Identity, AFieldThatOnlyOneRankHasDiffers) {
  const Identity plain{{"--lr", "1"}}, more{{"--deterministic", "yes"}, {"--lr", "1"}};
  EXPECT_THAT(disagreement({plain, more}, {"h", "h"}).value(), HasSubstr("--deterministic: nothing on rank 0; 'yes' on rank 1"));
  const Identity back = unpack(pack(more));
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].name, "--deterministic");
  EXPECT_EQ(back[1].value, "1");
}

// ---- the launcher's last line ---------------------------------------------------------------------------------------------------------
RankEnd ended(int order, int exit_code, std::optional<Failure> told = {}) {
  RankEnd e{100 + order, order, exit_code, 0, false, 9, std::move(told)};
  return e;
}
RankEnd killed(int order, int signal, bool by_launcher = false) {
  RankEnd e{100 + order, order, 0, signal, by_launcher, 9, {}};
  return e;
}

TEST(Ending, OfAGoodRunIsSilent) {
  EXPECT_EQ(judge_endings({ended(0, 0), ended(1, 0)}).exit_code, 0);
  EXPECT_EQ(judge_endings({ended(0, 0), ended(1, 0)}).last_line, "");
}
TEST(Ending, NamesTheRankThatWasKilledNotTheOneThatEndedFirst) {
  const Failure gone{2, "rank 2 ended without a word", 3};
  const Ending e = judge_endings({ended(1, 3, gone), ended(0, 3, gone), killed(2, 9)});
  EXPECT_EQ(e.exit_code, 3);
  EXPECT_EQ(e.last_line, "rank 2 (pid 102) was killed by signal 9 in step 9; ranks 0, 1 were stopped");
}
TEST(Ending, OfTwoRanksThatFailedNamesTheOneThatEndedFirst) {
  const Ending e = judge_endings({ended(1, 2), ended(0, 3)});
  EXPECT_EQ(e.exit_code, 3);
  EXPECT_EQ(e.last_line, "rank 1 (pid 100) ended with exit code 3 in step 9; rank 0 was stopped");
}
TEST(Ending, TakesTheExitCodeOfTheRankThatFailedItself) {
  const Failure full{1, "disk full", 2};
  const Ending e = judge_endings({ended(0, 2, full), ended(1, 2, full)});
  EXPECT_EQ(e.exit_code, 2);
  EXPECT_EQ(e.last_line, "rank 1 (pid 101) ended with exit code 2 in step 9: disk full; rank 0 was stopped");
}
TEST(Ending, OfARankThatHadToBeKilledSaysWhy) {
  const Failure silent{1, "rank 1 has not been heard for 5 s", 3};
  const Ending e = judge_endings({ended(0, 3, silent), killed(1, 9, true)});
  EXPECT_EQ(e.exit_code, 3);
  EXPECT_EQ(e.last_line, "rank 1 has not been heard for 5 s; it was killed; rank 0 was stopped");
}
TEST(Ending, AReasonThatAllRanksShareIsSaidOnce) {
  const Failure all{-1, "no such file", 2};
  const Ending e = judge_endings({ended(1, 2, all), ended(0, 2, all)});
  EXPECT_EQ(e.exit_code, 2);
  EXPECT_EQ(e.last_line, "");
}
// A second ctrl-C kills ranks that have not stopped yet: none has failed, and none has done its work.
TEST(Ending, OfRanksThatTheUserHadKilledIsNoSuccess) {
  const Ending e = judge_endings({killed(0, 9, true), killed(1, 9, true)});
  EXPECT_EQ(e.exit_code, 130);
  EXPECT_EQ(e.last_line, "the ranks were killed before they had stopped; what came after the last checkpoint is lost");
  EXPECT_EQ(judge_endings({ended(0, 0), killed(1, 9, true)}).exit_code, 130);
}
TEST(Ending, OfAnInterruptedRunAddsNothing) {
  const Ending e = judge_endings({ended(1, 130), ended(0, 130)});
  EXPECT_EQ(e.exit_code, 130);
  EXPECT_EQ(e.last_line, "");
}

}  // namespace
}  // namespace gpt2::distributed
