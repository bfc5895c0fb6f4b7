#include "cli/counter_permission.h"

namespace cli {

CounterPermission counter_permission(std::istream& params, bool root) {
  for (std::string line; std::getline(params, line);) {
    if (!line.starts_with("RmProfilingAdminOnly:")) continue;
    if (line.find('1') == std::string::npos) return {"RmProfilingAdminOnly 0", ""};
    if (root) return {"RmProfilingAdminOnly 1", ""};
    return {"RmProfilingAdminOnly is 1 and this is not root",
            "the probe below decides; if it reads no counters, run as root, or give the container --cap-add=SYS_ADMIN, or set the driver "
            "option NVreg_RestrictProfilingToAdminUsers=0 (the machine's administrator)"};
  }
  return {"/proc/driver/nvidia/params does not tell", "the probe below decides"};
}

}  // namespace cli
