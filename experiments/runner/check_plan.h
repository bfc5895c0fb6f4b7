// What pairs in turns and processes alone both ask of a plan.
#pragma once
#include "experiments/runner/pair_runner.h"

namespace experiments {

// Throws stepscope::InputError unless value >= least.
void check_at_least(const char* flag, double value, double least);
// Looks that grow, time for a start and for a block, two arms of a kind. Throws stepscope::InputError.
void check_common(const PairPlan& plan);

// The arm that `hooks` makes, or the real one.
std::unique_ptr<Arm> arm_of(const ArmSpec& spec, const Hooks& hooks);

}  // namespace experiments
