#include "base/handed_on_signals.h"

#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

namespace stepscope {
namespace {

// Of a thread that does not block the signal. What it blocks when this returns is in its context.
void hand_on(int signal, siginfo_t*, void* context) {
  const int saved = errno;
  ::sigaddset(&static_cast<ucontext_t*>(context)->uc_sigmask, signal);
  ::kill(::getpid(), signal);
  errno = saved;
}

}  // namespace

std::vector<int> ending_signals(std::vector<int> and_others) {
  and_others.insert(and_others.end(), std::begin(kEndingSignals), std::end(kEndingSignals));
  return and_others;
}

sigset_t heard_of(const std::vector<int>& signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : signals) {
    struct sigaction now {};
    ::sigaction(s, nullptr, &now);
    if (now.sa_handler != SIG_IGN || s == SIGCHLD) ::sigaddset(&set, s);
  }
  return set;
}

HandedOnSignals::HandedOnSignals(const std::vector<int>& signals) : set_(heard_of(signals)) {
  ::pthread_sigmask(SIG_BLOCK, &set_, &mask_before_);
  for (const int s : signals) {
    Before before{s, {}};
    ::sigaction(s, nullptr, &before.action);
    if (before.action.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_sigaction = hand_on;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(s, &action, nullptr);
    before_.push_back(before);
  }
}

HandedOnSignals::~HandedOnSignals() {
  for (const Before& b : before_) ::sigaction(b.signal, &b.action, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

}  // namespace stepscope
