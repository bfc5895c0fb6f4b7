// The floors of what ranks do together, in the terms of work_model.h: bytes of this rank's memory, not of the link.
#pragma once
#include <cstdint>
#include <vector>

#include "gpt2/ops/rank_plan.h"
#include "gpt2/work_model.h"

namespace gpt2::ops {

// `work` of one rank alone, as a rank of several has it: one entry more for each range path of pass communication, and less to update where
// the update is divided. A collective reads what it sends and writes what it brings, each once. `weight_bytes`: of a gathered weight.
std::vector<OpWork> work_of_rank(std::vector<OpWork> work, const RankPlan& plan, int64_t weight_bytes);

}  // namespace gpt2::ops
