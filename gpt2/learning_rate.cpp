// Learning-rate schedules. The cosine is that of llm.c's train_gpt2 (get_lr), so that runs with equal flags
// can be compared.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/errors.h"
#include "gpt2/train_loop.h"

namespace gpt2 {

void check_schedule(std::string_view name) {
  if (name == "cosine" || name == "linear" || name == "constant" || name == "wsd") return;
  throw stepscope::InputError(fmt::format("--lr-schedule {}: expected cosine, linear, constant or wsd", name));
}

std::string LearningRate::misfit(int64_t steps) const {
  const auto share = [this](int64_t step) { return fmt::format("{:.3g}% of the peak", peak > 0 ? 100 * at(step) / peak : 0); };
  if (warmup > steps)
    return fmt::format("--lr-warmup {}: the run ends at step {}, before the learning rate is at its peak; its last is {}", warmup, steps,
                       share(steps - 1));
  if (schedule == "constant") return "";
  if (warmup > total)
    return fmt::format("--lr-warmup {}: the schedule ends at step {}, so the learning rate falls from its peak to {} at once", warmup,
                       total, share(warmup));
  if (total < steps)
    return fmt::format("--lr-total-steps {}: the schedule ends there, {} steps before the run; they train at {}", total, steps - total,
                       share(total));
  return "";
}

float LearningRate::at(int64_t step) const {
  if (step < warmup) return static_cast<float>(peak * static_cast<double>(step + 1) / static_cast<double>(warmup));
  if (schedule == "constant") return peak;
  // wsd holds the peak, then decays over the last fifth of the run; the others decay from the end of the
  // warm-up on.
  const int64_t begin = schedule == "wsd" ? std::max(warmup, total - total / 5) : warmup;
  if (step < begin) return peak;
  const double ratio = total > begin ? std::min(1.0, static_cast<double>(step - begin) / static_cast<double>(total - begin)) : 1.0;
  const double left = schedule == "cosine" ? 0.5 * (1.0 + std::cos(std::numbers::pi * ratio)) : 1.0 - ratio;
  const double last = static_cast<double>(peak) * final_fraction;
  return static_cast<float>(last + left * (peak - last));
}

}  // namespace gpt2
