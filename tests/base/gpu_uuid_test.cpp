#include "base/gpu_uuid.h"

#include <gtest/gtest.h>

namespace stepscope {
namespace {

TEST(GpuUuid, IsSpelledAsNvidiaSmiPrintsIt) {
  char bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<char>(0x01 + 0x11 * i);
  EXPECT_EQ(gpu_uuid(bytes), "GPU-01122334-4556-6778-899a-abbccddeef00");
}

}  // namespace
}  // namespace stepscope
