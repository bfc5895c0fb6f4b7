#include "cli/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace cli {
namespace {

using Device = struct NvmlDeviceOpaque*;
constexpr int kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;

struct Library {
  void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  ~Library() {
    if (handle) dlclose(handle);
  }
  template <class F>
  F* find(const char* symbol) const {
    return handle ? reinterpret_cast<F*>(dlsym(handle, symbol)) : nullptr;
  }
};

struct Reason {
  uint64_t bit;
  const char* text;
  bool slows;
};
// nvml.h, nvmlClocksEventReason*
constexpr std::array<Reason, 9> kReasons{{{0x1, "idle", false},
                                          {0x2, "application clock setting", false},
                                          {0x4, "software power cap", true},
                                          {0x8, "hardware slowdown", true},
                                          {0x10, "sync boost", true},
                                          {0x20, "software thermal slowdown", true},
                                          {0x40, "hardware thermal slowdown", true},
                                          {0x80, "hardware power brake", true},
                                          {0x100, "display clock setting", false}}};

}  // namespace

std::optional<NvmlReading> read_nvml(std::string& why_not, const std::string& pci_bus_id) {
  const Library lib;
  auto* init = lib.find<int()>("nvmlInit_v2");
  auto* shutdown = lib.find<int()>("nvmlShutdown");
  auto* get_device = lib.find<int(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2");
  if (!init || !shutdown || !get_device) {
    why_not = "libnvidia-ml.so.1 cannot be loaded: the NVIDIA driver is not installed";
    return std::nullopt;
  }
  if (const int e = init(); e != 0) {
    why_not = fmt::format("nvmlInit failed with {}", e);
    return std::nullopt;
  }
  NvmlReading r;
  Device device = nullptr;
  auto* by_bus_id = lib.find<int(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2");
  const int e = !pci_bus_id.empty() && by_bus_id ? by_bus_id(pci_bus_id.c_str(), &device) : get_device(0, &device);
  if (e == 0) {
    char text[96] = {};
    if (auto* f = lib.find<int(char*, unsigned)>("nvmlSystemGetDriverVersion"); f && f(text, sizeof text) == 0) r.driver_version = text;
    unsigned u = 0;
    auto* clock = lib.find<int(Device, int, unsigned*)>("nvmlDeviceGetClockInfo");
    if (clock && clock(device, kClockSm, &u) == 0) r.sm_clock_mhz = u;
    if (clock && clock(device, kClockMemory, &u) == 0) r.memory_clock_mhz = u;
    if (auto* f = lib.find<int(Device, int, unsigned*)>("nvmlDeviceGetMaxClockInfo"); f && f(device, kClockSm, &u) == 0)
      r.max_sm_clock_mhz = u;
    if (auto* f = lib.find<int(Device, unsigned*)>("nvmlDeviceGetPowerUsage"); f && f(device, &u) == 0) r.power_w = u * 1e-3;
    if (auto* f = lib.find<int(Device, unsigned*)>("nvmlDeviceGetEnforcedPowerLimit"); f && f(device, &u) == 0) r.power_limit_w = u * 1e-3;
    if (auto* f = lib.find<int(Device, int, unsigned*)>("nvmlDeviceGetTemperature"); f && f(device, kTemperatureGpu, &u) == 0)
      r.temperature_c = u;
    unsigned long long bits = 0;
    if (auto* f = lib.find<int(Device, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons"); f && f(device, &bits) == 0)
      r.throttle_reasons = bits;
    unsigned current = 0, pending = 0;
    if (auto* f = lib.find<int(Device, unsigned*, unsigned*)>("nvmlDeviceGetMigMode"); f && f(device, &current, &pending) == 0)
      r.mig_enabled = current == 1;
    unsigned count = 0;
    // With room for 0 entries it answers 7 (insufficient size) and the count.
    if (auto* f = lib.find<int(Device, unsigned*, void*)>("nvmlDeviceGetComputeRunningProcesses_v3")) {
      const int answer = f(device, &count, nullptr);
      if (answer == 0 || answer == 7) r.compute_processes = static_cast<int>(count);
    }
  } else {
    why_not = fmt::format("NVML sees no device {} (error {})", pci_bus_id.empty() ? "0" : pci_bus_id, e);
  }
  shutdown();
  if (e != 0) return std::nullopt;
  return r;
}

std::string throttle_text(uint64_t reasons) {
  std::string out;
  for (const Reason& r : kReasons)
    if (r.slows && (reasons & r.bit)) out += (out.empty() ? "" : ", ") + std::string(r.text);
  return out;
}

bool slows_a_measurement(uint64_t reasons) { return !throttle_text(reasons).empty(); }

}  // namespace cli
