#include "cli/catch_interrupt.h"

#include <unistd.h>

#include <cstdint>
#include <ctime>

namespace cli {
namespace {

using stepscope::kEndingSignals;

std::atomic<bool> was_interrupted{false};
std::atomic<int64_t> interrupted_at_ns{0};

void on_interrupt(int number) {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  const int64_t now = int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  if (!was_interrupted.exchange(true)) {
    interrupted_at_ns = now;
  } else if (static_cast<double>(now - interrupted_at_ns) > stepscope::kSameSignal_s * 1e9) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

void say_and_end(int number) {
  constexpr char kText[] = "\nstepscope: interrupted before the answer was there\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

SayInterrupted::SayInterrupted() {
  struct sigaction action = {};
  action.sa_handler = say_and_end;
  sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler != SIG_IGN) sigaction(SIGINT, &action, nullptr);
}

SayInterrupted::~SayInterrupted() { sigaction(SIGINT, &before_, nullptr); }

CatchInterrupt::CatchInterrupt() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kEndingSignals); ++i) {
    sigaction(kEndingSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kEndingSignals[i], &action, nullptr);
  }
}

CatchInterrupt::~CatchInterrupt() {
  for (size_t i = 0; i < std::size(kEndingSignals); ++i) sigaction(kEndingSignals[i], &before_[i], nullptr);
}

const std::atomic<bool>& CatchInterrupt::interrupted() { return was_interrupted; }

}  // namespace cli
