// Clocks, power, heat and strangers on the GPU while an experiment runs. Uses NVML only: this process must
// never hold a CUDA context, or it would itself be the foreign process it looks for.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "cli/gpu.h"
#include "experiments/runner/pair_runner.h"
#include "profiler/collect/environment_sampler.h"

namespace cli {

class DeviceWatch {
 public:
  // `gpu` as gpu_status() found it; without one, or when the arms do not use it, everything is absent with a
  // reason.
  DeviceWatch(const GpuStatus& gpu, bool arms_use_gpu);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Fills the parts of `hooks` that concern the device. They refer to this object.
  void add_to(experiments::Hooks& hooks);
  std::string driver() const { return driver_; }
  // Why nothing is sampled, or no longer; "" while it is.
  std::string absent() {
    const std::lock_guard lock(mutex_);
    return absent_;
  }

 private:
  std::optional<experiments::BlockEnvironment> since_begin();

  std::string absent_, bus_id_, driver_;
  std::mutex mutex_;
  struct Sample {
    experiments::Clock::time_point at;
    profiler::EnvironmentSample values;
  };
  std::deque<Sample> samples_;  // of the last block
  experiments::Clock::time_point block_begin_;
  std::unique_ptr<profiler::collect::EnvironmentSampler> sampler_;
};

}  // namespace cli
