// What the commands ask about the GPU, without a CUDA header, so that a build without CUDA answers too ("no GPU: built without CUDA").
#pragma once
#include <cstdint>
#include <string>

namespace cli {

struct GpuStatus {
  bool present = false;
  int count = 0;        // visible devices
  std::string why_not;  // when not present: the cause and the cure
  std::string name, uuid;
  std::string pci_bus_id;  // as NVML knows it; "" when CUDA does not say
  int compute_major = 0, compute_minor = 0, multiprocessors = 0;
  int64_t memory_bytes = 0;
};
// Counts devices and reads properties of device 0; creates no context.
GpuStatus gpu_status();

}  // namespace cli
