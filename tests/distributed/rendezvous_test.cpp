// Ranks that meet over real sockets. Nothing waits for a time to pass: what a test needs to have happened, it hears from rank 0.
#include "gpt2/distributed/rendezvous.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "base/errors.h"
#include "gpt2/distributed/sockets.h"
#include "tests/distributed/ranks_in_threads.h"
#include "tests/temporary_folder.h"

namespace gpt2::distributed {
namespace {
using gpt2::testing::in_ranks;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

World world_of(int rank, int size) {
  World w;
  w.rank = rank;
  w.size = size;
  return w;
}
// A name of this test and process alone.
std::string fresh_address() {
  static std::atomic<int> serial{0};
  return "unix:@stepscope-test-" + std::to_string(::getpid()) + "-" + std::to_string(serial++);
}
// What rank 0 said, and a wait until it has said it.
class Said {
 public:
  MeetOptions options(double deadline_s = 60, double say_every_s = 60) {
    MeetOptions o;
    o.deadline_s = deadline_s;
    o.say_every_s = say_every_s;
    o.say = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      all_ += text + "\n";
      changed_.notify_all();
    };
    return o;
  }
  void wait_for(const std::string& part) {
    std::unique_lock lock(mutex_);
    const auto come = [&] { return all_.find(part) != std::string::npos; };
    if (!changed_.wait_for(lock, std::chrono::seconds(30), come)) throw std::runtime_error("rank 0 never said: " + part);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string all_;
};
MeetOptions quiet(double deadline_s = 60) {
  MeetOptions o;
  o.deadline_s = deadline_s;
  return o;
}

void expect_connected(int ranks, const std::function<std::string(int)>& address_of) {
  const auto errors = in_ranks(ranks, [&](int r) {
    std::vector<Peer> peers = meet(world_of(r, ranks), address_of(r), "token", quiet());
    ASSERT_EQ(peers.size(), r == 0 ? static_cast<size_t>(ranks) : 1u);
    int heard = -1;
    if (r != 0) {
      ASSERT_TRUE(send_all(peers[0].data.get(), &r, sizeof r));
      ASSERT_TRUE(receive_all(peers[0].control.get(), &heard, sizeof heard));
      EXPECT_EQ(heard, 100 + r);
      return;
    }
    for (int other = 1; other < ranks; ++other) {
      Peer& p = peers[static_cast<size_t>(other)];
      ASSERT_TRUE(receive_all(p.data.get(), &heard, sizeof heard));
      EXPECT_EQ(heard, other);
      EXPECT_EQ(p.pid, ::getpid());
      const int answer = 100 + other;
      ASSERT_TRUE(send_all(p.control.get(), &answer, sizeof answer));
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Rendezvous, ConnectsEachRankWithRankZero) {
  for (const int ranks : {1, 2, 3, 8, 16}) {
    const std::string address = fresh_address();
    expect_connected(ranks, [&](int) { return address; });
  }
}
TEST(Rendezvous, OverAFileThatIsGoneAfterwardsAlsoWhereADeadRunLeftOne) {
  const auto folder = fresh_test_folder();
  const std::string address = "unix:" + (folder / "socket").string();
  { const Descriptor dead = listen_at(address); }
  ASSERT_TRUE(std::filesystem::exists(folder / "socket"));
  // The others may find the dead socket first: they try again until rank 0 listens.
  expect_connected(3, [&](int) { return address; });
  EXPECT_FALSE(std::filesystem::exists(folder / "socket"));
  std::filesystem::remove_all(folder);
}
TEST(Rendezvous, AFileIsGoneAlsoWhereTheRanksDoNotMeet) {
  const auto folder = fresh_test_folder();
  const std::string address = "unix:" + (folder / "socket").string();
  const auto errors = in_ranks(1, [&](int) { meet(world_of(0, 2), address, "token", quiet(0.05)); });
  EXPECT_EQ(errors[0], "rank 1 did not come within 0.05 s (have 1 of 2)");
  EXPECT_FALSE(std::filesystem::exists(folder / "socket"));
  // Who is refused because another run listens there leaves that run's file alone.
  const Descriptor other = listen_at(address);
  EXPECT_THAT(in_ranks(1, [&](int) { meet(world_of(0, 2), address, "token", quiet()); })[0], HasSubstr("in use"));
  EXPECT_TRUE(std::filesystem::exists(folder / "socket"));
  std::filesystem::remove_all(folder);
}
TEST(Rendezvous, OverTcpAndOverASocketThatAlreadyListens) {
  // A port that the kernel chose: listen_at() cannot be told "any".
  const Descriptor listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(listener);
  ASSERT_EQ(::listen(listener.get(), 16), 0);
  std::array<uint16_t, 14> name{};
  socklen_t size = sizeof name;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(name.data()), &size), 0);
  const uint16_t port = static_cast<uint16_t>(name[1] >> 8 | name[1] << 8);
  const std::string tcp = "tcp:localhost:" + std::to_string(port), own = "fd:" + std::to_string(::dup(listener.get()));
  expect_connected(3, [&](int r) { return r == 0 ? own : tcp; });
}

TEST(Rendezvous, ALateRankIsWaitedForAndNamed) {
  const std::string address = fresh_address();
  Said said;
  const auto errors = in_ranks(4, [&](int r) {
    if (r == 3) said.wait_for("waiting for rank 3 (have 3 of 4; last came rank ");
    meet(world_of(r, 4), address, "token", r == 0 ? said.options(60, 0.02) : quiet());
  });
  EXPECT_THAT(errors, Each(""));
}
TEST(Rendezvous, MissingRanksAreNamedOnEveryRankThatCame) {
  const std::string address = fresh_address();
  const auto errors = in_ranks(2, [&](int i) {
    const int r = i * 2;  // 0 and 2 of 6 come
    meet(world_of(r, 6), address, "token", quiet(r == 0 ? 0.3 : 60));
  });
  EXPECT_THAT(errors, Each(HasSubstr("ranks 1, 3-5 did not come within 0.3 s (have 2 of 6)")));
}
// A rank's own time may end before rank 0's, which began later or is longer: the one that is missing is named, and not rank 0, and one that
// comes in rank 0's time is met. `early` waits for so long by itself, once rank 0 listens.
TEST(Rendezvous, RankZerosTimeEndsTheWaitOfARankWhoseOwnIsOver) {
  constexpr double kEarly_s = 0.2;
  const auto early = [&](const std::string& address, Said& said) {
    said.wait_for("waiting for ranks 1, 2");
    meet(world_of(2, 3), address, "token", quiet(kEarly_s));
  };
  Said alone, later;
  const std::string first = fresh_address(), second = fresh_address();
  const auto missing = in_ranks(2, [&](int i) {
    if (i == 1) return early(first, alone);
    meet(world_of(0, 3), first, "token", alone.options(0.6, 0.02));
  });
  EXPECT_THAT(missing, Each(HasSubstr("rank 1 did not come within 0.6 s (have 2 of 3)")));
  const auto met = in_ranks(3, [&](int r) {
    if (r == 2) return early(second, later);
    if (r == 1) {
      later.wait_for("have 2 of 3");
      std::this_thread::sleep_for(std::chrono::duration<double>(2 * kEarly_s));
    }
    meet(world_of(r, 3), second, "token", r == 0 ? later.options(5, 0.02) : quiet(5));
  });
  EXPECT_THAT(met, Each(""));
}
TEST(Rendezvous, WithoutRankZeroItSaysWhere) {
  const std::string address = fresh_address();
  const auto errors = in_ranks(1, [&](int) { meet(world_of(1, 2), address, "token", quiet(0.1)); });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1: rank 0 was not reached at " + address), HasSubstr("Connection refused")));
}

// It "was not reached within 120 s", a moment after it was.
TEST(Rendezvous, ARankZeroThatEndsWhileTheOthersGatherWasReached) {
  const std::string address = fresh_address();
  const pid_t zero = ::fork();
  if (zero == 0) {
    MeetOptions o = quiet();
    o.say_every_s = 0.02;
    o.say = [](const std::string& text) {
      if (text.find("have 2 of 3") != std::string::npos) ::_exit(0);
    };
    meet(world_of(0, 3), address, "token", o);
    ::_exit(1);
  }
  const auto errors = in_ranks(1, [&](int) { meet(world_of(1, 3), address, "token", quiet()); });
  ::waitpid(zero, nullptr, 0);
  EXPECT_EQ(errors[0], "rank 1: rank 0 was reached at " + address + ", but did not gather all ranks: it closed the connection");
}

// One rank that is refused beside a run that goes on: rank 0 and rank 1 meet all the same.
void expect_refused(const std::string& token, uint32_t protocol, const std::string& why) {
  const std::string address = fresh_address();
  Said said;
  std::string refusal;
  const auto errors = in_ranks(3, [&](int r) {
    if (r == 2) {
      MeetOptions o = quiet();
      o.protocol = protocol;
      try {
        meet(world_of(1, 2), address, token, o);
      } catch (const stepscope::InputError& e) {
        refusal = e.what();
      }
      return;
    }
    if (r == 1) said.wait_for("refused: ");
    meet(world_of(r, 2), address, "token", r == 0 ? said.options() : quiet());
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(refusal, HasSubstr(why));
  said.wait_for(why);
}
// A wrong name in a job script would else keep every rank but the first for the whole limit.
TEST(Rendezvous, AHostThatNobodyKnowsIsRefusedLongBeforeTheLimit) {
  MeetOptions o;
  o.deadline_s = 3600;
  o.unknown_host_s = 0;
  const std::string address = "tcp:no host:29500";  // no name, so no server of names is asked
  try {
    meet(world_of(1, 2), address, "token", o);
    FAIL() << "the rank went on";
  } catch (const stepscope::InputError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("rank 1"), HasSubstr(address), HasSubstr("not known")));
  }
}

TEST(Rendezvous, RefusesTheTokenOfAnotherRunOnBothSides) { expect_refused("other", kProtocol, "shows the token of another run"); }
TEST(Rendezvous, RefusesAnotherProtocolOnBothSides) { expect_refused("token", 99, "speaks protocol 99, rank 0 protocol 1"); }

TEST(Rendezvous, TwoProcessesOfOneRankEndTheRunWithBothNamed) {
  const std::string address = fresh_address();
  // The second claim is refused whichever thread comes second; the one that was first hears it too, as the run cannot begin.
  const auto errors = in_ranks(3, [&](int i) { meet(world_of(i == 0 ? 0 : 1, 3), address, "token", quiet()); });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("two processes say that they are rank 1"), HasSubstr("pid " + std::to_string(::getpid()))));
  EXPECT_THAT(errors[1] + errors[2], HasSubstr("two processes say that they are rank 1"));
}
TEST(Rendezvous, AnotherNumberOfRanksEndsTheRun) {
  const std::string address = fresh_address();
  const auto errors = in_ranks(2, [&](int r) { meet(world_of(r, r == 0 ? 2 : 3), address, "token", quiet()); });
  EXPECT_THAT(errors, Each(HasSubstr("was told that there are 3 ranks, rank 0 that there are 2")));
}

TEST(Rendezvous, WhoeverSpeaksGarbageOrNothingIsNoRank) {
  const std::string address = fresh_address();
  Said said;
  const auto errors = in_ranks(3, [&](int r) {
    if (r == 2) {
      NotReached not_reached;
      Descriptor silent, garbage;
      while (!(silent = connect_to(address, not_reached))) ::usleep(1000);  // until rank 0 listens
      garbage = connect_to(address, not_reached);
      ASSERT_TRUE(garbage) << not_reached.why;
      ASSERT_TRUE(send_all(garbage.get(), "GET / HTTP/1.1\r\n", 16));
      said.wait_for("no rank of a run; ignored");
      // The silent connection stays open until the others have met, and holds nobody up.
      char byte;
      EXPECT_FALSE(receive_all(silent.get(), &byte, 1));
      return;
    }
    if (r == 1) said.wait_for("no rank of a run; ignored");
    meet(world_of(r, 2), address, "token", r == 0 ? said.options() : quiet());
  });
  EXPECT_THAT(errors, Each(""));
}
TEST(Rendezvous, AnAddressInUseIsRefused) {
  const std::string address = fresh_address();
  const Descriptor other = listen_at(address);
  const auto errors = in_ranks(1, [&](int) { meet(world_of(0, 2), address, "token", quiet()); });
  EXPECT_THAT(errors[0], AllOf(HasSubstr(address), HasSubstr("in use")));
}
// It was removed like the socket of a run that is gone: at both a connection is refused.
TEST(Rendezvous, AFileThatIsNoSocketIsRefusedAndStays) {
  const auto folder = fresh_test_folder();
  std::ofstream(folder / "notes.txt") << "mine";
  std::filesystem::create_symlink("notes.txt", folder / "link");
  for (const char* name : {"notes.txt", "link"}) {
    const std::string address = "unix:" + (folder / name).string();
    EXPECT_THAT(in_ranks(1, [&](int) { meet(world_of(0, 2), address, "token", quiet(0.05)); })[0],
                AllOf(HasSubstr(address), HasSubstr("is no socket; expected another name")));
    EXPECT_EQ(std::filesystem::file_size(folder / name), 4u);
  }
  std::filesystem::remove_all(folder);
}
TEST(Rendezvous, AFileThatCannotBeMadeIsRefusedWithItsOwnReason) {
  const auto folder = fresh_test_folder();
  const auto errors = in_ranks(1, [&](int) { meet(world_of(0, 2), "unix:" + (folder / "none" / "socket").string(), "token", quiet()); });
  EXPECT_THAT(errors[0], HasSubstr("rank 0 cannot listen there: No such file or directory"));
  std::filesystem::remove_all(folder);
}

// A port of this machine that the kernel chose; somebody else may take it before the test does.
Descriptor listen_anywhere(std::string& port) {
  for (int tries = 0;; ++tries) {
    Descriptor chosen(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    std::array<uint16_t, 14> name{};
    socklen_t size = sizeof name;
    if (::listen(chosen.get(), 1) != 0 || ::getsockname(chosen.get(), reinterpret_cast<sockaddr*>(name.data()), &size) != 0)
      return Descriptor();
    port = std::to_string(static_cast<uint16_t>(name[1] >> 8 | name[1] << 8));
    chosen.close();
    try {
      return listen_at("tcp:localhost:" + port);
    } catch (const stepscope::InputError&) {
      if (tries == 20) throw;
    }
  }
}

// Over both protocols, and again at once: what a run leaves to the kernel for a minute must not keep the next one from its port.
TEST(Rendezvous, APortIsHeardOverBothProtocolsAndFreeAgainWhenTheRunEnds) {
  std::string port;
  NotReached not_reached;
  Descriptor listener = listen_anywhere(port);
  ASSERT_TRUE(listener);
  for (const char* host : {"127.0.0.1", "[::1]"}) {
    Descriptor there = connect_to("tcp:" + std::string(host) + ":" + port, not_reached);
    if (!there && not_reached.why.find("Cannot assign requested address") != std::string::npos)
      continue;  // a machine without that protocol
    ASSERT_TRUE(there) << host << ": " << not_reached.why;
    Descriptor here(::accept(listener.get(), nullptr, nullptr));
    ASSERT_TRUE(here);
    here.close();  // who closes first keeps the port busy
    char byte;
    EXPECT_FALSE(receive_all(there.get(), &byte, 1));
  }
  listener.close();
  EXPECT_TRUE(listen_at("tcp:localhost:" + port));
}

// As on a kernel that was started with ipv6.disable=1: addresses of IPv6 are found, and no socket for them can be made.
bool make_no_sockets_of(uint32_t family) {
  std::array<sock_filter, 6> filter{
      {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
       BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, family, 0, 1),
       BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
  const sock_fprog program{filter.size(), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
TEST(Rendezvous, APortIsHeardWhereTheKernelHasNoIpv6) {
  std::string port;
  listen_anywhere(port).close();
  enum End { heard, not_heard, no_filter };
  const pid_t child = ::fork();
  if (child == 0) {
    if (!make_no_sockets_of(AF_INET6)) ::_exit(no_filter);
    try {
      const Descriptor listener = listen_at("tcp:localhost:" + port);
      NotReached not_reached;
      ::_exit(connect_to("tcp:127.0.0.1:" + port, not_reached) ? heard : not_heard);
    } catch (const stepscope::InputError&) {
      ::_exit(not_heard);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == no_filter) GTEST_SKIP() << "this machine lets no process filter its own calls";
  EXPECT_EQ(WEXITSTATUS(status), heard);
}

// What `works` says in a process of its own, while this one does something else.
std::string in_another_process(
    const std::function<std::string()>& works, const std::function<void()>& meanwhile = [] {}) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "no pipe";
  const Descriptor out(ends[0]);
  Descriptor in(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = works();
    (void)!::write(in.get(), text.data(), text.size());
    ::_exit(0);
  }
  in.close();
  meanwhile();
  std::string text;
  std::array<char, 512> bytes;
  for (ssize_t n = 0; (n = ::read(out.get(), bytes.data(), bytes.size())) > 0;) text.append(bytes.data(), static_cast<size_t>(n));
  ::waitpid(child, nullptr, 0);
  return text;
}
// So many more than are open.
bool may_open(int more, bool may_ask) {
  const Descriptor next(::dup(STDERR_FILENO));
  rlimit files{};
  if (!next || ::getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
  files.rlim_cur = static_cast<rlim_t>(next.get() + more);
  if (!may_ask) files.rlim_max = files.rlim_cur;
  return ::setrlimit(RLIMIT_NOFILE, &files) == 0;
}
TEST(Rendezvous, RankZeroAsksForTheFilesThatManyRanksTake) {
  const std::string errors = in_another_process([] {
    if (!may_open(20, true)) return std::string("no limit");
    const std::string address = fresh_address();
    std::string text;
    for (const std::string& e : in_ranks(16, [&](int r) { meet(world_of(r, 16), address, "token", quiet(5)); })) text += e;
    return text;
  });
  EXPECT_EQ(errors, "");
}
// Ranks that it could not let in were named as those that had not come.
TEST(Rendezvous, RankZeroSaysThatItMayOpenNoMoreFiles) {
  const std::string address = fresh_address();
  const auto rank_0 = [&] {
    if (!may_open(6, false)) return std::string("no limit");
    return in_ranks(1, [&](int) { meet(world_of(0, 12), address, "token", quiet(3)); })[0];
  };
  std::vector<Descriptor> callers;
  const auto call = [&] {
    NotReached not_reached;
    for (int left = 3000; left > 0 && callers.size() < 12; --left) {
      if (Descriptor fd = connect_to(address, not_reached))
        callers.push_back(std::move(fd));
      else if (!callers.empty())
        return;  // it has ended
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  EXPECT_EQ(in_another_process(rank_0, call),
            "rank 0 cannot take another connection (have 1 of 12): Too many open files; it opens two files for each rank (`ulimit -n`)");
}

TEST(Rendezvous, AnAddressThatIsNoneIsRefused) {
  for (const char* address :
       {"here", "tcp:host", "tcp::99", "tcp:host:0", "tcp:host:70000", "tcp:host:9x", "unix:", "unix:@", "http://host:9"}) {
    for (const int rank : {0, 1}) {
      const auto errors = in_ranks(1, [&](int) { meet(world_of(rank, 2), address, "token", quiet(0.01)); });
      EXPECT_THAT(errors[0], HasSubstr("expected unix:@NAME, unix:PATH or tcp:HOST:PORT")) << address;
    }
  }
}

}  // namespace
}  // namespace gpt2::distributed
