// Clocks, power, temperature and throttle reasons while steps run, by NVML from a thread of its own: every 20
// ms, and every 100 ms in the timed phase, so that the sampling itself cannot be seen in the step times. Until a
// phase other than warm-up and timed begins also the jumps of the energy counter (energy_watch.h). NVML is opened at run time; without it there
// are no samples and a reason.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/nvml.h"
#include "profiler/collect/backend.h"
#include "profiler/records/records.h"

namespace profiler::collect {

class EnvironmentSampler {
 public:
  // `sample`, `energy` and `failed` are called on the sampling thread. `pci_bus_id` as CUDA spells it, because NVML
  // numbers devices differently.
  EnvironmentSampler(std::function<void(const EnvironmentSample&)> sample, std::function<void(const EnergySample&)> energy,
                     std::function<void(const Failure&)> failed)
      : sample_(std::move(sample)), energy_(std::move(energy)), failed_(std::move(failed)) {}
  ~EnvironmentSampler() { stop(); }
  void start(const std::string& pci_bus_id);
  void set_phase(Phase phase) { phase_ = phase; }
  void stop();

 private:
  void run(std::string pci_bus_id);
  std::string sample_once(const stepscope::nvml::Device& device, Phase phase);  // why not, or ""
  std::function<void(const EnvironmentSample&)> sample_;
  std::function<void(const EnergySample&)> energy_;
  std::function<void(const Failure&)> failed_;
  std::atomic<Phase> phase_ = Phase::warmup;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace profiler::collect
