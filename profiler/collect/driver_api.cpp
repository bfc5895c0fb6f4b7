#include "profiler/collect/driver_api.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <fstream>
#include <utility>

#include "base/gpu_uuid.h"

namespace profiler::collect {
namespace {

template <class F>
bool load(void* library, const char* symbol, F& function) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  return function != nullptr;
}

std::string version_text(int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); }

}  // namespace

const DriverApi* driver_api() {
  static std::atomic<const DriverApi*> loaded = nullptr;
  if (const DriverApi* api = loaded) return api;
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return nullptr;
  auto* api = new DriverApi;  // kept for the life of the process, like the library
  if (!load(library, "cuCtxSynchronize", api->ctx_synchronize) || !load(library, "cuCtxGetCurrent", api->ctx_current) ||
      !load(library, "cuCtxPushCurrent_v2", api->ctx_push) || !load(library, "cuCtxPopCurrent_v2", api->ctx_pop) ||
      !load(library, "cuCtxGetDevice", api->ctx_device) || !load(library, "cuDeviceGet", api->device) ||
      !load(library, "cuDeviceGetName", api->device_name) || !load(library, "cuDeviceGetUuid_v2", api->device_uuid) ||
      !load(library, "cuDeviceGetAttribute", api->device_attribute) || !load(library, "cuDeviceTotalMem_v2", api->device_memory) ||
      !load(library, "cuDeviceGetPCIBusId", api->device_pci) || !load(library, "cuDriverGetVersion", api->driver_version)) {
    delete api;
    return nullptr;
  }
  const DriverApi* none = nullptr;
  if (!loaded.compare_exchange_strong(none, api)) delete api;
  return loaded;
}

std::map<std::string, std::string> describe_device(CUdevice device) {
  std::map<std::string, std::string> facts;
  const DriverApi* cu = driver_api();
  std::array<char, 256> name{};
  if (!cu || cu->device_name(name.data(), static_cast<int>(name.size()), device) != CUDA_SUCCESS) return facts;
  facts["name"] = name.data();
  CUuuid uuid{};
  if (cu->device_uuid(&uuid, device) == CUDA_SUCCESS) facts["uuid"] = stepscope::gpu_uuid(uuid.bytes);
  std::array<char, 32> pci{};
  if (cu->device_pci(pci.data(), static_cast<int>(pci.size()), device) == CUDA_SUCCESS) facts["pci_bus_id"] = pci.data();
  size_t bytes = 0;
  if (cu->device_memory(&bytes, device) == CUDA_SUCCESS) facts["memory_bytes"] = std::to_string(bytes);
  const auto attribute = [&](const char* key, CUdevice_attribute which) {
    int value = 0;
    if (cu->device_attribute(&value, which, device) == CUDA_SUCCESS) facts[key] = std::to_string(value);
  };
  attribute("sm_count", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  attribute("l2_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  attribute("max_threads_per_sm", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  attribute("max_blocks_per_sm", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  attribute("registers_per_sm", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  attribute("shared_bytes_per_sm", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  attribute("shared_reserved_bytes_per_block", CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  attribute("sm_clock_khz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  attribute("memory_clock_khz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  attribute("memory_bus_bits", CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  int major = 0, minor = 0;
  if (cu->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) == CUDA_SUCCESS &&
      cu->device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) == CUDA_SUCCESS)
    facts["compute_capability"] = std::to_string(major) + "." + std::to_string(minor);
  return facts;
}

std::map<std::string, std::string> describe_versions() {
  std::map<std::string, std::string> versions;
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build …": the first word
  // with two dots.
  std::ifstream module("/proc/driver/nvidia/version");
  for (std::string word; module >> word;) {
    const bool number = !word.empty() && word.find_first_not_of("0123456789.") == std::string::npos;
    if (!number || word.find('.') == std::string::npos) continue;
    versions["driver"] = word;
    break;
  }
  int v = 0;
  if (const DriverApi* cu = driver_api(); cu && cu->driver_version(&v) == CUDA_SUCCESS) versions["cuda_driver"] = version_text(v);
  using RuntimeVersion = int (*)(int*);
  if (const auto runtime = reinterpret_cast<RuntimeVersion>(dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion")); runtime && runtime(&v) == 0)
    versions["cuda_runtime"] = version_text(v);
  return versions;
}

}  // namespace profiler::collect
