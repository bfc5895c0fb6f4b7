#include "profiler/collect/environment_sampler.h"

#include <dlfcn.h>

#include <chrono>
#include <memory>

#include "profiler/collect/events.h"
#include "profiler/collect/missing_names.h"

namespace profiler::collect {
namespace {

// The few calls of NVML (nvml.h of the driver) that are used; its ABI is stable by its version suffixes.
struct Nvml {
  using Device = void*;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_by_bus_id)(const char*, Device*) = nullptr;
  int (*clock_mhz)(Device, int, unsigned*) = nullptr;
  int (*power_mw)(Device, unsigned*) = nullptr;
  int (*temperature_c)(Device, int, unsigned*) = nullptr;
  int (*throttle_reasons)(Device, unsigned long long*) = nullptr;
  static constexpr int kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0;
};

template <class F>
bool load(void* library, const char* symbol, F& function) {
  function = reinterpret_cast<F>(dlsym(library, symbol));
  return function != nullptr;
}

std::unique_ptr<Nvml> open_nvml(std::string& why) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    why = "libnvidia-ml.so.1 cannot be loaded";
    return nullptr;
  }
  auto nvml = std::make_unique<Nvml>();
  if (!load(library, "nvmlInit_v2", nvml->init) || !load(library, "nvmlShutdown", nvml->shutdown) ||
      !load(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml->device_by_bus_id) ||
      !load(library, "nvmlDeviceGetClockInfo", nvml->clock_mhz) || !load(library, "nvmlDeviceGetPowerUsage", nvml->power_mw) ||
      !load(library, "nvmlDeviceGetTemperature", nvml->temperature_c) ||
      !load(library, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml->throttle_reasons)) {
    why = "libnvidia-ml.so.1 lacks a function";
    return nullptr;
  }
  return nvml;
}

}  // namespace

void EnvironmentSampler::start(const std::string& pci_bus_id) {
  if (thread_.joinable()) return;
  if (pci_bus_id.empty()) {
    failed_({std::string(missing::kNoEnvironment), "no CUDA device when the first step began"});
    return;
  }
  thread_ = std::thread([this, pci_bus_id] { run(pci_bus_id); });
}

void EnvironmentSampler::run(std::string pci_bus_id) {
  std::string why;
  const auto nvml = open_nvml(why);
  Nvml::Device device = nullptr;
  if (nvml && nvml->init() != 0) why = "nvmlInit fails";
  if (nvml && why.empty() && nvml->device_by_bus_id(pci_bus_id.c_str(), &device) != 0) why = "NVML does not know device " + pci_bus_id;
  if (!why.empty()) {
    failed_({std::string(missing::kNoEnvironment), why});
    return;
  }
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    EnvironmentSample s;
    s.time_ns = now_ns();
    s.phase = phase_;
    unsigned sm = 0, memory = 0, milliwatt = 0, celsius = 0;
    unsigned long long reasons = 0;
    // A value that NVML refuses makes the whole sample worthless: 0 MHz would be a lie.
    if (nvml->clock_mhz(device, Nvml::kSmClock, &sm) == 0 && nvml->clock_mhz(device, Nvml::kMemoryClock, &memory) == 0 &&
        nvml->power_mw(device, &milliwatt) == 0 && nvml->temperature_c(device, Nvml::kGpuSensor, &celsius) == 0 &&
        nvml->throttle_reasons(device, &reasons) == 0) {
      s.sm_clock_mhz = sm;
      s.memory_clock_mhz = memory;
      s.power_w = milliwatt / 1e3;
      s.temperature_c = celsius;
      s.throttle_reasons = reasons;
      sample_(s);
    } else {
      why = "NVML refuses a clock, power, temperature or throttle reading";
    }
    lock.lock();
    if (!why.empty()) break;
    wake_.wait_for(lock, std::chrono::milliseconds(s.phase == Phase::timed ? 100 : 20), [this] { return stopping_; });
  }
  lock.unlock();
  if (!why.empty()) failed_({std::string(missing::kNoEnvironment), why});
  nvml->shutdown();
}

void EnvironmentSampler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace profiler::collect
