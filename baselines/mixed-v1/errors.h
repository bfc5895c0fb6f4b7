// The two ways this program can refuse. main() turns them into exit codes: InputError 2, MachineError 3.
#pragma once
#include <stdexcept>

namespace baseline {

// A flag or a file is wrong. The text names it, says what was found and what was expected.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// This machine cannot do it: no GPU, too little memory, a failed CUDA call.
struct MachineError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace baseline
