// run.json ("stepscope.run/1"): what a training process tells a profile about itself, and all that crosses
// from a trainer to the profiler besides ranges and launches. What was run is declared in base/run_fields.h,
// the rest (steps, memory, validation, work) in run_json.cpp; units are in the names.
#pragma once
#include <cstdint>
#include <string>

#include "gpt2/train_loop.h"

namespace gpt2 {

// `stopped`: why the run ended before its last step; "" = it did not. `validated_steps[i]` belongs to
// result.val_losses[i].
std::string run_json(const Trainer& trainer, const LoopOptions& options, const RunResult& result, std::span<const int64_t> validated_steps,
                     const std::string& stopped);

// The settings alone (base/run_fields.h), as one JSON object.
std::string run_settings_json(const Trainer& trainer, const LoopOptions& options);

}  // namespace gpt2
