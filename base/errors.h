// The errors that a user sees. Library code throws; only cli/ turns them into an exit code.
#pragma once
#include <stdexcept>
#include <string>

namespace stepscope {

// Bad usage or bad input (exit 2). The text names the file or flag, says what was found and what was expected.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// This machine cannot do it: no GPU, no permission, not enough memory (exit 3). The text says how to get it.
struct MachineError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace stepscope
