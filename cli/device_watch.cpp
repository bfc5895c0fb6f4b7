#include "cli/device_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nvml.h"
#include "profiler/collect/backend.h"

namespace cli {

using experiments::BlockEnvironment;
using experiments::Clock;

DeviceWatch::DeviceWatch(const GpuStatus& gpu, bool arms_use_gpu) {
  if (!arms_use_gpu || !gpu.present) {
    absent_ = !gpu.present ? "no GPU: " + gpu.why_not : "the arms do not use the GPU";
    return;
  }
  bus_id_ = gpu.pci_bus_id;
  const auto device = stepscope::nvml::Device::open(absent_, bus_id_);
  if (!device) return;
  driver_ = device->driver_version().value_or("");
  sampler_ = std::make_unique<profiler::collect::EnvironmentSampler>(
      [this](const profiler::EnvironmentSample& s) {
        const std::lock_guard lock(mutex_);
        const auto now = Clock::now();
        while (!samples_.empty() && samples_.front().at < block_begin_) samples_.pop_front();
        if (samples_.size() < 100000) samples_.push_back({now, s});
      },
      [this](const profiler::collect::Failure& failure) {
        const std::lock_guard lock(mutex_);
        absent_ = failure.detail;
      });
  sampler_->start(bus_id_);
}

DeviceWatch::~DeviceWatch() {
  if (sampler_) sampler_->stop();
}

std::optional<BlockEnvironment> DeviceWatch::since_begin() {
  const std::lock_guard lock(mutex_);
  BlockEnvironment e;
  const auto add = [&](const profiler::EnvironmentSample& s) {
    ++e.samples;
    e.sm_clock_mhz += s.sm_clock_mhz;
    e.power_w = std::max(e.power_w, s.power_w);
    e.temperature_c = std::max(e.temperature_c, s.temperature_c);
    e.throttle_reasons |= s.throttle_reasons;
  };
  for (const Sample& s : samples_)
    if (s.at >= block_begin_) add(s.values);
  if (e.samples == 0) return std::nullopt;
  e.sm_clock_mhz /= e.samples;
  return e;
}

void DeviceWatch::add_to(experiments::Hooks& hooks) {
  if (!sampler_) {
    hooks.environment_absent = absent_;
    return;
  }
  hooks.block_begins = [this](char) {
    const std::lock_guard lock(mutex_);
    block_begin_ = Clock::now();
  };
  hooks.block_ended = [this] { return since_begin(); };
  hooks.foreign_process = [this](int own) -> std::optional<std::string> {
    std::string why;
    const auto device = stepscope::nvml::Device::open(why, bus_id_);
    const int computing = device ? device->compute_processes().value_or(0) : 0;
    if (computing <= own) return std::nullopt;
    return fmt::format(
        "{} processes compute on the GPU and {} of them {} ours; the others disturb the measurement (`nvidia-smi` lists them)", computing,
        own, own == 1 ? "is" : "are");
  };
}

}  // namespace cli
