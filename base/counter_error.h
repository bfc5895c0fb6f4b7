// Why joules could not be counted (energy_window.h, gpu_meter.h).
#pragma once
#include "base/errors.h"

namespace energy {

// The counter cannot be read, or does not serve: nothing is wrong with the work whose joules were asked for.
struct CounterError : stepscope::MachineError {
  using stepscope::MachineError::MachineError;
};

}  // namespace energy
