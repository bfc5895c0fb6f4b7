// A file that somebody handed us is not what it says it is: the text names the file and line, what was found
// and what was expected. The profiler's counterpart of stepscope::InputError, which lives in the other
// include chain; cli/ gives both exit 2.
#pragma once
#include <stdexcept>

namespace profiler {

struct DataError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The device does not do what a measurement needs. The counterpart of stepscope::MachineError (exit 3).
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace profiler
