// Checks of the loop alone, by a trainer that computes nothing: it tells the losses and norms of a script and notes what it is handed, so a
// run over nine epochs or of 450 steps costs no time. Private to the loop's gate; loop_gate.cpp asks them.
#pragma once
#include <vector>

#include "experiments/gate/loop_gate.h"
#include "experiments/gate/report.h"

namespace gate {

// "loader": shuffled, an epoch has every window of T tokens at most once, each with its own targets, all windows of a batch from one file,
// and another epoch another order, also of one file.
std::vector<CheckResult> check_shuffled(const LoopGateOptions& options);
// "loop": validation is the mean over the batches that there are, of a set that has fewer than were asked for and of one that has more.
std::vector<CheckResult> check_validation(const LoopGateOptions& options);
// "loop": what steps are handed does not depend on validations between them, in an ordinary run and in one that overfits a batch.
std::vector<CheckResult> check_beside_validation(const LoopGateOptions& options);
// "loop": of synthetic data no window is handed twice, and none that is trained on is in a validation, which has the same batches each time.
std::vector<CheckResult> check_synthetic(const LoopGateOptions& options);
// "resume": a run that is cut after any step of an epoch and one more, ends of files among them, is the run that was not.
CheckResult check_cuts(const LoopGateOptions& options);
// "outliers": what a step is given as its limits follows from the values of all steps before it, those that were left out among them.
std::vector<CheckResult> check_outliers(const LoopGateOptions& options);
// "not finite": a run whose loss or norm is no finite number ends with TrainingDiverged, and leaves no checkpoint of that step or a later one.
std::vector<CheckResult> check_not_finite(const LoopGateOptions& options);

}  // namespace gate
