// The bugs that kernels have, made on the CPU: a right trainer whose answers pass through one defect. What
// tests/bugs proves with patched kernels on a device, this proves of the gate's checks on every machine.
#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "experiments/gate/model_gate.h"
#include "gpt2/reference/reference_trainer.h"
#include "gpt2/trainer.h"

namespace gate_test {

using gpt2::Batch;
using gpt2::State;

// What a defect may change. Every member may stay empty.
struct Defect {
  std::function<void(std::span<float> gradients, const gpt2::TrainerOptions&, const Batch& last)> gradients{};
  std::function<void(gpt2::StepPlan&)> plan{};
  // After the update, with the parameters before it.
  std::function<void(std::span<float> after, std::span<const float> before, const gpt2::StepPlan&, const gpt2::TrainerOptions&)>
      parameters{};
  std::function<void(gpt2::StepOutcome&)> outcome{};
  // `padding` is the largest value in the padded rows of wte.
  std::function<void(std::span<float> logits, double& loss, const Batch&, const gpt2::TrainerOptions&, float padding)> forward{};
  std::function<void(std::span<float> logits, double& loss)> evaluate_only{};
  // With the parameters that were last written.
  std::function<void(std::span<float> logits, std::span<const float> parameters, const gpt2::TrainerOptions&)> forward_of{};
  // What a moment holds before anything was written to it.
  std::optional<float> new_moments{};
  // The norm that is reported, from the gradients of the step.
  std::function<double(std::span<const float> gradients, const gpt2::TrainerOptions&)> norm{};
};

class BrokenTrainer : public gpt2::Trainer {
 public:
  BrokenTrainer(const gpt2::TrainerOptions& options, const Defect& defect)
      : right_(gpt2::make_reference_trainer(options)), defect_(defect) {}

  const gpt2::TrainerOptions& options() const override { return right_->options(); }
  std::string_view name() const override { return right_->name(); }
  std::string device() const override { return right_->device(); }
  std::vector<gpt2::MemoryItem> memory() const override { return right_->memory(); }

  void read(State which, std::span<float> values) override {
    right_->read(which, values);
    if (which != State::parameters && which != State::gradients && defect_.new_moments && !written_.contains(which))
      std::ranges::fill(values, *defect_.new_moments);
    if (which == State::gradients && defect_.gradients) defect_.gradients(values, options(), {last_inputs_, last_targets_});
  }
  void write(State which, std::span<const float> values) override {
    right_->write(which, values);
    written_.insert(which);
    if (which != State::parameters) return;
    parameters_.assign(values.begin(), values.end());
    const gpt2::ModelConfig& c = options().model;
    padding_ = c.padded_vocab > c.vocab_size ? values[static_cast<size_t>(c.vocab_size * c.channels)] : 0;
  }
  void enqueue_step(const gpt2::StepPlan& plan) override {
    gpt2::StepPlan changed = plan;
    if (defect_.plan) defect_.plan(changed);
    std::vector<float> before;
    if (defect_.parameters) {
      before.resize(static_cast<size_t>(gpt2::tensor_layout(options().model).total));
      right_->read(State::parameters, before);
    }
    right_->enqueue_step(changed);
    if (defect_.norm) {
      std::vector<float> gradients(static_cast<size_t>(gpt2::tensor_layout(options().model).total));
      right_->read(State::gradients, gradients);
      norms_.push_back(defect_.norm(gradients, options()));
    }
    if (defect_.parameters) {
      std::vector<float> after(before.size());
      right_->read(State::parameters, after);
      defect_.parameters(after, before, plan, options());
      right_->write(State::parameters, after);
    }
  }
  gpt2::StepOutcome finish_step() override {
    gpt2::StepOutcome outcome = right_->finish_step();
    if (defect_.outcome) defect_.outcome(outcome);
    if (!norms_.empty()) {
      outcome.grad_norm = norms_.front();
      norms_.pop_front();
    }
    return outcome;
  }
  double evaluate(const Batch& batch, std::span<float> logits) override {
    double loss = right_->evaluate(batch, logits);
    if (defect_.forward) defect_.forward(logits, loss, batch, options(), padding_);
    if (defect_.evaluate_only) defect_.evaluate_only(logits, loss);
    return loss;
  }
  double forward_backward(const Batch& batch, std::span<float> logits) override {
    last_inputs_.assign(batch.inputs.begin(), batch.inputs.end());
    last_targets_.assign(batch.targets.begin(), batch.targets.end());
    double loss = right_->forward_backward(batch, logits);
    if (defect_.forward) defect_.forward(logits, loss, batch, options(), padding_);
    if (defect_.forward_of) defect_.forward_of(logits, parameters_, options());
    return loss;
  }

 private:
  std::unique_ptr<gpt2::Trainer> right_;
  const Defect defect_;
  std::vector<int32_t> last_inputs_, last_targets_;
  std::vector<float> parameters_;
  std::deque<double> norms_;
  std::set<State> written_;
  float padding_ = 0;
};

inline gate::TrainerFactory broken(Defect defect) {
  return [defect](const gpt2::TrainerOptions& o) { return std::make_unique<BrokenTrainer>(o, defect); };
}

}  // namespace gate_test
