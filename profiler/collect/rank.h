// Which rank this process is, from the variables of whoever started it. The order is that of the trainers' own discovery: the innermost
// starter first, since outer ones leave their variables behind.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "profiler/records/records.h"

namespace profiler::collect {

// The value of a variable of the environment, "" where it is not set.
using Environment = std::function<std::string(const char* name)>;

// nullopt: a run of one process, or variables that contradict each other (the trainer refuses those itself). `job`, of the plan, wins
// over the starter's. Fills rank, size and job alone.
std::optional<RankRecord> rank_from(const Environment& environment, const std::string& job);

// That, for this process, with the host, the ids of its clock and of its executable.
std::optional<RankRecord> rank_of_process(const std::string& job);

}  // namespace profiler::collect
