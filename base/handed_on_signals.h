// Signals that one place of a program waits for, in a process with threads that somebody else started.
#pragma once
#include <signal.h>

#include <vector>

namespace stepscope {

// What asks a program to end: ctrl-C, a batch system, a closed terminal, ctrl-backslash.
inline constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
std::vector<int> ending_signals(std::vector<int> and_others = {});
// One that comes so soon after the first may be the same one: `timeout` signals a program and then its group, and so do a terminal that closes and
// its shell.
inline constexpr double kSameSignal_s = 1;

// Those of the signals that this process does not ignore, for a mask or a signalfd: one that is blocked comes although it is ignored.
// SIGCHLD, which nobody ignores to be left alone, always.
sigset_t heard_of(const std::vector<int>& signals);

// Blocks the signals in this thread and those started after it, so that sigwait or a signalfd gets them. A thread that was there before, as the
// CUDA driver's are, does not block them: the first signal would reach it and end the process. While this lives such a thread hands the signal
// on to the process, and blocks it from then on. Signals that the process ignores are left out. One object at a time.
class HandedOnSignals {
 public:
  explicit HandedOnSignals(const std::vector<int>& signals);
  ~HandedOnSignals();
  HandedOnSignals(const HandedOnSignals&) = delete;
  HandedOnSignals& operator=(const HandedOnSignals&) = delete;
  const sigset_t& set() const { return set_; }  // of the signals, for a signalfd

 private:
  struct Before {
    int signal;
    struct sigaction action;
  };
  sigset_t set_{}, mask_before_{};
  std::vector<Before> before_;
};

}  // namespace stepscope
