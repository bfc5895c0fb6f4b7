// Work on the device of a known kind and cost, planted between the steps of an arm to test whether the procedure finds it: on its own stream,
// after a step has ended and before the next one is queued, so that the next step's time holds it.
#pragma once
#include <memory>
#include <optional>
#include <string>

namespace gate {

// "tensor": products of random bf16 matrices in registers, on every tensor core. "dram": a copy between buffers that no cache holds.
// "idle": one thread watches the clock.
struct PlantSpec {
  std::string kind;
  double percent = 0;
};
// Of "tensor:0.5". nullopt: no such kind, or a number that is not between 0 and 100.
std::optional<PlantSpec> plant_spec(const std::string& text);

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
