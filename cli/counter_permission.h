// Whether the driver lets this process read hardware counters, as far as its settings tell.
#pragma once
#include <istream>
#include <string>

namespace cli {

struct CounterPermission {
  std::string seen;
  std::string cure;  // what to do, or what decides; empty where the settings let this process read them
};

// `params` is what /proc/driver/nvidia/params says. It never settles that counters cannot be read: another user than root may have
// CAP_SYS_ADMIN, and whoever tries it knows.
CounterPermission counter_permission(std::istream& params, bool root);

}  // namespace cli
