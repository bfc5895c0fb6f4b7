// Joules of one GPU while work repeats: a thread polls the energy counter and the SM clock through NVML, the calling thread keeps the work
// going until a window of the counter is complete. The work goes on past the window, so no idle moment falls into it.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/energy_window.h"
#include "base/nvml.h"

namespace energy {

// Work that can be queued again and again. At most two units are unfinished at a time.
struct Repeated {
  std::function<void()> queue;   // one unit; returns before it has run
  std::function<void()> finish;  // waits for the oldest unfinished unit
};

struct GpuLimits {
  std::optional<double> power_limit_w, max_sm_clock_mhz;
  std::string driver;
};

// Why a GpuMeter of this GPU would not be made; empty where it would.
std::optional<std::string> why_no_counter(const std::string& pci_bus_id, const char* library = "libnvidia-ml.so.1");

class GpuMeter {
 public:
  // Throws CounterError, with what to do, where NVML, this GPU or its energy counter cannot be read.
  // `library`: as stepscope::nvml::Device::open has it.
  explicit GpuMeter(const std::string& pci_bus_id, const char* library = "libnvidia-ml.so.1");
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;

  // Runs the work for `settle_s`, then counts for at least `window_s` and kFewestUpdates changes of the counter. `steps` of the window are
  // units. Throws CounterError when the counter does not move.
  Window measure(const Repeated& work, double settle_s, double window_s);
  // Runs the work without counting: at least two units, for at least `seconds`. Returns how long it took.
  double run(const Repeated& work, double seconds) const;

  const GpuLimits& limits() const { return limits_; }
  double poll_s() const;  // as it was, on the average

 private:
  void poll();
  std::optional<Window> window_since(const std::vector<StepsDone>& done, double from_s, double length_s);

  stepscope::nvml::Device device_;
  GpuLimits limits_;
  mutable std::mutex mutex_;
  std::vector<CounterChange> changes_;
  std::vector<ClockSample> clocks_;
  std::string failure_;
  double polled_since_s_ = 0;
  int64_t polls_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace energy
