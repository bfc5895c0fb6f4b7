// Stands in for libnvidia-ml.so.1: a GPU that draws 600 W and renews its energy counter every 20 ms. MOVING_NVML says what is wrong with it:
// "none" (no counter), "mig" (MIG mode), "frozen" (the counter stands), "back" (it loses a joule at every renewal), "gone" (it cannot be read
// after 0.1 s).
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {
int device;
bool wrong(std::string_view how) {
  const char* value = std::getenv("MOVING_NVML");
  return value && how == value;
}
double seconds() {
  static const auto begin = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
constexpr int kNotSupported = 3;
}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** out) { return *out = &device, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** out) { return *out = &device, 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return std::strncpy(text, "580.65.06", size), 0; }
int nvmlDeviceGetClockInfo(void*, int, unsigned* out) { return *out = 1800, 0; }
int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* out) { return *out = 1980, 0; }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* out) { return *out = 700'000, 0; }
int nvmlDeviceGetMigMode(void*, unsigned* current, unsigned* pending) { return *current = *pending = wrong("mig") ? 1 : 0, 0; }
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* out) {
  const double now = seconds(), renewed = std::floor(now / 0.020);
  if (wrong("none") || (wrong("gone") && now > 0.1)) return kNotSupported;
  constexpr unsigned long long kBefore = 5'000'000'000'000;
  const auto since = static_cast<unsigned long long>(renewed * 12'000);  // 12 J each
  *out = wrong("frozen") ? kBefore : wrong("back") ? kBefore - 1000 * static_cast<unsigned long long>(renewed) : kBefore + since;
  return 0;
}
}
