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
