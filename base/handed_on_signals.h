// Signals that one place of a program waits for, in a process with threads that somebody else started.
#pragma once
#include <signal.h>

#include <initializer_list>
#include <vector>

namespace stepscope {

// Those of the signals that this process does not ignore, for a mask or a signalfd: one that is blocked comes although it is ignored.
// SIGCHLD, which nobody ignores to be left alone, always.
sigset_t heard_of(std::initializer_list<int> signals);

// Blocks the signals in this thread and those started after it, so that sigwait or a signalfd gets them. A thread that was there before, as the
// CUDA driver's are, does not block them: the first signal would reach it and end the process. While this lives such a thread hands the signal
// on to the process, and blocks it from then on. Signals that the process ignores are left out. One object at a time.
class HandedOnSignals {
 public:
  explicit HandedOnSignals(std::initializer_list<int> signals);
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
