// Stands in for libnvidia-ml.so.1: one device whose answers are round numbers. FAKE_NVML has the words for what it refuses: "init",
// "energy", "power" (not supported), "device" (unknown bus id), "strangers" (three compute processes). FAKE_NVML_DRIVER is another version
// of the driver.
// It has no function for the limit of power.
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

int device;
int initialized = 0;
bool refuses(std::string_view what) {
  const char* value = std::getenv("FAKE_NVML");
  return value && std::string_view(value).find(what) != std::string_view::npos;
}
constexpr int kUninitialized = 1, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7;

template <class T>
int answer(void* asked, T* out, T value) {
  if (asked != &device || initialized < 1) return kUninitialized;
  *out = value;
  return 0;
}

}  // namespace

extern "C" {
int nvmlInit_v2() { return refuses("init") ? 9 : (++initialized, 0); }
int nvmlShutdown() { return --initialized, 0; }
const char* nvmlErrorString(int code) { return code == kNotSupported ? "Not Supported" : "Unknown Error"; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** out) { return index == 0 ? (*out = &device, 0) : kNotFound; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** out) {
  return std::strcmp(id, "0000:1b:00.0") == 0 ? (*out = &device, 0) : kNotFound;
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  const char* other = std::getenv("FAKE_NVML_DRIVER");
  return std::strncpy(text, other ? other : "580.65.06", size), 0;
}
int nvmlDeviceGetClockInfo(void* asked, int which, unsigned* out) {
  return answer(asked, out, which == 1 ? 1500u : which == 2 ? 3201u : 0u);
}
int nvmlDeviceGetMaxClockInfo(void* asked, int which, unsigned* out) { return answer(asked, out, which == 1 ? 1980u : 0u); }
int nvmlDeviceGetPowerUsage(void* asked, unsigned* out) { return refuses("power") ? kNotSupported : answer(asked, out, 512'500u); }
int nvmlDeviceGetTotalEnergyConsumption(void* asked, unsigned long long* out) {
  return refuses("energy") ? kNotSupported : answer(asked, out, 5'000'000'000'000ull);
}
int nvmlDeviceGetTemperature(void* asked, int sensor, unsigned* out) { return answer(asked, out, sensor == 0 ? 61u : 0u); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* asked, unsigned long long* out) { return answer(asked, out, 0x5ull); }
int nvmlDeviceGetMigMode(void* asked, unsigned* current, unsigned* pending) { return *pending = 0, answer(asked, current, 1u); }
int nvmlDeviceGetComputeRunningProcesses_v3(void* asked, unsigned* count, void*) {
  const int code = answer(asked, count, refuses("strangers") ? 3u : 0u);
  return code ? code : *count ? kInsufficientSize : 0;
}
int fake_nvml_initialized() { return initialized; }
}
