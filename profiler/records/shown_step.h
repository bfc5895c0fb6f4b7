// Which of the traced steps stands for all of them where one is shown launch by launch.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "profiler/records/records.h"

namespace profiler {

inline double device_time_ns(const StepRecord& step) { return static_cast<double>(step.gpu_end_ns - step.gpu_begin_ns); }

// Of those that `kept` says were kept in full, the one whose time on the device is nearest to the median of `traced`, so that no table is
// of an outlier; of two as near the newer one. nullopt: none was kept. Ranks are joined within one step and cannot each take another:
// theirs is the newest.
std::optional<int64_t> shown_step(std::span<const StepRecord> traced, const std::function<bool(int64_t step)>& kept, bool one_of_several);

}  // namespace profiler
