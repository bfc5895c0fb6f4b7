#include "gpt2/ops/step_scalars.h"

#include <cmath>

namespace gpt2::ops {

StepScalars scalars_of(const gpt2::StepPlan& plan, int64_t rows) {
  const gpt2::AdamW& a = plan.adamw;
  const double t = static_cast<double>(plan.step);
  StepScalars s;
  s.loss_scale = 1.0 / (static_cast<double>(rows) * static_cast<double>(plan.micro_batches.size()));
  s.gradient_scale = static_cast<float>(s.loss_scale);
  s.learning_rate = a.learning_rate;
  s.beta1 = a.beta1;
  s.beta2 = a.beta2;
  s.one_minus_beta1 = 1.0f - a.beta1;
  s.one_minus_beta2 = 1.0f - a.beta2;
  s.correction1 = static_cast<float>(1.0 - std::pow(static_cast<double>(a.beta1), t));
  s.correction2 = static_cast<float>(1.0 - std::pow(static_cast<double>(a.beta2), t));
  s.eps = a.eps;
  s.weight_decay = a.weight_decay;
  s.clip = a.clip;
  s.skip_above_loss = plan.skip_above_loss;
  s.skip_above_grad_norm = plan.skip_above_grad_norm;
  s.rounding_seed = static_cast<uint32_t>(plan.step);
  return s;
}

}  // namespace gpt2::ops
