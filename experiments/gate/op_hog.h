// Other work on the device while an op runs: blocks that hold threads and shared memory for a random time, so
// that the op's blocks start late, in another order and beside slower neighbours. What depends on which
// thread is first has more ways to go wrong.
#pragma once
#include <cstdint>

#include "gpt2/cuda/device_buffer.h"

namespace gate {

class Hog {
 public:
  // Queues up to a few milliseconds of it on a stream of its own.
  void start(uint64_t seed);

 private:
  gpt2::cuda::Stream stream_;
};

}  // namespace gate
