// How a program is started under the collector: where the injected library lies, which variables it needs.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "profiler/records/collect_plan.h"

namespace profiler {

// lib/libstepscope_collect.so beside bin/ of this executable; empty when it was not built.
std::optional<std::string> collector_library();

// Writes the plan to `plan_file` and returns the variables that make the driver and NVTX load the collector.
std::map<std::string, std::string> collector_environment(const CollectPlan& plan, const std::string& plan_file, const std::string& library);
void write_plan(const CollectPlan& plan, const std::string& plan_file);

}  // namespace profiler
