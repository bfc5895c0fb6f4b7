// The GPU of this rank as the place of a sweep.
#pragma once
#include <memory>

#include "cli/collective_sweep.h"

namespace cli {

// Times collectives inside a CUDA graph, as a step has them, so that launching them is not what is measured. Throws
// stepscope::MachineError when the GPU has not so much memory.
std::unique_ptr<SweepDevice> make_cuda_sweep_device(int64_t bytes);

}  // namespace cli
