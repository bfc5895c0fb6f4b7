#include "experiments/gate/plant_spec.h"

#include <cstdlib>

namespace gate {

std::optional<PlantSpec> plant_spec(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  PlantSpec out{text.substr(0, colon), 0};
  if (out.kind != "tensor" && out.kind != "dram" && out.kind != "idle") return std::nullopt;
  const std::string number = text.substr(colon + 1);
  char* end = nullptr;
  out.percent = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0' || !(out.percent >= 0 && out.percent <= 100)) return std::nullopt;
  return out;
}

}  // namespace gate
