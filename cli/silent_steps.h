// Steps in which the ranks exchange nothing, so that each can be counted as if it were alone: a kernel that is counted runs by itself, and a
// collective waits for one of another rank that has not been launched. Everything else of such a step is that of a step of several ranks, with
// the same kernels on the same memory. Its gradients, its loss and its norm are worth nothing, and where the update is not divided the weights
// of the ranks part: for a profile, which looks at times, not for training.
#pragma once
#include <cstdint>
#include <memory>

#include "gpt2/distributed/communicator.h"

namespace cli {

class SilentSteps {
 public:
  // Steps [from, from + count). Both outlive this.
  SilentSteps(gpt2::distributed::Communicator& communicator, gpt2::distributed::ControlChannel& channel, int64_t from, int64_t count);
  ~SilentSteps();
  // To be used in the place of those: the channel hears which step begins, and the communicator drops its collectives.
  gpt2::distributed::Communicator& communicator();
  gpt2::distributed::ControlChannel& channel();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cli
