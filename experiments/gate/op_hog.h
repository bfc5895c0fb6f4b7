// Other work on the device while an op runs, of three kinds in turns, so that the op's blocks start late, in another order and beside slower
// neighbours, and its warps drift apart. What depends on which thread is first has more ways to go wrong.
//   blocks   hold threads and shared memory for a random time
//   shared   reads of shared memory by every fourth warp of large blocks: what a warp of the op loads comes up to 35 times later, and not for all
//            its warps equally much. It shows barriers that are missing between tiles in shared memory
//   memory   scattered reads of device memory: copies that took less time than the work beside them take more. It shows copies that are not
//            waited for
// docs/correctness-gate.md, "Races", has the seeded races that each kind has shown, and what was measured of kinds that showed none.
#pragma once
#include <cstdint>

#include "gpt2/cuda/device_buffer.h"

namespace gate {

class Hog {
 public:
  // Throws as a DeviceBuffer does: it takes 128 MiB.
  Hog();
  // Queues up to a few milliseconds of it on a stream of its own. `seed` decides how much and for how long.
  void start(uint64_t seed);
  // Ends it behind what `stream` holds so far: nobody then waits for the rest.
  void end_behind(const gpt2::cuda::Stream& stream);

 private:
  gpt2::cuda::Stream stream_;
  gpt2::cuda::DeviceBuffer<float> far_;         // read, in no order
  gpt2::cuda::DeviceBuffer<int32_t> ended_{1};  // the number of the last one that was ended
  int32_t number_ = 0;
  int multiprocessors_ = 0;
};

}  // namespace gate
