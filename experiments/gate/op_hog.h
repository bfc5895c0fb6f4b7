// Other work on the device while an op runs: blocks that hold threads and shared memory for a random time, so
// that the op's blocks start late, in another order and beside slower neighbours. What depends on which
// thread is first has more ways to go wrong.
#pragma once
#include <cstdint>

#include "gpt2/cuda/device_buffer.h"

namespace gate {

class Hog {
 public:
  Hog();
  // Queues up to a few milliseconds of it on a stream of its own.
  void start(uint64_t seed);
  // Ends it behind what `stream` holds so far: nobody then waits for the rest.
  void end_behind(const gpt2::cuda::Stream& stream);

 private:
  gpt2::cuda::Stream stream_;
  gpt2::cuda::DeviceBuffer<int32_t> ended_{1};  // the number of the last one that was ended
  int32_t number_ = 0;
};

}  // namespace gate
