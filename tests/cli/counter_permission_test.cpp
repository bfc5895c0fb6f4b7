// What `doctor` makes of the driver's settings before it tries to read counters.
#include "cli/counter_permission.h"

#include <gtest/gtest.h>

#include <sstream>

namespace {

cli::CounterPermission of(const std::string& params, bool root) {
  std::istringstream in(params);
  return cli::counter_permission(in, root);
}

// A user with CAP_SYS_ADMIN reads them; the doctor said "cannot run here" whatever its probe read.
TEST(CounterPermission, AUserWhoIsNotRootIsLeftToTheProbe) {
  const cli::CounterPermission user = of("RmMsg: \"\"\nRmProfilingAdminOnly: 1\nEnableMSI: 1\n", false);
  EXPECT_EQ(user.seen, "RmProfilingAdminOnly is 1 and this is not root");
  EXPECT_EQ(user.cure,
            "the probe below decides; if it reads no counters, run as root, or give the container --cap-add=SYS_ADMIN, or set the driver "
            "option NVreg_RestrictProfilingToAdminUsers=0 (the machine's administrator)");
}

TEST(CounterPermission, NothingStandsAgainstRootOrAnOpenDriver) {
  const cli::CounterPermission root = of("RmProfilingAdminOnly: 1\n", true), all = of("EnableMSI: 1\nRmProfilingAdminOnly: 0\n", false);
  EXPECT_EQ(root.seen, "RmProfilingAdminOnly 1");
  EXPECT_EQ(root.cure, "");
  EXPECT_EQ(all.seen, "RmProfilingAdminOnly 0");
  EXPECT_EQ(all.cure, "");
}

TEST(CounterPermission, ADriverThatDoesNotTellIsLeftToTheProbe) {
  EXPECT_EQ(of("EnableMSI: 1\n", true).seen, "/proc/driver/nvidia/params does not tell");
  EXPECT_EQ(of("", false).cure, "the probe below decides");
}

}  // namespace
