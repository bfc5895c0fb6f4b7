#include "experiments/gate/device_hooks.h"

#include <cuda_runtime.h>

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
          // Peek leaves the error where it is: the next check of the trainer itself must still meet it.
          .launch_error =
              [] {
                const cudaError_t error = cudaPeekAtLastError();
                return error == cudaSuccess ? std::string() : std::string(cudaGetErrorString(error));
              },
          .persisting_l2_bytes = [before] { return persisting_l2_bytes() - before; }};
}

}  // namespace gate
