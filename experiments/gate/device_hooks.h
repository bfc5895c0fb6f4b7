// The CUDA device of this process past any trainer, for step_audit.h.
#pragma once
#include "experiments/gate/step_audit.h"

namespace gate {

// Make them before the trainer: what it sets aside of L2 is counted from here. Creates the context of the
// current device. Throws stepscope::MachineError when there is none.
DeviceHooks cuda_device_hooks();

}  // namespace gate
