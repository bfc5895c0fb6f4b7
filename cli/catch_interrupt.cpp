#include "cli/catch_interrupt.h"

#include <unistd.h>

#include <cstdint>
#include <ctime>

namespace cli {
namespace {

using stepscope::kEndingSignals;

std::atomic<bool> was_interrupted{false};
std::atomic<int64_t> interrupted_at_ns{0};

void end_by(int number) {
  signal(number, SIG_DFL);
  raise(number);
}

void on_interrupt(int number) {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  const int64_t now = int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  if (!was_interrupted.exchange(true)) {
    interrupted_at_ns = now;
  } else if (static_cast<double>(now - interrupted_at_ns) > stepscope::kSameSignal_s * 1e9) {
    end_by(number);
  }
}

void say_and_end(int number) {
  constexpr char kText[] = "\nstepscope: interrupted before the answer was there\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
  end_by(number);
}

// A signal that the process ignores, as SIGHUP under nohup, stays ignored. Returns what was there.
struct sigaction handle_unless_ignored(int number, void (*handler)(int), int flags) {
  struct sigaction before = {}, action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(number, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  return before;
}

}  // namespace

SayInterrupted::SayInterrupted() : before_(handle_unless_ignored(SIGINT, say_and_end, 0)) {}

SayInterrupted::~SayInterrupted() { sigaction(SIGINT, &before_, nullptr); }

CatchInterrupt::CatchInterrupt() {
  for (size_t i = 0; i < std::size(kEndingSignals); ++i) before_[i] = handle_unless_ignored(kEndingSignals[i], on_interrupt, SA_RESTART);
}

CatchInterrupt::~CatchInterrupt() {
  for (size_t i = 0; i < std::size(kEndingSignals); ++i) sigaction(kEndingSignals[i], &before_[i], nullptr);
}

const std::atomic<bool>& CatchInterrupt::interrupted() { return was_interrupted; }

}  // namespace cli
