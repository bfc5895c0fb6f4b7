// Ranks of one host whose GPUs reach each other's memory: collectives as copies by copy engines (peer_actions.h), which leave the
// multiprocessors to the products beside them, but for the sums and for one small block that waits for the others.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

// Why ranks that lie like this cannot use it, as a sentence; nullopt where they can as far as the world tells.
std::optional<std::string> why_no_peer(const World& world);

struct PeerOptions {
  bool shares = true;  // ranks write gathered weights where they belong, not into a window
};

// Connects this rank to the others, each with a GPU of its own, which becomes the current device of the calling thread. All ranks call.
// Throws stepscope::InputError for ranks on several hosts or too many of them, and RankFailure, the same on all, where a GPU does not reach
// another one's memory. `channel` outlives what is returned.
std::unique_ptr<Communicator> make_peer(const World& world, ControlChannel& channel, const PeerOptions& options = {});

}  // namespace gpt2::distributed
