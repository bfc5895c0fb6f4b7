// The metrics that a document is made from, and what a value of them can be. Readers refuse the others: a
// duration of 0 or a byte count in a column of times is damage, not a kernel that took no time.
#pragma once
#include <array>
#include <string>
#include <string_view>

namespace profiler {

// Total time of the kernel under any of the names that sections use for it, best first.
inline constexpr std::array<std::string_view, 3> kDurationMetrics = {"gpu__time_duration.sum", "gpu__time_duration.max",
                                                                     "gpu__time_duration.avg"};

// What a launch is described by.
inline constexpr std::string_view kRegisters = "launch__registers_per_thread", kSharedStatic = "launch__shared_mem_per_block_static",
                                  kSharedDynamic = "launch__shared_mem_per_block_dynamic";

bool is_read(std::string_view metric);
bool is_percentage(std::string_view metric);

// What was expected instead, in words; "" when the value (in base units) may be one of this metric. Metrics
// that are not read may be anything.
std::string implausible(std::string_view metric, double value);
// ... when `unit`, as ncu prints it, may be the unit of this metric.
std::string unfit_unit(std::string_view metric, std::string_view unit);

}  // namespace profiler
