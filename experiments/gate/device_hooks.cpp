#include "experiments/gate/device_hooks.h"

#include <cuda_runtime.h>

#include "experiments/gate/red_zones.h"
#include "gpt2/cuda/check.h"

namespace gate {
namespace {

int64_t persisting_l2_bytes() {
  size_t bytes = 0;
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetLimit(&bytes, cudaLimitPersistingL2CacheSize));
  return static_cast<int64_t>(bytes);
}

}  // namespace

DeviceHooks cuda_device_hooks() {
  const int64_t before = persisting_l2_bytes();
  return {.wait_idle = [] { STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize()); },
          // Takes the error away: left where it is, the next launch check of the trainer would end the run
          // before the report is made. "Not ready" is the answer of a query, no error.
          .launch_error =
              [] {
                const cudaError_t error = cudaGetLastError();
                return error == cudaSuccess || error == cudaErrorNotReady ? std::string() : std::string(cudaGetErrorString(error));
              },
          .persisting_l2_bytes = [before] { return persisting_l2_bytes() - before; },
          .watch_memory = watch_memory,
          .bytes_beyond_memory = bytes_beyond_memory};
}

}  // namespace gate
