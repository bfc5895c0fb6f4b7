// Which operations of a step are communication between ranks.
//
// The range says so: everything launched under the pass `communication`. A program without ranges of ours (PyTorch) is recognized by the
// names of NCCL's kernels, the one place where attribution looks at a name. Copies of another program stay work: a name does not tell a copy
// to a neighbour from a copy within the device.
#pragma once
#include <string_view>

#include "profiler/records/records.h"

namespace profiler {

bool is_communication(const LaunchRecord& operation);
// Whether it was launched by a communicator, inside a range of base/collective_words.h: steps without exchange do not have it. Kernels of the
// same pass that the trainer launches around a collective, such as casts, it does not mean.
bool is_inside_collective(const LaunchRecord& operation);
// "ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)", "ncclSymkDevKernel_…", and what older versions called them.
bool is_nccl_kernel(std::string_view name);
// The kernel in which a rank waits for the others before and after copies between GPUs (gpt2/distributed/peer_kernels.cu).
bool is_meet_kernel(std::string_view name);

}  // namespace profiler
