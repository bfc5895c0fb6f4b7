#include "experiments/gate/oracle.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "experiments/gate/op_oracle.h"
#include "gpt2/reference/reference_model.h"

namespace gate {

using gpt2::State;

Oracle::Oracle(const gpt2::ModelConfig& config, int64_t batch_size, int64_t seq_len)
    : model_(std::make_unique<gpt2::reference::ReferenceModel<double>>(config, batch_size, seq_len)) {}
Oracle::~Oracle() = default;

void Oracle::set(State which, std::span<const float> values) {
  if (which == State::gradients) throw std::logic_error("the oracle computes its gradients itself");
  const std::span<double> to = which == State::parameters ? model_->parameters()
                               : which == State::adam_m   ? model_->adam_m()
                                                          : model_->adam_v();
  if (to.size() != values.size()) throw std::logic_error("oracle: state of another model");
  std::copy(values.begin(), values.end(), to.begin());
}

std::span<const double> Oracle::parameters() const { return model_->parameters(); }
std::span<const double> Oracle::gradients() const { return model_->gradients(); }
std::span<const double> Oracle::adam_m() const { return model_->adam_m(); }
std::span<const double> Oracle::adam_v() const { return model_->adam_v(); }
double Oracle::grad_norm() const {
  double sum = 0;
  for (double g : gradients()) sum += g * g;
  return std::sqrt(sum);
}

double Oracle::forward_backward(std::span<const gpt2::Batch> micro_batches) {
  const auto rows = static_cast<size_t>(model_->batch_size() * model_->seq_len());
  const auto V = static_cast<size_t>(model_->config().vocab_size),
             Vp = static_cast<size_t>(model_->config().padded_vocab);
  const double share = 1.0 / static_cast<double>(micro_batches.size());
  double loss = 0;
  bool accumulate = false;
  for (const gpt2::Batch& batch : micro_batches) {
    loss += share * model_->forward(batch);
    logits_.resize(rows * V);
    for (size_t r = 0; r < rows; ++r) {  // before backward(), which replaces them
      const auto from = model_->logits().subspan(r * Vp, V);
      std::copy(from.begin(), from.end(), logits_.begin() + static_cast<int64_t>(r * V));
    }
    model_->backward(share, accumulate);
    accumulate = true;
  }
  return loss;
}

gpt2::StepOutcome Oracle::step(const gpt2::StepPlan& plan) {
  gpt2::StepOutcome outcome;
  outcome.step = plan.step;
  outcome.loss = forward_backward(plan.micro_batches);
  outcome.grad_norm = grad_norm();
  const gpt2::AdamW& a = plan.adamw;
  const double clip = static_cast<double>(a.clip);
  const double scale = clip > 0 && outcome.grad_norm > clip ? clip / outcome.grad_norm : 1;
  oracle::adamw(model_->parameters(), model_->adam_m(), model_->adam_v(), model_->gradients(),
                gpt2::tensor_layout(model_->config()), a, plan.step, scale);
  return outcome;
}

}  // namespace gate
