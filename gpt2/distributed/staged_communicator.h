// Collectives over host memory: what the CPU reference trains with, what tests of several ranks in one process use, and what a counted
// step of a GPU trainer exchanges its gradients by (no kernel of it waits for another rank).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

// `channel` outlives the communicator. `name`: what run.json says.
std::unique_ptr<Communicator> make_staged(ControlChannel& channel, std::string name = "staged");

// Ranks that are threads of one process: [r] is for the thread of rank r. They share memory that lives as long as any of them.
// abort() on one ends the waiting calls of all.
std::vector<std::unique_ptr<ControlChannel>> make_thread_channels(int ranks);

}  // namespace gpt2::distributed
