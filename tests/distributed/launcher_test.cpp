// The launcher as a whole, over programs that are no ranks.
#include "gpt2/distributed/launcher.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <tuple>

namespace gpt2::distributed {
namespace {

// What a thread of a driver's library does without meaning to: it takes the process's SIGCHLD.
class SignalThief {
 public:
  SignalThief() : thread_([this] { run(); }) {}
  ~SignalThief() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() const {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    ::pthread_sigmask(SIG_BLOCK, &child, nullptr);
    const timespec moment{0, 1'000'000};
    while (!stop_) (void)::sigtimedwait(&child, nullptr, &moment);
  }
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(Launcher, EndsWithItsRanksThoughAnotherThreadTakesItsSignals) {
  const SignalThief thief;
  for (int round = 0; round < 5; ++round) {
    auto code = std::async(std::launch::async, [] { return launch({"/bin/sh", "-c", "sleep 0.05"}, 2); });
    if (code.wait_for(std::chrono::seconds(10)) != std::future_status::ready) {
      ADD_FAILURE() << "its ranks have ended and it still waits";
      std::_Exit(1);  // the thread above would be waited for
    }
    EXPECT_EQ(code.get(), 0);
  }
}

// `train --gpus 2 | head -1`: "this machine cannot" was said of a pipe that was closed.
TEST(Launcher, EndsAsOneProcessDoesWhereNobodyReadsItsOutputAnyMore) {
  const std::string dies = "[ $STEPSCOPE_RANK = 0 ] && kill -PIPE $$; exit 0";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch({"/bin/sh", "-c", dies}, 2), 141);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// Whoever is left may be stopped, and then nothing but the launcher's patience ends it.
TEST(Launcher, EndsARankThatIsStoppedWhereEveryOtherWasKilledOrFailed) {
  for (const auto& [others, code, said] :
       {std::tuple("kill -KILL $$", 3, "was killed by signal 9 before its first step; rank 0 was stopped"),
        {"exit 2", 2, "ended with exit code 2 before its first step; rank 0 was stopped"}}) {
    const std::string script = std::string("[ $STEPSCOPE_RANK = 0 ] && kill -STOP $$; ") + others;
    ::testing::internal::CaptureStderr();
    auto ended = std::async(std::launch::async, [&] { return launch({"/bin/sh", "-c", script}, 2, 0.3); });
    if (ended.wait_for(std::chrono::seconds(10)) != std::future_status::ready) {
      ADD_FAILURE() << others << ": the launcher still waits for the rank that is stopped";
      std::_Exit(1);  // the thread above would be waited for
    }
    EXPECT_EQ(ended.get(), code) << others;
    const std::string line = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(line.find("rank 1 (pid "), std::string::npos) << line;
    EXPECT_NE(line.find(said), std::string::npos) << line;
  }
}

// Ctrl-C right after the start: rank 0 was "killed by signal 15", and the launcher waited 4 s for whoever looked for it.
TEST(Launcher, EndsAtOnceWhereItIsInterruptedBeforeItsRanksListen) {
  const auto begin = std::chrono::steady_clock::now();
  ::testing::internal::CaptureStderr();
  // Rank 1 has this process interrupted, and rank 0 is a program that does not listen.
  const std::string script = "[ $STEPSCOPE_RANK = 0 ] || kill -TERM $PPID; exec sleep 20";
  EXPECT_EQ(launch({"/bin/sh", "-c", script}, 2, 15), 130);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "stepscope: interrupted before the first step\n");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));  // of 15 that it would wait
}

TEST(Launcher, TellsAFailureOfTheLastToEnd) {
  EXPECT_EQ(launch({"/bin/sh", "-c", "sleep 0.0$STEPSCOPE_RANK; exit $((4 * STEPSCOPE_RANK))"}, 2), 4);
}

}  // namespace
}  // namespace gpt2::distributed
