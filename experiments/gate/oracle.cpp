#include "experiments/gate/oracle.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

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
  const double clip = static_cast<double>(a.clip), lr = static_cast<double>(a.learning_rate);
  const double b1 = static_cast<double>(a.beta1), b2 = static_cast<double>(a.beta2);
  const double eps = static_cast<double>(a.eps), t = static_cast<double>(plan.step);
  const double scale = clip > 0 && outcome.grad_norm > clip ? clip / outcome.grad_norm : 1;
  const double correct_m = 1 - std::pow(b1, t), correct_v = 1 - std::pow(b2, t);
  const gpt2::TensorLayout layout = gpt2::tensor_layout(model_->config());
  const std::span<double> p = model_->parameters(), m = model_->adam_m(), v = model_->adam_v();
  const std::span<const double> g = model_->gradients();
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const double decay = row.decayed ? static_cast<double>(a.weight_decay) : 0;
    const auto begin = static_cast<size_t>(layout[row.id].offset),
               size = static_cast<size_t>(layout[row.id].size);
    for (size_t i = begin; i < begin + size; ++i) {
      const double clipped = g[i] * scale;
      m[i] = b1 * m[i] + (1 - b1) * clipped;
      v[i] = b2 * v[i] + (1 - b2) * clipped * clipped;
      p[i] -= lr * (m[i] / correct_m / (std::sqrt(v[i] / correct_v) + eps) + decay * p[i]);
    }
  }
  return outcome;
}

}  // namespace gate
