#include "mixed/step_scalars.h"

#include <cmath>

namespace mixed {

void set_update(StepScalars& s, const gpt2::AdamW& settings, int64_t step) {
  const double t = static_cast<double>(step);
  s.learning_rate = settings.learning_rate;
  s.beta1 = settings.beta1;
  s.beta2 = settings.beta2;
  s.one_minus_beta1 = 1.0f - settings.beta1;
  s.one_minus_beta2 = 1.0f - settings.beta2;
  s.correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(settings.beta1), t));
  s.correction2 = static_cast<float>(1.0 - std::pow(static_cast<double>(settings.beta2), t));
  s.eps = settings.eps;
  s.weight_decay = settings.weight_decay;
  s.clip = settings.clip;
  s.rounding_seed = static_cast<uint32_t>(step);
}

}  // namespace mixed
