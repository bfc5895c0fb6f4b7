#include "gpt2/distributed/rank_device.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_info.h"

namespace gpt2::distributed {

void use_device_of(const World& world) {
  int visible = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDeviceCount(&visible));
  if (visible != 1 && world.local_rank >= visible)
    throw stepscope::MachineError(fmt::format(
        "rank {} is number {} of this host and needs a GPU of its own, but {} are visible: start at most {} ranks here, or show "
        "more GPUs (CUDA_VISIBLE_DEVICES)",
        world.rank, world.local_rank + 1, visible, visible));
  STEPSCOPE_CUDA_CHECK(cudaSetDevice(visible == 1 ? 0 : world.local_rank));
}

void require_own_devices(ControlChannel& channel) {
  const std::string uuid = cuda::device_info().uuid;
  const std::vector<Bytes> all = channel.all_gather(Bytes(uuid.begin(), uuid.end()));
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = a + 1; b < all.size(); ++b)
      if (all[a] == all[b])
        throw stepscope::MachineError(fmt::format("ranks {} and {} have the same GPU, {}: each rank needs one of its own", a, b,
                                                  std::string(all[a].begin(), all[a].end())));
}

}  // namespace gpt2::distributed
