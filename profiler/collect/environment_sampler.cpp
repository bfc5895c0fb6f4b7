#include "profiler/collect/environment_sampler.h"

#include <algorithm>
#include <chrono>

#include "base/nvml.h"
#include "profiler/collect/energy_watch.h"
#include "profiler/collect/events.h"
#include "profiler/collect/missing_names.h"

namespace profiler::collect {

void EnvironmentSampler::start(const std::string& pci_bus_id) {
  if (thread_.joinable()) return;
  if (pci_bus_id.empty()) {
    failed_({std::string(missing::kNoEnvironment), "the program initialized no CUDA device in its steps"});
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
  EnergyWatch energy;
  bool read_energy = true;
  int64_t next_sample_ns = 0;
  const auto watch_energy = [&] {
    const auto reading = device->energy_mj();
    if (reading) {
      if (const auto jump = energy.read(now_ns(), *reading.value)) energy_(*jump);
    } else {
      read_energy = false;
      failed_({std::string(missing::kNoEnergy), reading.why_not});
    }
  };
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const Phase phase = phase_;
    const bool watching = energy.watches(phase);
    if (watching && read_energy && now_ns() >= energy.next_ns()) watch_energy();
    if (now_ns() >= next_sample_ns) {
      next_sample_ns = now_ns() + (phase == Phase::timed ? 100'000'000 : 20'000'000);
      why = sample_once(*device, phase);
    }
    lock.lock();
    if (!why.empty()) break;
    const int64_t next_ns = watching && read_energy ? std::min(next_sample_ns, energy.next_ns()) : next_sample_ns;
    wake_.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(0, next_ns - now_ns())), [this] { return stopping_; });
  }
  lock.unlock();
  if (!why.empty()) failed_({std::string(missing::kNoEnvironment), why});
}

std::string EnvironmentSampler::sample_once(const stepscope::nvml::Device& device, Phase phase) {
  std::string why;
  EnvironmentSample s;
  s.time_ns = now_ns();
  s.phase = phase;
  // A value that NVML refuses makes the whole sample worthless: 0 MHz would be a lie.
  const auto take = [&why](auto& value, const auto& reading) {
    if (reading)
      value = *reading.value;
    else
      why = reading.why_not;
  };
  take(s.sm_clock_mhz, device.sm_clock_mhz());
  take(s.memory_clock_mhz, device.memory_clock_mhz());
  take(s.power_w, device.power_w());
  take(s.temperature_c, device.temperature_c());
  take(s.throttle_reasons, device.throttle_reasons());
  if (why.empty()) sample_(s);
  return why;
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
