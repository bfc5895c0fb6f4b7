#include "base/nvml.h"

#include <dlfcn.h>

namespace stepscope::nvml {
namespace {

using Handle = void*;
constexpr int kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;
constexpr int kInsufficientSize = 7;

// A function of the library, looked up once: dlsym takes the loader's lock, for which a sampling thread should not wait.
template <class... Arguments>
struct Function {
  Function(void* library, const char* symbol)
      : name(symbol), call(library ? reinterpret_cast<int (*)(Arguments...)>(dlsym(library, symbol)) : nullptr) {}
  explicit operator bool() const { return call != nullptr; }
  const char* name;
  int (*call)(Arguments...);
};

struct Opened {
  // NODELETE: a driver library is not unloaded from under threads that it may have started.
  explicit Opened(const char* name) : handle(dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {}
  ~Opened() {
    if (handle) dlclose(handle);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  void* handle;
};

}  // namespace

struct Device::Library {
  explicit Library(const char* name) : opened(name) {}
  ~Library() {
    if (initialized) shutdown.call();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::string error(int code) const { return (error_string ? error_string(code) : "error") + (" (" + std::to_string(code) + ")"); }

  // The last argument of every function is the place of the answer.
  template <class Answer, class Function, class... Arguments>
  Reading<Answer> ask(const Function& function, Arguments... arguments) const {
    if (!function) return {std::nullopt, std::string("this driver has no ") + function.name};
    Answer answer{};
    if (const int code = function.call(arguments..., &answer); code != 0)
      return {std::nullopt, std::string(function.name) + ": " + error(code)};
    return {answer, ""};
  }

  Opened opened;
  bool initialized = false;
  Function<> init{opened.handle, "nvmlInit_v2"}, shutdown{opened.handle, "nvmlShutdown"};
  const char* (*error_string)(int) = opened.handle ? reinterpret_cast<const char* (*)(int)>(dlsym(opened.handle, "nvmlErrorString"))
                                                   : nullptr;
  Function<unsigned, Handle*> by_index{opened.handle, "nvmlDeviceGetHandleByIndex_v2"};
  Function<const char*, Handle*> by_bus_id{opened.handle, "nvmlDeviceGetHandleByPciBusId_v2"};
  Function<char*, unsigned> driver_version{opened.handle, "nvmlSystemGetDriverVersion"};
  Function<Handle, int, unsigned*> clock{opened.handle, "nvmlDeviceGetClockInfo"};
  Function<Handle, int, unsigned*> max_clock{opened.handle, "nvmlDeviceGetMaxClockInfo"};
  Function<Handle, unsigned*> power{opened.handle, "nvmlDeviceGetPowerUsage"};
  Function<Handle, unsigned*> power_limit{opened.handle, "nvmlDeviceGetEnforcedPowerLimit"};
  Function<Handle, unsigned long long*> energy{opened.handle, "nvmlDeviceGetTotalEnergyConsumption"};
  Function<Handle, int, unsigned*> temperature{opened.handle, "nvmlDeviceGetTemperature"};
  Function<Handle, unsigned long long*> throttle_reasons{opened.handle, "nvmlDeviceGetCurrentClocksThrottleReasons"};
  Function<Handle, unsigned*, unsigned*> mig_mode{opened.handle, "nvmlDeviceGetMigMode"};
  Function<Handle, unsigned*, void*> compute_processes{opened.handle, "nvmlDeviceGetComputeRunningProcesses_v3"};
};

namespace {

template <class To, class From>
Reading<To> scaled(const Reading<From>& from, double unit = 1) {
  if (!from) return {std::nullopt, from.why_not};
  return {static_cast<To>(static_cast<double>(*from.value) * unit), ""};
}

template <class To, class From>
Reading<To> whole(const Reading<From>& from) {
  if (!from) return {std::nullopt, from.why_not};
  return {static_cast<To>(*from.value), ""};
}

}  // namespace

std::optional<Device> Device::open(std::string& why_not, const std::string& pci_bus_id, const char* library_name) {
  const auto library = std::make_shared<Library>(library_name);
  if (!library->opened.handle) {
    why_not = std::string(library_name) + " cannot be loaded: the NVIDIA driver is not installed";
    return std::nullopt;
  }
  if (!library->init || !library->shutdown || !library->by_index || !library->by_bus_id) {
    why_not = std::string(library_name) + " lacks nvmlInit_v2 or another function without which no device can be asked";
    return std::nullopt;
  }
  if (const int code = library->init.call(); code != 0) {
    why_not = "nvmlInit_v2: " + library->error(code);
    return std::nullopt;
  }
  library->initialized = true;
  const auto handle =
      pci_bus_id.empty() ? library->ask<Handle>(library->by_index, 0) : library->ask<Handle>(library->by_bus_id, pci_bus_id.c_str());
  if (!handle) {
    why_not = "NVML does not know device " + (pci_bus_id.empty() ? "0" : pci_bus_id) + ": " + handle.why_not;
    return std::nullopt;
  }
  return Device(library, *handle.value);
}

Reading<std::string> Device::driver_version() const {
  const auto& function = library_->driver_version;
  if (!function) return {std::nullopt, std::string("this driver has no ") + function.name};
  char text[96] = {};
  if (const int code = function.call(text, sizeof text - 1); code != 0)
    return {std::nullopt, std::string(function.name) + ": " + library_->error(code)};
  return {text, ""};
}

Reading<double> Device::sm_clock_mhz() const { return scaled<double>(library_->ask<unsigned>(library_->clock, handle_, kClockSm)); }
Reading<double> Device::memory_clock_mhz() const { return scaled<double>(library_->ask<unsigned>(library_->clock, handle_, kClockMemory)); }
Reading<double> Device::max_sm_clock_mhz() const { return scaled<double>(library_->ask<unsigned>(library_->max_clock, handle_, kClockSm)); }
Reading<double> Device::power_w() const { return scaled<double>(library_->ask<unsigned>(library_->power, handle_), 1e-3); }
Reading<double> Device::power_limit_w() const { return scaled<double>(library_->ask<unsigned>(library_->power_limit, handle_), 1e-3); }
Reading<uint64_t> Device::energy_mj() const { return whole<uint64_t>(library_->ask<unsigned long long>(library_->energy, handle_)); }
Reading<double> Device::temperature_c() const {
  return scaled<double>(library_->ask<unsigned>(library_->temperature, handle_, kTemperatureGpu));
}
Reading<uint64_t> Device::throttle_reasons() const {
  return whole<uint64_t>(library_->ask<unsigned long long>(library_->throttle_reasons, handle_));
}

Reading<bool> Device::mig_enabled() const {
  const auto& function = library_->mig_mode;
  if (!function) return {std::nullopt, std::string("this driver has no ") + function.name};
  unsigned current = 0, pending = 0;
  if (const int code = function.call(handle_, &current, &pending); code != 0)
    return {std::nullopt, std::string(function.name) + ": " + library_->error(code)};
  return {current == 1, ""};
}

Reading<int> Device::compute_processes() const {
  const auto& function = library_->compute_processes;
  if (!function) return {std::nullopt, std::string("this driver has no ") + function.name};
  unsigned count = 0;
  // With room for none it answers "insufficient size" and says how many there are.
  if (const int code = function.call(handle_, &count, nullptr); code != 0 && code != kInsufficientSize)
    return {std::nullopt, std::string(function.name) + ": " + library_->error(code)};
  return {static_cast<int>(count), ""};
}

uint64_t slowdowns(uint64_t reasons) {
  uint64_t all = 0;
  for (const ThrottleReason& r : kThrottleReasons)
    if (r.slows) all |= r.bit;
  return reasons & all;
}

std::vector<std::string> throttle_words(uint64_t reasons) {
  std::vector<std::string> out;
  for (const ThrottleReason& r : kThrottleReasons)
    if (slowdowns(reasons) & r.bit) out.emplace_back(r.word);
  return out;
}

std::string throttle_text(uint64_t reasons) {
  std::string out;
  for (const ThrottleReason& r : kThrottleReasons)
    if (slowdowns(reasons) & r.bit) out += (out.empty() ? "" : ", ") + std::string(r.text);
  return out;
}

}  // namespace stepscope::nvml
