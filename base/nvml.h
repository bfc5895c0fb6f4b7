// What NVML tells about one GPU: clocks, power, energy, heat, throttling, processes. The library is opened at run time, so that a program
// starts without a driver. Types and values are those of nvml.h (CUDA 13.0); its ABI is stable by the version suffixes of its functions.
// The injected collector uses this too: it needs nothing but the standard library and dlopen.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stepscope::nvml {

// One value, or the reason why this driver, GPU or user does not get it.
template <class T>
struct Reading {
  std::optional<T> value;
  std::string why_not;  // empty where there is a value
  explicit operator bool() const { return value.has_value(); }
  T value_or(T otherwise) const { return value.value_or(std::move(otherwise)); }
};

class Device {
 public:
  // The device with that PCI bus id as CUDA spells it; "" is NVML's device 0, which need not be CUDA's. Nothing, with the reason in
  // `why_not`, where there is no driver or no such device. `library` is what dlopen gets; tests name a library of their own.
  static std::optional<Device> open(std::string& why_not, const std::string& pci_bus_id = "", const char* library = "libnvidia-ml.so.1");

  Reading<std::string> driver_version() const;
  Reading<double> sm_clock_mhz() const;
  Reading<double> memory_clock_mhz() const;
  Reading<double> max_sm_clock_mhz() const;
  // Newer GPUs than GA100 answer with the mean of the last second (nvml.h), so this is no power of a step; `energy_mj` is.
  Reading<double> power_w() const;
  // The limit in force now: the lowest of what the user, the board and the machine ask for.
  Reading<double> power_limit_w() const;
  // mJ that this GPU has taken since the driver was loaded (Volta and newer); the difference of two readings is the energy between them.
  // The GPU renews the counter at a pace of its own: a difference over a fraction of a second is coarse.
  Reading<uint64_t> energy_mj() const;
  Reading<double> temperature_c() const;
  // Bits of nvmlClocksEventReasons; kThrottleReasons names them.
  Reading<uint64_t> throttle_reasons() const;
  Reading<bool> mig_enabled() const;
  // Processes with a compute context on this GPU, of this user or another.
  Reading<int> compute_processes() const;

 private:
  struct Library;
  Device(std::shared_ptr<const Library> library, void* handle) : library_(std::move(library)), handle_(handle) {}
  std::shared_ptr<const Library> library_;
  void* handle_;
};

struct ThrottleReason {
  uint64_t bit;
  const char* word;  // as documents have it
  const char* text;  // as a sentence has it
  bool slows;        // below what the GPU could do; idle clocks and clocks that a user has set are no throttling
};
inline constexpr uint64_t kPowerCap = 0x4;
inline constexpr ThrottleReason kThrottleReasons[] = {{0x1, "idle", "idle", false},
                                                      {0x2, "application_clocks", "application clock setting", false},
                                                      {kPowerCap, "power_cap", "software power cap", true},
                                                      {0x8, "hw_slowdown", "hardware slowdown", true},
                                                      {0x10, "sync_boost", "sync boost", true},
                                                      {0x20, "sw_thermal", "software thermal slowdown", true},
                                                      {0x40, "hw_thermal", "hardware thermal slowdown", true},
                                                      {0x80, "power_brake", "hardware power brake", true},
                                                      {0x100, "display_clocks", "display clock setting", false}};

// The bits of `reasons` that slow a measurement, all of them, and their words and texts in the order of the bits.
uint64_t slowdowns(uint64_t reasons);
std::vector<std::string> throttle_words(uint64_t reasons);
std::string throttle_text(uint64_t reasons);  // "software power cap, hardware slowdown"; "" when nothing slows

}  // namespace stepscope::nvml
