// The alarm for what cannot be: a step that takes less time than its matrix products alone need at the
// fastest rate that this device has been seen to reach. No correctness check is needed to refuse it.
#pragma once
#include <optional>
#include <string>

#include "profiler/document/profile.h"

namespace experiments {

inline constexpr double kBelowFloor = 0.9;  // the ceiling is itself a measurement, good to a few percent

// Model FLOPs of a step ÷ the measured matmul ceiling of its precision. Absent where the document has no
// ceiling (a CPU, a foreign program). Independent of the step times in the document.
std::optional<double> matmul_floor_ns(const profiler::ProfileDocument& document);

// A sentence when `step_ns` is below kBelowFloor of that floor.
std::optional<std::string> below_physical_floor(double step_ns, const profiler::ProfileDocument& document);

}  // namespace experiments
