#include "experiments/session/device_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/statistics.h"

namespace experiments {
namespace {

// Short blocks need a sample of their own; over seconds one in ten of them is enough, and the sampling itself cannot be seen.
constexpr auto kSampleInTurns = std::chrono::milliseconds(20), kSampleAlone = std::chrono::milliseconds(100);
constexpr auto kEnergyPoll = std::chrono::milliseconds(5);
constexpr double kSlowestCounter_s = 0.3;

}  // namespace

void EnergyCounter::add(double at_s, double joules) {
  if (changes_.empty() || changes_.back().joules != joules) changes_.push_back({at_s, joules});
}

std::optional<double> EnergyCounter::at(double s) const {
  const auto around = stepscope::between(changes_.begin(), changes_.end(), s, [](const Change& c) { return c.at_s; });
  if (!around) return std::nullopt;
  const Change &x = *around->before, &y = *around->after;
  if (y.at_s - x.at_s > kSlowestCounter_s) return std::nullopt;
  return x.joules + around->share * (y.joules - x.joules);
}

std::optional<double> EnergyCounter::between(double from_s, double to_s, std::string& absent) const {
  const auto first = at(from_s), last = at(to_s);
  if (first && last) return *last - *first;
  absent = changes_.size() < 2 ? "the energy counter does not move"
                               : fmt::format("the energy counter did not move within {} s around the counted steps", kSlowestCounter_s);
  return std::nullopt;
}

void EnergyCounter::forget_before(double at_s) {
  while (changes_.size() > 2 && changes_[1].at_s < at_s) changes_.pop_front();
}

void DeviceHistory::add(const Sample& sample) {
  samples_.push_back(sample);
  while (!samples_.empty() && samples_.front().at_s < began_s_) samples_.pop_front();
  energy_.forget_before(began_s_);
}

std::optional<BlockEnvironment> DeviceHistory::since_begin() const {
  BlockEnvironment e;
  for (auto s = samples_.rbegin(); s != samples_.rend() && s->at_s >= began_s_; ++s) {
    ++e.samples;
    e.sm_clock_mhz += s->sm_clock_mhz;
    e.power_w = std::max(e.power_w, s->power_w);
    e.temperature_c = std::max(e.temperature_c, s->temperature_c);
    e.throttle_reasons |= s->throttle_reasons;
  }
  if (e.samples == 0) return std::nullopt;
  e.sm_clock_mhz /= e.samples;
  return e;
}

DeviceWindow DeviceHistory::between(double from_s, double to_s) const {
  DeviceWindow w;
  double clocks = 0, power = 0;
  // Asked for every tenth of a second of a process that may have run for an hour, while no sample can be taken.
  auto s = std::lower_bound(samples_.begin(), samples_.end(), from_s, [](const Sample& x, double at_s) { return x.at_s < at_s; });
  for (; s != samples_.end() && s->at_s < to_s; ++s) {
    ++w.samples;
    clocks += s->sm_clock_mhz;
    power += s->power_w;
    w.temperature_c = std::max(w.temperature_c.value_or(0), s->temperature_c);
    w.throttle_reasons |= s->throttle_reasons;
  }
  if (w.samples > 0) {
    w.sm_clock_mhz = clocks / w.samples;
    w.sampled_power_w = w.power_w = power / w.samples;
  } else {
    w.absent = "no sample fell into it";
  }
  w.joules = energy_.between(from_s, to_s, w.energy_absent);
  return w;
}

DeviceWatch::DeviceWatch(const Gpu& gpu, bool arms_use_gpu, const char* library) {
  if (!arms_use_gpu || !gpu.present) {
    absent_ = !gpu.present ? "no GPU: " + gpu.why_not : "the arms do not use the GPU";
    return;
  }
  bus_id_ = gpu.pci_bus_id;
  device_ = stepscope::nvml::Device::open(absent_, bus_id_, library);
  if (!device_) return;
  driver_ = device_->driver_version().value_or("");
  limits_ = {device_->max_sm_clock_mhz().value, device_->power_limit_w().value};
  if (const auto energy = device_->energy_mj(); !energy) energy_absent_ = energy.why_not;
  if (take_sample()) thread_ = std::thread([this] { watch(); });
}

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string DeviceWatch::absent() {
  const std::lock_guard lock(mutex_);
  return absent_;
}

// False where NVML refuses a reading: 0 MHz would be a lie.
bool DeviceWatch::take_sample() {
  const auto clock = device_->sm_clock_mhz(), power = device_->power_w(), temperature = device_->temperature_c();
  const auto reasons = device_->throttle_reasons();
  const std::lock_guard lock(mutex_);
  for (const std::string* why : {&clock.why_not, &power.why_not, &temperature.why_not, &reasons.why_not})
    if (!why->empty()) absent_ = *why;
  if (!clock || !power || !temperature || !reasons) return false;
  history_.add({seconds(Clock::now()), *clock.value, *power.value, *temperature.value, *reasons.value});
  return true;
}

void DeviceWatch::watch() {
  auto next_sample = Clock::now();
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, energy_absent_.empty() ? kEnergyPoll : kSampleInTurns, [this] { return stopping_; })) return;
    }
    if (energy_absent_.empty()) {
      const auto energy = device_->energy_mj();
      const std::lock_guard lock(mutex_);
      if (energy)
        history_.add_energy(seconds(Clock::now()), static_cast<double>(*energy.value) * 1e-3);
      else
        energy_absent_ = energy.why_not;
    }
    if (Clock::now() < next_sample) continue;
    if (!take_sample()) return;
    const std::lock_guard lock(mutex_);
    next_sample = Clock::now() + (in_turns_ ? kSampleInTurns : kSampleAlone);
  }
}

std::optional<BlockEnvironment> DeviceWatch::since_begin() {
  const std::lock_guard lock(mutex_);
  return history_.since_begin();
}

void DeviceWatch::begin(bool in_turns) {
  const std::lock_guard lock(mutex_);
  in_turns_ = in_turns;
  history_.begin(seconds(Clock::now()));
}

DeviceWindow DeviceWatch::between(Clock::time_point from, Clock::time_point to) {
  // Until the counter has moved past the end.
  const auto patience = to + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kSlowestCounter_s));
  std::unique_lock lock(mutex_);
  while (energy_absent_.empty() && history_.last_energy_change_s() < seconds(to) && Clock::now() < patience)
    wake_.wait_for(lock, kEnergyPoll);
  DeviceWindow w = history_.between(seconds(from), seconds(to));
  if (w.samples == 0 && !absent_.empty()) w.absent = absent_;
  if (!energy_absent_.empty()) {
    w.joules.reset();
    w.energy_absent = energy_absent_;
  }
  return w;
}

void DeviceWatch::add_to(Hooks& hooks) {
  hooks.limits = limits_;
  // Also where another reading is refused.
  if (device_)
    hooks.foreign_process = [this](int own) -> std::optional<std::string> {
      const auto processes = device_->compute_processes();
      if (!processes || *processes.value <= own) return std::nullopt;
      return fmt::format(
          "{} processes compute on the GPU and {} of them {} ours; the others disturb the measurement (`nvidia-smi` lists them)",
          *processes.value, own, own == 1 ? "is" : "are");
    };
  if (!thread_.joinable()) {
    hooks.environment_absent = absent();
    return;
  }
  hooks.block_begins = [this](char) { begin(true); };
  hooks.process_begins = [this] { begin(false); };
  hooks.block_ended = [this] { return since_begin(); };
  hooks.device_between = [this](Clock::time_point from, Clock::time_point to) { return between(from, to); };
}

}  // namespace experiments
