// What this build and this machine have of NCCL. Nothing here names its header, which is needed only where it is compiled in.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

// The library is opened at the first question: the file of STEPSCOPE_NCCL_LIBRARY, else libnccl.so.2 of the loader path, else that of an
// installed PyTorch. NCCL_NVLS_ENABLE=0 is set before, because NCCL reads it once: multicast over NVLink stays off.
// Why there is no NCCL, as a sentence with its cure; nullopt where there is.
std::optional<std::string> why_no_nccl();
std::string nccl_version();  // "2.28.9"; "" without it

struct NcclOptions {
  int most_ctas = 0;  // thread blocks of a collective, each of which takes a multiprocessor; 0: what NCCL chooses
};

// Connects this rank to the others of its world, each with a GPU of its own, which becomes the current device of the calling thread.
// `channel` outlives the communicator. Throws stepscope::MachineError for a missing library, and when ranks share a GPU or cannot connect.
std::unique_ptr<Communicator> make_nccl(const World& world, ControlChannel& channel, const NcclOptions& options);
// With STEPSCOPE_NCCL_CTAS as most_ctas, where it is set.
std::unique_ptr<Communicator> make_nccl(const World& world, ControlChannel& channel);

}  // namespace gpt2::distributed
