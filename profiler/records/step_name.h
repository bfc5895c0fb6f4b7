// Which NVTX range is one step: one answer for the program that is profiled and for an export of it by another tool.
#pragma once
#include <string_view>

namespace profiler {

// `step_range` itself and "step_range N" are, and so is what PyTorch writes ("ProfilerStep#N").
bool is_step_name(std::string_view name, std::string_view step_range);

}  // namespace profiler
