// In every program of GPU tests. The CUDA runtime spins while it waits, so eight tests that share the device took eight cores from the others.
// A test to which ctest gave one slot of the device sleeps instead; one that has it to itself, because it measures, waits as a user's run does.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

namespace {

class SleepsWhereItShares : public ::testing::Environment {
  void SetUp() override {
    const char* slots = std::getenv("CTEST_RESOURCE_GROUP_0_GPU");  // "id:0,slots:1"
    if (slots != nullptr && std::string_view(slots).ends_with(",slots:1")) (void)cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
    (void)cudaGetLastError();  // where there is no device each test says so itself
  }
};

[[maybe_unused]] const auto* const added = ::testing::AddGlobalTestEnvironment(new SleepsWhereItShares);

}  // namespace
