// A communicator whose every collective lies in a range that tells a profiler its kind, type, size and bucket (base/collective_words.h).
#pragma once
#include <memory>
#include <string>

#include "gpt2/distributed/communicator.h"

namespace cli {

class CollectiveListener {
 public:
  virtual ~CollectiveListener() = default;
  virtual void begin_collective(const std::string& range) = 0;
  virtual void end_collective() = 0;
};
// Into NVTX ranges. Inside a CUDA graph the range is heard when the collective is captured. Only in programs with GPU trainers.
CollectiveListener& nvtx_collectives();

// `listener` must live as long as anything is enqueued.
std::unique_ptr<gpt2::distributed::Communicator> announced(std::unique_ptr<gpt2::distributed::Communicator> communicator,
                                                           CollectiveListener& listener);

}  // namespace cli
