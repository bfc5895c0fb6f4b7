// The GPU of a rank.
#pragma once
#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

// Makes this rank's GPU the current device of the calling thread: the local_rank-th visible one, or the only visible one. Throws
// stepscope::MachineError when fewer are visible.
void use_device_of(const World& world);

// Throws stepscope::MachineError that names both ranks when two ranks have the same GPU. All ranks call.
void require_own_devices(ControlChannel& channel);

}  // namespace gpt2::distributed
