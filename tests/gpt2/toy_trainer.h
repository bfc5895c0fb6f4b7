// A trainer of one hundred lines whose arithmetic is deterministic and depends on every input it is given:
// weights, moments, step number, rate and tokens. So two runs agree bit for bit exactly when the loop fed
// them the same.
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "gpt2/trainer.h"

namespace gpt2::testing {

class ToyTrainer : public Trainer {
 public:
  explicit ToyTrainer(TrainerOptions options) : options_(std::move(options)) {
    p_ = init_parameters(options_.model, 3);
    m_.resize(p_.size());
    v_.resize(p_.size());
  }
  const TrainerOptions& options() const override { return options_; }
  std::string_view name() const override { return "reference"; }
  std::string device() const override { return "toy"; }
  void read(State which, std::span<float> values) override {
    require_idle("read");
    const auto& from = buffer(which);
    std::copy(from.begin(), from.end(), values.begin());
  }
  void write(State which, std::span<const float> values) override {
    require_idle("write");
    buffer(which).assign(values.begin(), values.end());
  }
  void enqueue_step(const StepPlan& plan) override {
    if (unfinished_.size() == 2) throw std::logic_error("more than two unfinished steps");
    most_unfinished = std::max(most_unfinished, unfinished_.size() + 1);
    double loss = 0;
    for (const Batch& batch : plan.micro_batches) {
      for (size_t i = 0; i < batch.inputs.size(); ++i) {
        const size_t at = static_cast<size_t>(batch.inputs[i] * 31 + batch.targets[i]) % p_.size();
        const float g = p_[at] + static_cast<float>(batch.targets[i] % 7 - 3);
        m_[at] = plan.adamw.beta1 * m_[at] + (1 - plan.adamw.beta1) * g;
        v_[at] = plan.adamw.beta2 * v_[at] + (1 - plan.adamw.beta2) * g * g;
        const float bias = 1 - std::pow(plan.adamw.beta1, static_cast<float>(plan.step));
        p_[at] -= plan.adamw.learning_rate * m_[at] / bias / (std::sqrt(v_[at]) + 1e-3f);
        loss += std::abs(static_cast<double>(g));
      }
      seen.insert(seen.end(), batch.inputs.begin(), batch.inputs.end());
    }
    if (plan.step == spikes_at) loss *= 100;
    if (plan.step == diverge_at) loss = std::numeric_limits<double>::quiet_NaN();
    rates.push_back(plan.adamw.learning_rate);
    if (!plan.graph_allowed) direct.push_back(plan.step);
    const double norm = plan.step == norm_diverges_at ? std::numeric_limits<double>::infinity() : std::sqrt(std::abs(loss));
    loss_limits.push_back(plan.skip_above_loss);
    norm_limits.push_back(plan.skip_above_grad_norm);
    unfinished_.push_back({plan.step, loss, norm, 1e6});
    unfinished_.back().skipped = loss > plan.skip_above_loss || norm > plan.skip_above_grad_norm;
    weights_behind_ = true;
  }
  StepOutcome finish_step() override {
    const StepOutcome o = unfinished_.at(0);
    unfinished_.pop_front();
    return o;
  }
  void complete_weights() override {
    require_idle("complete_weights");
    weights_behind_ = false;
  }
  double evaluate(const Batch& batch, std::span<float> logits) override {
    require_idle("evaluate");
    if (weights_behind_) throw std::logic_error("evaluate before complete_weights");
    evaluated.emplace_back(batch.inputs.begin(), batch.inputs.end());
    const size_t V = static_cast<size_t>(options_.model.vocab_size);
    for (size_t i = 0; i < logits.size() / V; ++i)  // each token is followed by the next number
      for (size_t w = 0; w < V; ++w) logits[i * V + w] = w == static_cast<size_t>(batch.inputs[i] + 1) % V ? 5.0f : 0.0f;
    return std::accumulate(p_.begin(), p_.end(), 0.0);
  }
  double forward_backward(const Batch& batch, std::span<float> logits) override { return evaluate(batch, logits); }
  std::vector<MemoryItem> memory() const override { return {{"parameters", static_cast<int64_t>(4 * p_.size())}}; }

  int64_t spikes_at = -1;
  std::vector<double> loss_limits, norm_limits;
  int64_t diverge_at = -1, norm_diverges_at = -1;
  std::vector<int64_t> direct;  // steps that may not be a graph
  size_t most_unfinished = 0;
  std::vector<int32_t> seen;                    // all inputs trained on
  std::vector<std::vector<int32_t>> evaluated;  // inputs of each evaluate()
  std::vector<float> rates;

 private:
  void require_idle(const char* what) const {
    if (!unfinished_.empty()) throw std::logic_error(std::string(what) + " between unfinished steps");
  }
  std::vector<float>& buffer(State which) {
    if (which == State::parameters) return p_;
    if (which == State::adam_m) return m_;
    if (which == State::adam_v) return v_;
    throw std::logic_error("no such state");
  }
  TrainerOptions options_;
  std::vector<float> p_, m_, v_;
  std::deque<StepOutcome> unfinished_;
  bool weights_behind_ = false;  // as of ranks that gather weights in the next step
};

inline TrainerOptions toy_options(int64_t batch_size = 2, int64_t seq_len = 8) {
  TrainerOptions o;
  o.model = {16, 50, 64, 1, 2, 8};
  o.batch_size = batch_size;
  o.seq_len = seq_len;
  return o;
}

}  // namespace gpt2::testing
