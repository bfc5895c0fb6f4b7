// What the ranks do together or not at all.
#pragma once
#include <functional>
#include <string>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

// What exit code an error means and what it says (base/errors.h); 1 for one that is none of ours.
Failure failure_of_current_exception(int rank);

// Runs `work` on this rank; returns once it has succeeded on all. Where it threw on any, throws RankFailure with the same text on every
// rank: the error itself where all ranks have it, else with the ranks that do. `work` makes no calls on `channel`. Without a channel it
// just runs.
void agree(ControlChannel* channel, const std::function<void()>& work);

// The text of rank 0, on every rank.
std::string from_rank_0(ControlChannel& channel, const std::string& mine);

}  // namespace gpt2::distributed
