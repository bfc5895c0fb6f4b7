// The whole measurement: training steps until the device is warm, one step captured, then windows of that step with copies of one op after
// another, and the probes behind the floors. docs/energy.md says why it is done so.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/energy/document.h"
#include "experiments/energy/schedule.h"
#include "gpt2/train_loop.h"
#include "gpt2/trainer.h"

namespace energy {

struct MeasureOptions {
  double warm_s = 10;             // of training before anything is counted
  double settle_s = 0.6;          // of each window, not counted
  double window_s = 0;            // counted; 0: at least twelve steps in whole seconds of the clock's cycle
  double added_share = 0.25;      // so much longer do the copies of an op make a step
  int rounds = 1;                 // every op is measured so often
  int most_rounds = 3;            // and again, up to so often, while it is not resolved
  bool full_clock = false;        // with pauses that hold the power below its limit, so that the clock stays at its highest
  bool by_launch = false;         // each launch of an op by itself
  bool alone = false;             // also each op back to back, without the step
  std::vector<std::string> only;  // names of ops ("backward/attention"); empty: all, and only then do they add up
  std::string pci_bus_id;
  std::function<void(std::string_view)> progress;  // told what is measured next; may be empty
};

// Throws stepscope::MachineError where joules cannot be counted, stepscope::InputError for a name in `only` that no op has, and
// std::runtime_error when the loss is not finite after the measurement. Fills everything but `run.git_revision` and `run.command`.
Document measure(gpt2::Trainer& trainer, const gpt2::LoopOptions& loop, const MeasureOptions& options);

}  // namespace energy
