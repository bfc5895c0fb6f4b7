// A communicator whose every collective lies in an NVTX range that tells a profiler its kind, type, size and bucket
// (base/collective_words.h). Inside a CUDA graph the range is heard when the collective is captured.
#pragma once
#include <memory>

#include "gpt2/distributed/communicator.h"

namespace cli {

std::unique_ptr<gpt2::distributed::Communicator> announced(std::unique_ptr<gpt2::distributed::Communicator> communicator);

}  // namespace cli
