// What `--plant-gpu` asks for: a kind of work on the device, and its cost.
#pragma once
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

}  // namespace gate
