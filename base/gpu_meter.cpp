#include "base/gpu_meter.h"

#include <fmt/format.h>

#include <chrono>

#include "base/counter_error.h"

namespace energy {
namespace {

using stepscope::nvml::Device;

constexpr double kPoll_s = 0.002;
constexpr int kPollsPerClock = 25;       // the clock is sampled every 50 ms
constexpr double kPatience_s = 2;        // for a counter that does not move, beyond the window asked for
constexpr double kLongestWindow_s = 30;  // for a counter that moves seldom

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Device opened(const std::string& pci_bus_id, const char* library) {
  std::string why;
  auto device = Device::open(why, pci_bus_id, library);
  if (!device) throw CounterError("the energy of this GPU cannot be counted: " + why);
  if (const auto joules = device->energy_mj(); !joules)
    throw CounterError(
        fmt::format("this GPU's energy counter cannot be read: {}. Volta and newer GPUs have one; virtual GPUs and MIG "
                    "slices do not show it",
                    joules.why_not));
  if (device->mig_enabled().value_or(false))
    throw CounterError("the GPU is in MIG mode, and its energy counter counts all slices together: measure on a whole GPU");
  return *std::move(device);
}

// Keeps two units unfinished and hears of each that ends, until `stop` says so; then waits for the rest.
template <class Ended>
void repeat(const Repeated& work, const Ended& ended) {
  int64_t queued = 0, finished = 0;
  for (bool go_on = true; go_on;) {
    work.queue();
    if (++queued - finished < 2) continue;
    work.finish();
    go_on = ended(++finished);
  }
  for (; finished < queued; ++finished) work.finish();
}

}  // namespace

std::optional<std::string> why_no_counter(const std::string& pci_bus_id, const char* library) {
  try {
    (void)opened(pci_bus_id, library);
    return std::nullopt;
  } catch (const CounterError& e) {
    return e.what();
  }
}

GpuMeter::GpuMeter(const std::string& pci_bus_id, const char* library) : device_(opened(pci_bus_id, library)) {
  limits_ = {device_.power_limit_w().value, device_.max_sm_clock_mhz().value, device_.driver_version().value_or("")};
  polled_since_s_ = now_s();
  thread_ = std::thread([this] { poll(); });
}

GpuMeter::~GpuMeter() {
  stopping_ = true;
  thread_.join();
}

void GpuMeter::poll() {
  using Clock = std::chrono::steady_clock;
  for (auto next = Clock::now(); !stopping_;
       next = std::max(next + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kPoll_s)), Clock::now())) {
    std::this_thread::sleep_until(next);
    const auto joules = device_.energy_mj();
    const double at_s = now_s();
    const auto clock = polls_ % kPollsPerClock == 0 ? device_.sm_clock_mhz().value : std::nullopt;
    const std::lock_guard lock(mutex_);
    ++polls_;
    if (clock) clocks_.push_back({at_s, *clock});
    try {
      if (!joules) throw CounterError("this GPU's energy counter cannot be read: " + joules.why_not);
      keep_change(changes_, at_s, static_cast<double>(*joules.value) * 1e-3);
    } catch (const CounterError& e) {
      failure_ = e.what();
      return;
    }
  }
}

double GpuMeter::poll_s() const {
  const std::lock_guard lock(mutex_);
  return polls_ > 0 ? (now_s() - polled_since_s_) / static_cast<double>(polls_) : kPoll_s;
}

std::optional<Window> GpuMeter::window_since(const std::vector<StepsDone>& done, double from_s, double length_s) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw CounterError(failure_);
  return window_from(changes_, done, clocks_, from_s, length_s);
}

Window GpuMeter::measure(const Repeated& work, double settle_s, double window_s) {
  {
    const std::lock_guard lock(mutex_);
    if (changes_.size() > 1) changes_.erase(changes_.begin(), changes_.end() - 1);
    clocks_.clear();
  }
  const double begin_s = now_s(), from_s = begin_s + settle_s;
  std::vector<StepsDone> done{{begin_s, 0}};
  double length_s = window_s;
  std::optional<Window> window;
  std::string problem;
  repeat(work, [&](int64_t finished) {
    const double at_s = now_s();
    done.push_back({at_s, static_cast<double>(finished)});
    if (at_s < from_s + length_s) return true;
    window = window_since(done, from_s, length_s);
    if (!window) {
      if (at_s > from_s + length_s + kPatience_s) problem = fmt::format("it did not move for {:.0f} s", kPatience_s);
    } else if (window->updates < kFewestUpdates) {
      length_s = window->seconds() * kFewestUpdates / window->updates;
      window.reset();
      if (length_s > kLongestWindow_s) problem = fmt::format("it moves so seldom that a window would take {:.0f} s", length_s);
    }
    return !window && problem.empty();
  });
  if (!window) throw CounterError("the GPU's energy counter does not serve: " + problem);
  return *window;
}

double GpuMeter::run(const Repeated& work, double seconds) const {
  const double begin_s = now_s();
  repeat(work, [&](int64_t) { return now_s() < begin_s + seconds; });
  return now_s() - begin_s;
}

}  // namespace energy
