// NVML through a library that stands in for the driver's (fake_nvml.cpp): units, absent values with their reasons, the life of the library.
#include "base/nvml.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace stepscope::nvml {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What the fake refuses while this lives.
struct Refuses {
  explicit Refuses(const char* what) { setenv("FAKE_NVML", what, 1); }
  ~Refuses() { unsetenv("FAKE_NVML"); }
};

std::optional<Device> open_fake(std::string& why, const std::string& bus_id = "") { return Device::open(why, bus_id, FAKE_NVML); }

TEST(Nvml, ValuesComeInTheUnitsOfTheirNames) {
  std::string why;
  const auto device = open_fake(why, "0000:1b:00.0");
  ASSERT_TRUE(device) << why;
  EXPECT_EQ(device->driver_version().value, "580.65.06");
  EXPECT_EQ(device->sm_clock_mhz().value, 1500);
  EXPECT_EQ(device->memory_clock_mhz().value, 3201);
  EXPECT_EQ(device->max_sm_clock_mhz().value, 1980);
  EXPECT_EQ(device->power_w().value, 512.5);
  EXPECT_EQ(device->temperature_c().value, 61);
  EXPECT_EQ(device->energy_mj().value, 5'000'000'000'000u);  // beyond 32 bits
  EXPECT_EQ(device->throttle_reasons().value, 0x5u);
  EXPECT_EQ(device->mig_enabled().value, true);
}

TEST(Nvml, AValueThatTheGpuDoesNotHaveIsAbsentWithTheReason) {
  const Refuses energy("energy");
  std::string why;
  const auto device = open_fake(why);
  ASSERT_TRUE(device) << why;
  const auto reading = device->energy_mj();
  EXPECT_FALSE(reading);
  EXPECT_EQ(reading.why_not, "nvmlDeviceGetTotalEnergyConsumption: Not Supported (3)");
  EXPECT_TRUE(device->power_w());
}

TEST(Nvml, AFunctionThatTheDriverLacksIsAbsentWithItsName) {
  std::string why;
  const auto device = open_fake(why);
  ASSERT_TRUE(device) << why;
  EXPECT_FALSE(device->power_limit_w());
  EXPECT_EQ(device->power_limit_w().why_not, "this driver has no nvmlDeviceGetEnforcedPowerLimit");
}

TEST(Nvml, ProcessesAreCountedAlsoWhenTheirListHasNoRoom) {
  std::string why;
  const auto device = open_fake(why);
  ASSERT_TRUE(device) << why;
  EXPECT_EQ(device->compute_processes().value, 0);
  const Refuses nothing_but_has("strangers");
  EXPECT_EQ(device->compute_processes().value, 3);
}

TEST(Nvml, WithoutADriverADeviceOrAnInitThereIsAReason) {
  std::string why;
  EXPECT_FALSE(Device::open(why, "", "libno-such-driver.so.1"));
  EXPECT_THAT(why, HasSubstr("the NVIDIA driver is not installed"));
  EXPECT_FALSE(open_fake(why, "0000:ff:00.0"));
  EXPECT_THAT(why, HasSubstr("NVML does not know device 0000:ff:00.0"));
  const Refuses init("init");
  EXPECT_FALSE(open_fake(why));
  EXPECT_THAT(why, HasSubstr("nvmlInit_v2: Unknown Error (9)"));
}

// A copy keeps the library initialized after the first is gone, and the last one shuts it down, also after a device that was not found.
TEST(Nvml, TheLibraryIsShutDownOnceItsLastDeviceIsGone) {
  void* library = dlopen(FAKE_NVML, RTLD_NOW);
  ASSERT_TRUE(library);
  const auto initialized = reinterpret_cast<int (*)()>(dlsym(library, "fake_nvml_initialized"));
  ASSERT_TRUE(initialized);
  const int before = initialized();
  std::string why;
  {
    auto first = open_fake(why);
    const auto copy = first;
    first.reset();
    EXPECT_EQ(initialized(), before + 1);
    EXPECT_EQ(copy->sm_clock_mhz().value, 1500);
  }
  EXPECT_EQ(initialized(), before);
  open_fake(why, "0000:ff:00.0");
  EXPECT_EQ(initialized(), before);
  dlclose(library);
}

TEST(Nvml, OnlySlowdownsAreThrottling) {
  EXPECT_EQ(slowdowns(0x1 | 0x2 | 0x100), 0u);  // idle, clocks that a user has set, display clocks
  EXPECT_EQ(slowdowns(~uint64_t{0}), 0xfcu);
  EXPECT_THAT(throttle_words(0x1 | 0x80 | kPowerCap), ElementsAre("power_cap", "power_brake"));
  EXPECT_EQ(throttle_text(0x1 | 0x80 | kPowerCap), "software power cap, hardware power brake");
  EXPECT_EQ(throttle_text(0x1), "");
}

}  // namespace
}  // namespace stepscope::nvml
