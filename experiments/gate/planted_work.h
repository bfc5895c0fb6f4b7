// Work on the device of a known kind and cost, planted between the steps of an arm to test whether the procedure finds it: on its own stream,
// after a step has ended and before the next one is queued, so that the next step's time holds it.
#pragma once
#include <memory>
#include <string>

namespace gate {

class PlantedWork {
 public:
  virtual ~PlantedWork() = default;
  // Makes a launch take so many ns on the device as it is now; returns what one then takes, measured by events.
  virtual double take(double ns) = 0;
  // One launch, waited for.
  virtual void run() = 0;
};

// Throws stepscope::MachineError when CUDA fails. "dram" holds 512 MiB.
std::unique_ptr<PlantedWork> make_planted_work(const std::string& kind);

}  // namespace gate
