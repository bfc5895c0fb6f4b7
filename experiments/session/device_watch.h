// Clocks, power, energy, heat and strangers on the GPU while an experiment runs. Uses NVML only: this process must never hold a CUDA context,
// or it would itself be the foreign process it looks for.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "base/nvml.h"
#include "experiments/runner/pair_runner.h"

namespace experiments {

// What a session needs to know of the GPU; its owner asks CUDA.
struct Gpu {
  bool present = false;
  std::string why_not;  // when not present: the cause and the cure
  std::string name, pci_bus_id;
};

// What a series of readings of an energy counter says, which moves about every 100 ms: the value at each change, and straight lines in between.
class EnergyCounter {
 public:
  // Readings in the order of time; only changes are kept.
  void add(double at_s, double joules);
  // Between two moments; nullopt, with the reason, where the changes do not reach around them.
  std::optional<double> between(double from_s, double to_s, std::string& absent) const;
  double last_change_s() const { return changes_.empty() ? -1 : changes_.back().at_s; }
  void forget_before(double at_s);

 private:
  struct Change {
    double at_s = 0, joules = 0;
  };
  std::optional<double> at(double s) const;
  std::deque<Change> changes_;
};

// What was read of a device since the process or the block that runs there began, however long that is: it is asked for when the process is
// gone. Times are seconds on one clock.
class DeviceHistory {
 public:
  struct Sample {
    double at_s = 0, sm_clock_mhz = 0, power_w = 0, temperature_c = 0;
    uint64_t throttle_reasons = 0;
  };
  // What came before is forgotten with the next sample.
  void begin(double at_s) { began_s_ = at_s; }
  // Both in the order of time.
  void add(const Sample& sample);
  void add_energy(double at_s, double joules) { energy_.add(at_s, joules); }
  double last_energy_change_s() const { return energy_.last_change_s(); }
  // nullopt: no sample since begin().
  std::optional<BlockEnvironment> since_begin() const;
  DeviceWindow between(double from_s, double to_s) const;

 private:
  double began_s_ = 0;
  std::deque<Sample> samples_;
  EnergyCounter energy_;
};

class DeviceWatch {
 public:
  // Without a GPU, or when the arms do not use it, everything is absent with a reason.
  DeviceWatch(const Gpu& gpu, bool arms_use_gpu, const char* library = "libnvidia-ml.so.1");
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Fills the parts of `hooks` that concern the device. They refer to this object.
  void add_to(Hooks& hooks);
  std::string driver() const { return driver_; }
  // Why nothing is sampled, or no longer; "" while it is.
  std::string absent();

 private:
  void watch();
  bool take_sample();
  void begin(bool in_turns);
  std::optional<BlockEnvironment> since_begin();
  DeviceWindow between(Clock::time_point from, Clock::time_point to);
  double seconds(Clock::time_point t) const { return std::chrono::duration<double>(t - began_).count(); }

  std::string absent_, bus_id_, driver_, energy_absent_;
  std::optional<stepscope::nvml::Device> device_;
  DeviceLimits limits_;
  Clock::time_point began_ = Clock::now();
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false, in_turns_ = false;
  DeviceHistory history_;
  std::thread thread_;
};

}  // namespace experiments
