#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/gpu_uuid.h"
#include "cli/gpu.h"
#include "gpt2/cuda/device_info.h"

namespace cli {

GpuStatus gpu_status() {
  GpuStatus s;
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found != cudaSuccess || count == 0) {
    s.why_not = found == cudaErrorInsufficientDriver
                    ? "no NVIDIA driver, or one older than the CUDA runtime of this build: install or update the driver"
                    : fmt::format("no CUDA device ({}): check `nvidia-smi` and CUDA_VISIBLE_DEVICES",
                                  found == cudaSuccess ? "none visible" : cudaGetErrorString(found));
    return s;
  }
  if (const auto why = gpt2::cuda::why_no_device()) {  // a device that this program has no kernels to run on
    s.why_not = *why;
    return s;
  }
  cudaDeviceProp p{};
  if (const cudaError_t e = cudaGetDeviceProperties(&p, 0); e != cudaSuccess) {
    s.why_not = fmt::format("the properties of device 0 cannot be read: {}", cudaGetErrorString(e));
    return s;
  }
  s.present = true;
  s.count = count;
  s.name = p.name;
  s.compute_major = p.major;
  s.compute_minor = p.minor;
  s.multiprocessors = p.multiProcessorCount;
  s.memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  char bus_id[32] = {};
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0) == cudaSuccess) s.pci_bus_id = bus_id;
  s.uuid = stepscope::gpu_uuid(p.uuid.bytes);
  return s;
}

}  // namespace cli
