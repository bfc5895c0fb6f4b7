// ctrl-C for what should end in order: an experiment keeps what it measured, a training run saves a checkpoint.
#pragma once
#include <signal.h>

#include <atomic>
#include <iterator>

#include "base/handed_on_signals.h"

namespace cli {

inline constexpr int kInterrupted = 130;  // exit code, as a shell says of a program that ended by ctrl-C

// While one lives, ctrl-C and the other signals that ask for the end only set interrupted(); another one, kSameSignal_s or more later, ends the
// program. A signal that the process ignores, as SIGHUP under nohup, stays ignored. One object at a time.
class CatchInterrupt {
 public:
  CatchInterrupt();
  ~CatchInterrupt();
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

  static const std::atomic<bool>& interrupted();

 private:
  struct sigaction before_[std::size(stepscope::kEndingSignals)];
};

// For a command that has nothing to keep: while one lives, ctrl-C says so on stderr and ends the program by the signal, as it would alone.
class SayInterrupted {
 public:
  SayInterrupted();
  ~SayInterrupted();
  SayInterrupted(const SayInterrupted&) = delete;
  SayInterrupted& operator=(const SayInterrupted&) = delete;

 private:
  struct sigaction before_;
};

}  // namespace cli
