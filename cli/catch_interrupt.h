// ctrl-C for what should end in order: an experiment keeps what it measured, a training run saves a checkpoint.
#pragma once
#include <signal.h>

#include <atomic>
#include <iterator>

namespace cli {

inline constexpr int kInterrupted = 130;  // exit code, as a shell says of a program that ended by ctrl-C

// While one lives, ctrl-C (SIGTERM, SIGHUP, SIGQUIT too: a closed terminal) only sets interrupted(); another one, a second or more later,
// ends the program. Sooner it may be the same one: `timeout` signals a program and then its group. A signal that the process ignores, as
// SIGHUP under nohup, stays ignored. One object at a time.
class CatchInterrupt {
 public:
  CatchInterrupt();
  ~CatchInterrupt();
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

  static const std::atomic<bool>& interrupted();

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  struct sigaction before_[std::size(kSignals)];
};

}  // namespace cli
