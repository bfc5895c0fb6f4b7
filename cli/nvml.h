// The few NVML questions `doctor` asks, through dlopen, so that the program starts on a machine without a driver. Types and values are
// those of nvml.h (CUDA 13.0).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cli {

struct NvmlReading {
  std::string driver_version;
  double sm_clock_mhz = 0, max_sm_clock_mhz = 0, memory_clock_mhz = 0, power_w = 0, power_limit_w = 0, temperature_c = 0;
  uint64_t throttle_reasons = 0;
  bool mig_enabled = false;
  int compute_processes = 0;
};

// Of the device with that PCI bus id ("" = NVML's device 0, which need not be CUDA's), or the reason why not in `why_not`.
std::optional<NvmlReading> read_nvml(std::string& why_not, const std::string& pci_bus_id = "");

// "power cap, thermal slowdown"; "" when only idle or nothing. Bits of nvmlClocksEventReasons.
std::string throttle_text(uint64_t reasons);
bool slows_a_measurement(uint64_t reasons);

}  // namespace cli
