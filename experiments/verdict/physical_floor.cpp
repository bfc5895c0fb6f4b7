#include "experiments/verdict/physical_floor.h"

#include <fmt/format.h>

namespace experiments {

std::optional<double> matmul_floor_ns(const profiler::ProfileDocument& d) {
  const auto& share_pct = d.timing.of_matmul_ceiling_pct;
  const auto& rate = d.timing.model_flops_per_s;
  const auto& step_ns = d.timing.step_time_ns.median;
  if (!share_pct || !rate || !step_ns || !(*share_pct > 0)) return std::nullopt;
  return *step_ns * *share_pct / 100;
}

std::optional<std::string> below_physical_floor(double step_ns, const profiler::ProfileDocument& d) {
  const auto floor = matmul_floor_ns(d);
  if (!floor || !(step_ns < kBelowFloor * *floor)) return std::nullopt;
  return fmt::format(
      "floor: a step of {:.3f} ms is impossible: its matrix products alone need {:.3f} ms at the fastest "
      "rate measured on this device",
      step_ns * 1e-6, *floor * 1e-6);
}

}  // namespace experiments
