// The few calls of the CUDA driver that the collector makes, looked up in the libcuda that the program has
// loaded. Not linked, so that the library can also be loaded (for NVTX alone) where there is no driver.
#pragma once
#include <cuda.h>

#include <map>
#include <string>

namespace profiler::collect {

struct DriverApi {
  decltype(&::cuCtxSynchronize) ctx_synchronize = nullptr;
  decltype(&::cuCtxGetCurrent) ctx_current = nullptr;
  decltype(&::cuCtxPushCurrent_v2) ctx_push = nullptr;
  decltype(&::cuCtxPopCurrent_v2) ctx_pop = nullptr;
  decltype(&::cuCtxGetDevice) ctx_device = nullptr;
  decltype(&::cuDeviceGet) device = nullptr;
  decltype(&::cuDeviceGetName) device_name = nullptr;
  decltype(&::cuDeviceGetUuid_v2) device_uuid = nullptr;
  decltype(&::cuDeviceGetAttribute) device_attribute = nullptr;
  decltype(&::cuDeviceTotalMem_v2) device_memory = nullptr;
  decltype(&::cuDeviceGetPCIBusId) device_pci = nullptr;
  decltype(&::cuDriverGetVersion) driver_version = nullptr;
};

// nullptr while the process has no libcuda.so.1 loaded.
const DriverApi* driver_api();

// name, uuid, pci_bus_id, compute_capability, sm_count, l2_bytes, memory_bytes, and what occupancy and peaks
// are computed from: max_threads_per_sm, max_blocks_per_sm, registers_per_sm, shared_bytes_per_sm,
// shared_reserved_bytes_per_block, sm_clock_khz, memory_clock_khz, memory_bus_bits. Empty when CUDA is not
// initialized.
std::map<std::string, std::string> describe_device(CUdevice device);
// driver (of the kernel module), cuda_driver, and cuda_runtime where the program's runtime is a shared
// library.
std::map<std::string, std::string> describe_versions();

}  // namespace profiler::collect
