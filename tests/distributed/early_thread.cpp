// Preloaded into a program: a thread that is there before main and blocks no signal, as the threads that a GPU's driver starts.
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace {

const bool kStarted = [] {
  ::unsetenv("LD_PRELOAD");  // the programs that it starts have none
  std::thread([] {
    for (;;) ::pause();
  }).detach();
  return true;
}();

}  // namespace
