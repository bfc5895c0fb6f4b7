// A profile document as text: tests/cli/run_stepscope.h has a function `stepscope`, so that no header with that namespace can stand beside it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

// One op, forward/qkv, of a run on "a made GPU".
std::string made_profile(int64_t batch_size);
// The energy document of that run at batch size 4.
std::string made_energy();
std::optional<double> joules_of_first_op(const std::string& profile_file);
