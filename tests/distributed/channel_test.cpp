// Gathers and collectives between ranks that are threads, through memory and through sockets, and how they end when one fails.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <utility>

#include "base/counter_rng.h"
#include "gpt2/distributed/agreement.h"
#include "gpt2/distributed/socket_channel.h"
#include "gpt2/distributed/staged_communicator.h"
#include "tests/distributed/ranks_in_threads.h"

namespace gpt2::distributed {
namespace {
using gpt2::testing::in_ranks;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// Peers of rank r: what meet() returns to it.
std::vector<std::vector<Peer>> socket_peers(int ranks) {
  std::vector<std::vector<Peer>> peers(static_cast<size_t>(ranks));
  peers[0].resize(static_cast<size_t>(ranks));
  for (int r = 1; r < ranks; ++r) {
    peers[static_cast<size_t>(r)].resize(1);
    for (Descriptor Peer::*which : {&Peer::control, &Peer::data}) {
      std::array<int, 2> ends{};
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) throw std::runtime_error("socketpair");
      peers[0][static_cast<size_t>(r)].*which = Descriptor(ends[0]);
      peers[static_cast<size_t>(r)][0].*which = Descriptor(ends[1]);
    }
    peers[0][static_cast<size_t>(r)].host = peers[static_cast<size_t>(r)][0].host = "here";
  }
  return peers;
}
// `signals_to`: the rank that takes this process's signals; -1: none.
std::vector<std::unique_ptr<ControlChannel>> socket_channels(int ranks, std::vector<std::vector<Peer>> peers, ChannelOptions options = {},
                                                             int signals_to = -1) {
  std::vector<std::unique_ptr<ControlChannel>> channels;
  for (int r = 0; r < ranks; ++r) {
    if (peers[static_cast<size_t>(r)].empty()) {
      channels.push_back(nullptr);
      continue;
    }
    World w;
    w.rank = r;
    w.size = ranks;
    options.take_signals = r == signals_to;
    channels.push_back(make_socket_channel(w, std::move(peers[static_cast<size_t>(r)]), options));
  }
  return channels;
}

class Channels : public ::testing::TestWithParam<bool> {
 protected:
  static std::vector<std::unique_ptr<ControlChannel>> make(int ranks) {
    return GetParam() ? socket_channels(ranks, socket_peers(ranks)) : make_thread_channels(ranks);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Channels, ::testing::Bool(), [](const auto& one) { return one.param ? "sockets" : "memory"; });

TEST_P(Channels, GatherWhatEachRankBringsWhateverItsSize) {
  for (const int ranks : {1, 2, 5}) {
    auto channels = make(ranks);
    const auto errors = in_ranks(ranks, [&](int r) {
      for (int round = 0; round < 20; ++round) {
        const Bytes mine(static_cast<size_t>((r * 7 + round) % 5) * 1000, static_cast<unsigned char>(r));
        const auto all = channels[static_cast<size_t>(r)]->all_gather(mine);
        ASSERT_EQ(all.size(), static_cast<size_t>(ranks));
        for (int other = 0; other < ranks; ++other) {
          const Bytes& part = all[static_cast<size_t>(other)];
          ASSERT_EQ(part.size(), static_cast<size_t>((other * 7 + round) % 5) * 1000);
          for (const unsigned char byte : part) ASSERT_EQ(byte, other);
        }
      }
    });
    EXPECT_THAT(errors, Each(""));
  }
}

float value_of(int rank, int64_t i) {
  return static_cast<float>(CounterRng(static_cast<uint64_t>(rank), static_cast<uint64_t>(i)).uniform() - 0.5);
}

TEST_P(Channels, SumInTheOrderOfTheRanksWithTheSameBitsOnEach) {
  // One element, odd numbers, and more than the piece that sockets send at once.
  for (const int64_t n : {int64_t{1}, int64_t{1023}, (int64_t{1} << 18) + 5}) {
    const int ranks = 3;
    auto channels = make(ranks);
    std::vector<float> expected(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) expected[static_cast<size_t>(i)] = (value_of(0, i) + value_of(1, i)) + value_of(2, i);
    const auto errors = in_ranks(ranks, [&](int r) {
      const auto communicator = make_staged(*channels[static_cast<size_t>(r)]);
      std::vector<float> data(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) data[static_cast<size_t>(i)] = value_of(r, i);
      communicator->enqueue({CollectiveKind::all_reduce, Element::fp32, n, 0}, data.data(), nullptr);
      EXPECT_EQ(std::memcmp(data.data(), expected.data(), data.size() * sizeof(float)), 0);
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST_P(Channels, Bf16IsAddedInFp32AndRoundedOnce) {
  auto channels = make(3);
  // 256 + 1 + 1: bf16 has 8 bits, so that 256 + 1 rounds to 256; only the sum 258 can be stored.
  const auto bits = [](float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); };
  const auto errors = in_ranks(3, [&](int r) {
    std::vector<uint16_t> data{bits(r == 0 ? 256.0f : 1.0f), bits(r == 2 ? NAN : 1.0f)};
    channels[static_cast<size_t>(r)]->exchange({CollectiveKind::all_reduce, Element::bf16, 2, 0}, data.data());
    EXPECT_EQ(data[0], bits(258.0f));
    EXPECT_EQ(data[1] & 0x7fc0, 0x7fc0);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(Channels, ReduceScatterLeavesItsSliceAndAllGatherBringsThemTogether) {
  for (const int ranks : {1, 2, 4}) {
    auto channels = make(ranks);
    const int64_t slice = 5, n = slice * ranks;
    const auto errors = in_ranks(ranks, [&](int r) {
      std::vector<double> data(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) data[static_cast<size_t>(i)] = static_cast<double>((r + 1) * (i + 1));
      channels[static_cast<size_t>(r)]->exchange({CollectiveKind::reduce_scatter, Element::fp64, n, 0}, data.data());
      const double ranks_sum = ranks * (ranks + 1) / 2;
      for (int64_t i = r * slice; i < (r + 1) * slice; ++i) ASSERT_EQ(data[static_cast<size_t>(i)], ranks_sum * static_cast<double>(i + 1));
      for (int64_t i = 0; i < n; ++i)
        if (i / slice != r) data[static_cast<size_t>(i)] = -1;  // undefined: nobody may use it
      channels[static_cast<size_t>(r)]->exchange({CollectiveKind::all_gather, Element::fp64, n, 0}, data.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(data[static_cast<size_t>(i)], ranks_sum * static_cast<double>(i + 1));
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST_P(Channels, UnequalSlicesAreRefusedBeforeAnythingIsSent) {
  auto channels = make(2);
  std::vector<float> data(3);
  EXPECT_THROW(channels[0]->exchange({CollectiveKind::reduce_scatter, Element::fp32, 3, 0}, data.data()), std::logic_error);
  EXPECT_THROW(channels[0]->exchange({CollectiveKind::all_reduce, Element::fp32, 0, 0}, data.data()), std::logic_error);
}

TEST_P(Channels, AgreeOnAnErrorOfOneRankAndOfAll) {
  auto channels = make(3);
  auto codes = std::vector<int>(3);
  const auto one = in_ranks(3, [&](int r) {
    try {
      agree(channels[static_cast<size_t>(r)].get(), [&] {
        if (r == 1) throw stepscope::InputError("no such file");
      });
    } catch (const RankFailure& e) {
      codes[static_cast<size_t>(r)] = e.failure.exit_code;
      EXPECT_EQ(e.failure.rank, 1);
      throw;
    }
  });
  EXPECT_THAT(one, Each("rank 1: no such file"));
  EXPECT_THAT(codes, Each(2));
  const auto all =
      in_ranks(3, [&](int r) { agree(channels[static_cast<size_t>(r)].get(), [] { throw stepscope::MachineError("no memory"); }); });
  EXPECT_THAT(all, Each("no memory"));
  const auto none = in_ranks(3, [&](int r) { agree(channels[static_cast<size_t>(r)].get(), [] {}); });
  EXPECT_THAT(none, Each(""));
}

TEST_P(Channels, OfUnlikeErrorsTheFirstIsSaidOfTheRanksThatHaveIt) {
  using stepscope::InputError, stepscope::MachineError;
  struct Case {
    std::vector<std::function<void()>> work;
    const char* said;
    int rank, code;
  };
  const auto nothing = [] {};
  const auto no_data = [] { throw InputError("cannot read the data"); };
  const auto no_memory = [] { throw MachineError("no memory"); };
  const auto other = [] { throw InputError("another checkpoint"); };
  const auto same_words = [] { throw MachineError("cannot read the data"); };  // and yet another failure: its exit code is
  for (const Case& c : std::vector<Case>{{{nothing, no_data, other}, "rank 1: cannot read the data", 1, 2},
                                         {{no_memory, other, nothing, no_memory, other}, "ranks 0, 3: no memory", 0, 3},
                                         {{other, no_data, no_data}, "rank 0: another checkpoint", 0, 2},
                                         {{nothing, same_words, no_data, same_words}, "ranks 1, 3: cannot read the data", 1, 3}}) {
    const int ranks = static_cast<int>(c.work.size());
    auto channels = make(ranks);
    const auto errors = in_ranks(ranks, [&](int r) {
      try {
        agree(channels[static_cast<size_t>(r)].get(), c.work[static_cast<size_t>(r)]);
      } catch (const RankFailure& e) {
        EXPECT_EQ(e.failure.rank, c.rank) << c.said;
        EXPECT_EQ(e.failure.exit_code, c.code) << c.said;
        throw;
      }
    });
    EXPECT_THAT(errors, Each(c.said));
  }
}

TEST_P(Channels, TextOfRankZeroReachesAll) {
  auto channels = make(3);
  const auto errors =
      in_ranks(3, [&](int r) { EXPECT_EQ(from_rank_0(*channels[static_cast<size_t>(r)], "from " + std::to_string(r)), "from 0"); });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(Channels, AbortEndsTheCallsThatWait) {
  auto channels = make(3);
  const auto errors = in_ranks(3, [&](int r) {
    auto& channel = *channels[static_cast<size_t>(r)];
    if (r != 2) {
      channel.all_gather({});
    } else if (GetParam()) {
      static_cast<SocketChannel&>(channel).fail({2, "rank 2 has had enough", 1});
    } else {
      channel.abort();
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2"));
  EXPECT_EQ(errors[0], errors[1]);
}

// ---- what only processes have: a watchdog -------------------------------------------------------------------------------------------
SocketChannel& watched(std::vector<std::unique_ptr<ControlChannel>>& channels, int r) {
  return static_cast<SocketChannel&>(*channels[static_cast<size_t>(r)]);
}

TEST(SocketChannels, ARankThatGoesEndsTheOthersWithItsName) {
  for (const int gone : {0, 1, 2}) {
    auto channels = socket_channels(3, socket_peers(3));
    const auto errors = in_ranks(3, [&](int r) {
      channels[static_cast<size_t>(r)]->now(Phase::step, 412);
      channels[static_cast<size_t>(r)]->all_gather({});
      if (r == gone) {
        channels[static_cast<size_t>(r)].reset();  // as the kernel closes the sockets of a process that was killed
      } else {
        channels[static_cast<size_t>(r)]->all_gather({});
      }
    });
    if (gone == 0) {
      EXPECT_FALSE(watched(channels, 1).told_by_rank_0());
    }
    for (int r = 0; r < 3; ++r) {
      if (r == gone) continue;
      EXPECT_THAT(errors[static_cast<size_t>(r)], AllOf(HasSubstr("rank " + std::to_string(gone)), HasSubstr("ended without a word")));
    }
  }
}

TEST(SocketChannels, RanksThatMakeOtherCallsAreFoundOut) {
  auto channels = socket_channels(3, socket_peers(3));
  const auto errors = in_ranks(3, [&](int r) {
    std::vector<float> data(8);
    if (r == 1) channels[1]->exchange({CollectiveKind::all_reduce, Element::fp32, 4, 7}, data.data());
    channels[static_cast<size_t>(r)]->exchange({CollectiveKind::all_reduce, Element::fp32, 8, 6}, data.data());
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("do not make the same exchanges"), HasSubstr("8 fp32 elements (bucket 6)"),
                                 HasSubstr("rank 1 makes call 0, an all-reduce of 4"))));
}

TEST(SocketChannels, AFailureOfARankIsWhatAllSay) {
  for (const int bad : {0, 2}) {
    auto channels = socket_channels(3, socket_peers(3));
    std::vector<Failure> agreed(3);
    in_ranks(3, [&](int r) {
      auto& mine = agreed[static_cast<size_t>(r)];
      try {
        if (r == bad) throw stepscope::InputError("disk full");
        channels[static_cast<size_t>(r)]->all_gather({});
      } catch (const RankFailure& e) {
        mine = watched(channels, r).fail(e.failure);
      } catch (const stepscope::InputError& e) {
        mine = watched(channels, r).fail({r, e.what(), 2});
      }
      EXPECT_EQ(watched(channels, r).told_by_rank_0(), r != 0) << "rank " << r << " of a failure of rank " << bad;
    });
    for (const Failure& f : agreed) {
      EXPECT_EQ(f.rank, bad);
      EXPECT_EQ(f.exit_code, 2);
      EXPECT_EQ(f.what, "disk full");
    }
  }
}

TEST(SocketChannels, StepsThatDifferInABitEndTheRun) {
  auto channels = socket_channels(2, socket_peers(2));
  const auto errors = in_ranks(2, [&](int r) {
    channels[static_cast<size_t>(r)]->finished(5, r == 1 ? std::nextafter(2.0, 3.0) : 2.0, 1.0);
    for (;;) channels[static_cast<size_t>(r)]->all_gather({});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("step 5"), HasSubstr("replicas"), HasSubstr("on rank 1"))));
}

// Rank 0 draws a sample behind step 10 while rank 1 goes on: it enqueues 11 and 12 and waits for 11. Where both had to leave behind step 12,
// rank 1 would not know of it: it asks before it begins a step.
int leaves_where_all_ask_before() {
  auto channels = socket_channels(2, socket_peers(2), {}, 0);
  channels[0]->now(Phase::step, 10);
  for (const int64_t enqueued : {9, 10, 11})
    if (channels[1]->last_step(enqueued)) return 1;
  if (::kill(::getpid(), SIGTERM) != 0) return 2;
  std::optional<int64_t> stop;
  while (!stop) stop = channels[0]->last_step(10);
  return stop == 13 && channels[1]->last_step(12) == stop ? 0 : 3;
}

TEST(SocketChannels, TheStepAfterWhichAllLeaveIsOneThatNoneHasBegun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process without other threads, which would get the signal
  EXPECT_EXIT(std::exit(leaves_where_all_ask_before()), ::testing::ExitedWithCode(0), "");
}

// A starter tells each rank, and so does the terminal; which ends the run only a second later.
int the_same_wish_by_two_signals() {
  auto channels = socket_channels(2, socket_peers(2), {}, 0);
  channels[0]->now(Phase::step, 10);
  if (::fork() == 0) {  // from elsewhere: what a process sends itself is no user's wish
    ::kill(::getppid(), SIGINT);
    ::kill(::getppid(), SIGTERM);
    ::_exit(0);
  }
  while (!channels[0]->last_step(10))
    if (channels[0]->failure()) return 1;
  ::usleep(50'000);
  return channels[0]->failure() || channels[1]->failure() ? 3 : 0;
}

TEST(SocketChannels, ASecondSignalAtOnceIsTheSameOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(the_same_wish_by_two_signals()), ::testing::ExitedWithCode(0), "");
}

ChannelOptions impatient(double stall_s) {
  ChannelOptions o;
  o.beat_every_s = 0.02;
  o.limits.stall_s = stall_s;
  return o;
}

// As where validation empties the pipeline at every second step: two steps are finished at once.
TEST(SocketChannels, StepsThatAreFinishedInTwosAreNoReasonForImpatience) {
  auto channels = socket_channels(2, socket_peers(2), impatient(0.2));
  const auto errors = in_ranks(2, [&](int r) {
    ControlChannel& c = *channels[static_cast<size_t>(r)];
    c.now(Phase::step, 1);
    for (int64_t step = 1; step <= 8; step += 2) {
      c.finished(step, 1, 1);
      c.finished(step + 1, 1, 1);
      ::usleep(100'000);
    }
    ::usleep(400'000);  // less than 20 steps of 0.05 s
    c.all_gather({});
  });
  EXPECT_THAT(errors, Each(""));
}

// What a validation or a checkpoint takes counted as time of the step behind it, so that a rank that hangs was left alone for 20 of them.
TEST(SocketChannels, WhatLiesBetweenStepsIsNoTimeOfAStep) {
  auto channels = socket_channels(2, socket_peers(2), impatient(0.2));
  const auto errors = in_ranks(2, [&](int r) {
    ControlChannel& c = *channels[static_cast<size_t>(r)];
    c.now(Phase::step, 1);
    for (int64_t step = 1; step <= 5; ++step) {
      c.finished(step, 1, 1);
      c.now(Phase::evaluation, step);
      ::usleep(300'000);
      c.now(Phase::step, step);
    }
    for (int i = 0; r == 1 && i < 300 && !c.failure(); ++i) ::usleep(10'000);  // less than 20 times 300 ms
    c.all_gather({});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 1"), HasSubstr("does not come to the others"))));
}

// Stopped like by ctrl-Z or `docker pause`, with all ranks in it.
int stopped_and_continued() {
  auto channels = socket_channels(2, socket_peers(2), impatient(0.8));
  for (auto& c : channels) {
    c->now(Phase::step, 5);
    for (const int64_t step : {1, 2, 3, 4, 5}) c->finished(step, 1, 1);
  }
  ::usleep(100'000);  // their threads have begun to watch
  if (::fork() == 0) {
    ::usleep(1'500'000);
    ::kill(::getppid(), SIGCONT);
    ::_exit(0);
  }
  ::raise(SIGSTOP);
  ::usleep(100'000);
  for (auto& c : channels)
    if (const auto f = c->failure()) return std::fputs((f->what + "\n").c_str(), stderr), 1;
  return 0;
}

TEST(SocketChannels, AProcessThatWasStoppedHasNotStalled) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(stopped_and_continued()), ::testing::ExitedWithCode(0), "");
}

// Behind the last step, as while rank 0 evaluates: those that are done wait for it, and so still watch it.
TEST(SocketChannels, ARankThatIsStoppedWhileTheOthersLeaveIsFound) {
  for (const int stopped : {0, 2}) {
    ChannelOptions options;
    options.limits.silence_s = 0.3;
    options.beat_every_s = 0.02;
    auto peers = socket_peers(3);
    const auto of_stopped = std::exchange(peers[static_cast<size_t>(stopped)], {});  // open, and nobody reads or writes them
    auto channels = socket_channels(3, std::move(peers), options);
    auto leaving = std::async(std::launch::async, [&] {
      return in_ranks(3, [&](int r) {
        if (r != stopped) watched(channels, r).close();
      });
    });
    EXPECT_EQ(leaving.wait_for(std::chrono::seconds(5)), std::future_status::ready) << "they wait for ever";
    for (const auto& channel : channels)
      if (channel) channel->abort();
    const auto errors = leaving.get();
    for (int r = 0; r < 3; ++r) {
      if (r == stopped) continue;
      EXPECT_THAT(errors[static_cast<size_t>(r)], AllOf(HasSubstr("rank " + std::to_string(stopped)), HasSubstr("has not been heard for")));
    }
  }
}

TEST(SocketChannels, AllLeaveByCloseAndNobodyComplains) {
  auto channels = socket_channels(4, socket_peers(4));
  const auto errors = in_ranks(4, [&](int r) {
    watched(channels, r).close();
    channels[static_cast<size_t>(r)].reset();
  });
  EXPECT_THAT(errors, Each(""));
}

}  // namespace
}  // namespace gpt2::distributed
