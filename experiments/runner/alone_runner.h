// The measurement of sustained step times: fresh processes, each alone on the device, one after the other.
//
// Several changes of one baseline are measured together. A round runs a fresh process of the baseline and of every change that is not
// decided yet, so that K experiments cost K + 1 processes where they would cost 2 K; the baseline's process of a round is the partner of
// each change's. The order of a round is drawn, and the next round runs backwards: in every two rounds each change runs before the baseline
// once and after it once.
//
// The first processes are thrown away: they heat the device, tell how long a process takes to settle and to start, and take steps again
// for the check that what is timed is what the gate checked. From then on every process leaves out and counts the same, and begins to step
// after the same rest.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "experiments/runner/pair_runner.h"

namespace experiments {

// `plans`: one per change, all with the same arm A; `names` as many, for the notes in their logs. Looks are each plan's own. The first plan
// says everything that the rounds share (AlonePlan, timeouts, seed, audit). Returns a log for each; throws only for plans that make no
// sense (stepscope::InputError).
std::vector<RunLog> run_alone(std::span<const PairPlan> plans, std::span<const std::string> names, const Hooks& hooks);
// One change.
RunLog run_alone(const PairPlan& plan, const Hooks& hooks);

}  // namespace experiments
