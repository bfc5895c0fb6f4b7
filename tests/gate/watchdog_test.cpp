#include "experiments/gate/watchdog.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

namespace gate {
namespace {

using namespace std::chrono_literals;

TEST(Watchdog, SaysWhatDoesNotEndAndSaysItOnce) {
  std::atomic<int> said = 0;
  std::string what;
  {
    Watchdog dog({[&](const std::string& w) {
                    what = w;
                    ++said;
                  },
                  100ms});
    const Watchdog::Watched watched(&dog, "a kernel");
    for (int i = 0; i < 200 && said == 0; ++i) std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(150ms);
  }
  EXPECT_EQ(said, 1);
  EXPECT_EQ(what, "a kernel");
}

// Each call has the whole time, however many there are, and nothing is done between them.
TEST(Watchdog, IsSilentAboutManyCallsThatEndAndAboutNone) {
  std::atomic<int> said = 0;
  Watchdog dog({[&](const std::string&) { ++said; }, 1000ms});
  for (int i = 0; i < 70; ++i) {
    const Watchdog::Watched watched(&dog, "a short call");
    std::this_thread::sleep_for(20ms);
  }
  std::this_thread::sleep_for(1300ms);
  EXPECT_EQ(said, 0);
  const Watchdog::Watched nobody(nullptr, "nothing");
}

// The answer is the exit code; an exception in the watchdog's thread would be an abort.
TEST(Watchdog, AHangIsRefusedAlsoWhereStderrTakesNothing) {
  const auto hang = [] {
    if (dup2(open("/dev/full", O_WRONLY), STDERR_FILENO) < 0) return;
    end_of_a_hang("a kernel");
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace gate
