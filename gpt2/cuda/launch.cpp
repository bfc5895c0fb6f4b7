// Host helpers of the launchers.
#include "gpt2/cuda/launch.cuh"

#include <fmt/format.h>

#include "base/errors.h"

namespace gpt2::cuda {

unsigned grid_blocks(int64_t blocks) {
  if (blocks < 1 || blocks > 2147483647)
    throw stepscope::InputError(
        fmt::format("a kernel would need {} blocks, a grid holds 1 to 2147483647: lower --batch-size "
                    "or --seq-len",
                    blocks));
  return static_cast<unsigned>(blocks);
}

}  // namespace gpt2::cuda
