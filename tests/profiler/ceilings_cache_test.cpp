// The cache of ceilings around a measurement that is made up: when it is taken, and when the device is measured again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "profiler/ceilings/ceilings.h"
#include "tests/temporary_folder.h"

namespace {
int measurements;
}

namespace profiler {

DeviceIdentity device_identity() { return {"5d09b217", "13.0"}; }
MeasuredCeilings measure_ceilings() {
  MeasuredCeilings c;
  c.copy_bytes_per_s = 1e12 * ++measurements;
  c.device = "Test GPU";
  c.uuid = device_identity().uuid;
  c.measured_at = "2026-11-30T12:00:00Z";
  return c;
}

namespace {

class CeilingsCache : public ::testing::Test {
 protected:
  CeilingsCache() {
    measurements = 0;
    setenv("STEPSCOPE_CACHE", folder_.c_str(), 1);
  }
  ~CeilingsCache() override {
    for (const char* name : {"STEPSCOPE_CACHE", "FAKE_NVML", "FAKE_NVML_DRIVER"}) unsetenv(name);
    std::filesystem::remove_all(folder_);
  }
  const std::filesystem::path folder_ = fresh_test_folder();
};

// Both drivers support CUDA 13.0, whose version alone was compared.
TEST_F(CeilingsCache, IsMeasuredAgainUnderAnotherDriver) {
  EXPECT_EQ(ceilings_of_device(false, FAKE_NVML).driver, "580.65.06");
  EXPECT_EQ(ceilings_of_device(false, FAKE_NVML).copy_bytes_per_s, 1e12);
  EXPECT_EQ(measurements, 1);
  setenv("FAKE_NVML_DRIVER", "580.95.05", 1);
  EXPECT_EQ(ceilings_of_device(false, FAKE_NVML).driver, "580.95.05");
  EXPECT_EQ(measurements, 2);
  EXPECT_EQ(ceilings_of_device(false, FAKE_NVML).copy_bytes_per_s, 2e12);
  EXPECT_EQ(measurements, 2);
  EXPECT_EQ(ceilings_of_device(true, FAKE_NVML).copy_bytes_per_s, 3e12);
}

TEST_F(CeilingsCache, GoesByTheCudaVersionWhereNvmlIsMissing) {
  setenv("FAKE_NVML", "init", 1);
  EXPECT_EQ(ceilings_of_device(false, FAKE_NVML).driver, "13.0");
  EXPECT_EQ(ceilings_of_device(false, "libno-such-nvml.so.1").copy_bytes_per_s, 1e12);
  EXPECT_EQ(measurements, 1);
}

}  // namespace
}  // namespace profiler
