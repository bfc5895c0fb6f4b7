// What pairs in turns and processes alone have in common: what they ask of a plan, how they come by an arm, and how they look out for strangers.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "experiments/runner/pair_runner.h"

namespace experiments {

// Throws stepscope::InputError unless value >= least.
void check_at_least(const char* flag, double value, double least);
// Looks that grow, time for a start and for a block, two arms of a kind. Throws stepscope::InputError.
void check_common(const PairPlan& plan);

// The arm that `hooks` makes, or the real one.
std::unique_ptr<Arm> arm_of(const ArmSpec& spec, const Hooks& hooks);

// Throws ForeignProcess where somebody else computes on the device while `own` of our processes live there.
void refuse_strangers(const Hooks& hooks, int own);
// The same while none of ours should: for up to 5 s, because a process leaves the device a moment after it is gone.
void refuse_strangers_once_ours_left(const Hooks& hooks);

// Of a measurement that ctrl-C ended.
std::string stopped_sentence(size_t pairs, int planned);

}  // namespace experiments
