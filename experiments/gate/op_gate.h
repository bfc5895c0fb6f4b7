// Every op variant of a GPU trainer on its own, on the device: against fp64, with poisoned outputs and
// scratch, red zones around every buffer, inputs that may not change, and repeats that must agree bit for
// bit, some of them beside other work on the device.
//
// Names of the checks: "OP/VARIANT error", "OP/VARIANT poison" (the result depends on what was in an output
// or in scratch before), "OP/VARIANT unwritten", "OP/VARIANT red zone", "OP/VARIANT inputs", "OP/VARIANT
// launch error" (that the launcher did not check), "OP/VARIANT repeat", "OP/VARIANT ran" (the variant refused
// every shape); "able to fail" when a check would have accepted zeros, a shuffle or 1% of noise. Of results
// rounded to bf16 also "OP/VARIANT element" (the worst single one) and "OP/VARIANT lean" (more elements on one side of their answers than
// on the other; also in attention with TF32), of weights "OP/VARIANT rounding" (of the master weights, bit for bit, or without a bias and
// each with bits of its own), and of lm_head "OP/VARIANT scale" (a factor on a whole row). Of plain products also
// "OP/VARIANT candidates" (algorithms that a trainer which searches may take), of losses and norms "OP/VARIANT not finite" (a NaN or an
// infinity among the inputs reaches them, and no other row). A launch that throws fails "OP/VARIANT error", tensor "launch".
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/gate/receipt.h"
#include "experiments/gate/report.h"
#include "experiments/gate/watchdog.h"

namespace gate {

struct OpGateOptions {
  std::string trainer = "fp32";  // or "mixed"
  uint64_t seed = 0;
  int repeats = 10;
  std::vector<std::string> sizes{"odd", "real", "huge"};  // names of op_sizes.h
  std::vector<std::string> only;                          // these ops; empty: all. One without a case at these sizes adds nothing
  // False: nothing is compared with an oracle, and nothing else runs on the device. For a sanitizer.
  bool with_answers = true;
  std::function<void(const std::string&)> progress;  // called with each op that begins; may be empty
  OnHang on_hang;                                    // of a launch that never ends
};

// Throws stepscope::MachineError when there is no device. A variant that refuses a shape with InputError or
// MachineError is noted, not failed, unless it refuses every shape with InputError; a baseline may not
// refuse. A kernel that faults fails its check and ends the run, since no later call can work; any other
// error fails its check only.
GateReport check_ops(const OpGateOptions& options);

DeviceFacts device_facts();

}  // namespace gate
