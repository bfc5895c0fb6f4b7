// How long, how often and in which order the measurement runs, and what it was of: the parts that need no device.
#pragma once
#include <cstdint>
#include <vector>

#include "experiments/energy/document.h"
#include "gpt2/train_loop.h"
#include "gpt2/trainer.h"

namespace energy {

// Steps between two windows of the step alone: four ops.
inline constexpr int kOpsBetweenSteps = 4;
// The clock of a GPU at its power cap cycles with this period (H200; docs/energy.md), so windows are whole numbers of it.
inline constexpr double kClockCycle_s = 1.03;

// Length of a counted window: at least twelve steps and two cycles, for steps of so many seconds, copies included.
double window_length(double step_s);
// Copies of an op that takes `op_s` and has `launches` nodes, for steps of `step_s`: 1 or more, and no more than a graph should hold.
int64_t copies_for(double op_s, int64_t launches, double step_s, double added_share);
// The order of one round: indices into the ops, or kStepAlone. It begins and ends with the step alone.
std::vector<int> round_order(const std::vector<int>& ops, bool reversed);

// What the run was; without driver, revision, command and time.
RunSettings settings_of(const gpt2::Trainer& trainer, const gpt2::LoopOptions& loop);

}  // namespace energy
