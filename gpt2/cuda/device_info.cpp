// Reads the properties of the current device through the runtime.
#include "gpt2/cuda/device_info.h"

#include <fmt/format.h>

#include "base/gpu_uuid.h"
#include "gpt2/cuda/check.h"

namespace gpt2::cuda {

std::optional<std::string> why_no_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return fmt::format("{} ({})", cudaGetErrorName(error), cudaGetErrorString(error));
  }
  if (count == 0) return "no CUDA device is visible";
#ifdef STEPSCOPE_COMPILE_ONLY
  return "this program was built on a machine without a GPU, where kernels are compiled quickly and run slowly; STEPSCOPE_CUDA=ON "
         "./stepscope … builds one to run";
#endif
  return std::nullopt;
}

DeviceInfo device_info() {
  int device = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  cudaDeviceProp properties{};
  STEPSCOPE_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  STEPSCOPE_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  int driver = 0;
  int runtime = 0;
  STEPSCOPE_CUDA_CHECK(cudaDriverGetVersion(&driver));
  STEPSCOPE_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));

  DeviceInfo info;
  info.name = properties.name;
  info.uuid = stepscope::gpu_uuid(properties.uuid.bytes);
  info.compute_capability = fmt::format("{}.{}", properties.major, properties.minor);
  info.compute_capability_major = properties.major, info.compute_capability_minor = properties.minor;
  info.sm_count = properties.multiProcessorCount;
  info.l2_bytes = properties.l2CacheSize;
  info.shared_bytes_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  info.memory_total_bytes = static_cast<int64_t>(total_bytes);
  info.memory_free_bytes = static_cast<int64_t>(free_bytes);
  info.driver_version = driver;
  info.runtime_version = runtime;
  return info;
}

}  // namespace gpt2::cuda
