#include "base/handed_on_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace {

using stepscope::HandedOnSignals;

// Threads that run and block nothing until the end of the test, as a library's. (A thread that is being started blocks everything.)
class StrangeThreads {
 public:
  explicit StrangeThreads(int count) {
    const std::shared_future<void> end = end_.get_future().share();
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, end] {
        ++running_;
        end.wait();
      });
    while (running_ < count) std::this_thread::yield();
  }
  ~StrangeThreads() {
    end_.set_value();
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::promise<void> end_;
  std::atomic<int> running_{0};
  std::vector<std::thread> threads_;
};

// The signal that this thread waits for, or 0 after five seconds. One that a thread takes from under the wait interrupts it.
int heard(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  const timespec patience{5, 0};
  int got = 0;
  do got = sigtimedwait(&set, nullptr, &patience);
  while (got < 0 && errno == EINTR);
  return got > 0 ? got : 0;
}

TEST(HandedOnSignals, AThreadThatWasThereBeforeDoesNotTakeThem) {
  const StrangeThreads threads(3);
  const HandedOnSignals signals(std::vector{SIGUSR1, SIGTERM});  // SIGINT is ignored in a shell's background
  for (int again = 0; again < 20; ++again)
    for (const int s : {SIGUSR1, SIGTERM}) {
      ASSERT_EQ(kill(getpid(), s), 0);
      EXPECT_EQ(heard(s), s) << again;
    }
}

// Of this process, but for the first.
int threads_that_block(int signal) {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(getpid())) continue;
    std::ifstream in(task.path() / "status");
    for (std::string word; in >> word;)
      if (word == "SigBlk:" && in >> word) count += static_cast<int>(std::stoull(word, nullptr, 16) >> (signal - 1) & 1);
  }
  return count;
}

// Else it would take what it hands on again and again, until by chance the thread that waits takes it.
TEST(HandedOnSignals, AThreadThatHandedOneOnBlocksItFromThenOn) {
  const StrangeThreads threads(1);
  const HandedOnSignals signals(std::vector{SIGUSR1});
  ASSERT_EQ(threads_that_block(SIGUSR1), 0);
  ASSERT_EQ(kill(getpid(), SIGUSR1), 0);  // this thread blocks it and does not wait yet, so the other takes it
  for (int i = 0; i < 5000 && threads_that_block(SIGUSR1) == 0; ++i) usleep(1000);  // in its handler, or for good
  EXPECT_EQ(heard(SIGUSR1), SIGUSR1);
  usleep(20000);  // it has returned from its handler
  EXPECT_EQ(threads_that_block(SIGUSR1), 1);
}

TEST(HandedOnSignals, AfterwardsEverythingIsAsItWasBefore) {
  struct sigaction before {
  }, after{};
  sigset_t mask_before, mask_after;
  sigaction(SIGTERM, nullptr, &before);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);
  { const HandedOnSignals signals(std::vector{SIGTERM}); }
  sigaction(SIGTERM, nullptr, &after);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  EXPECT_EQ(sigismember(&mask_before, SIGTERM), 0);
  EXPECT_EQ(sigismember(&mask_after, SIGTERM), 0);
}

TEST(HandedOnSignals, WhatTheProcessIgnoresStaysIgnored) {
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  signal(SIGINT, SIG_IGN);
  {
    const StrangeThreads threads(1);
    const HandedOnSignals signals(std::vector{SIGINT});
    struct sigaction now {};
    sigaction(SIGINT, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_IGN);
    EXPECT_EQ(sigismember(&signals.set(), SIGINT), 0);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_EQ(sigismember(&mask, SIGINT), 0);  // blocked it would come, through a signalfd
  }
  sigaction(SIGINT, &before, nullptr);
}

}  // namespace
