#include "profiler/collect/environment_sampler.h"

#include <chrono>

#include "base/nvml.h"
#include "profiler/collect/events.h"
#include "profiler/collect/missing_names.h"

namespace profiler::collect {
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
  const auto device = stepscope::nvml::Device::open(why, pci_bus_id);
  if (!device) {
    failed_({std::string(missing::kNoEnvironment), why});
    return;
  }
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    EnvironmentSample s;
    s.time_ns = now_ns();
    s.phase = phase_;
    // A value that NVML refuses makes the whole sample worthless: 0 MHz would be a lie.
    const auto take = [&why](auto& value, const auto& reading) {
      if (reading)
        value = *reading.value;
      else
        why = reading.why_not;
    };
    take(s.sm_clock_mhz, device->sm_clock_mhz());
    take(s.memory_clock_mhz, device->memory_clock_mhz());
    take(s.power_w, device->power_w());
    take(s.temperature_c, device->temperature_c());
    take(s.throttle_reasons, device->throttle_reasons());
    if (why.empty()) sample_(s);
    lock.lock();
    if (!why.empty()) break;
    wake_.wait_for(lock, std::chrono::milliseconds(s.phase == Phase::timed ? 100 : 20), [this] { return stopping_; });
  }
  lock.unlock();
  if (!why.empty()) failed_({std::string(missing::kNoEnvironment), why});
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
