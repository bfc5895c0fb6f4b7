// What the current CUDA device is. Plain values, no CUDA types.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace gpt2::cuda {

struct DeviceInfo {
  std::string name;                // "NVIDIA H200"
  std::string uuid;                // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi prints it
  std::string compute_capability;  // "9.0"
  int compute_capability_major = 0, compute_capability_minor = 0;
  int64_t sm_count = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // the most one block can have after opting in
  int64_t memory_total_bytes = 0;
  int64_t memory_free_bytes = 0;  // now, for a new allocation
  int64_t driver_version = 0;     // CUDA version the driver supports, 1000 * major + 10 * minor
  int64_t runtime_version = 0;
};

// Creates the context of the current device if there is none. Throws stepscope::MachineError when there is no usable device.
DeviceInfo device_info();

// Why there is no usable CUDA device, or nothing when there is one. Does not create a context.
std::optional<std::string> why_no_device();

}  // namespace gpt2::cuda
