#include "experiments/gate/audited_trainer.h"

#include <vector>

namespace gate {
namespace {

using gpt2::Batch;
using gpt2::State;

class Audited final : public gpt2::Trainer {
 public:
  Audited(std::unique_ptr<gpt2::Trainer> real, const DeviceHooks* device, TrainerAudit& audit, Watchdog* dog)
      : real_(std::move(real)), device_(device), audit_(audit), dog_(dog) {
    look("construction");
  }

  const gpt2::TrainerOptions& options() const override { return real_->options(); }
  std::string_view name() const override { return real_->name(); }
  std::string device() const override { return real_->device(); }
  std::vector<gpt2::OpWork> work(int64_t micro_batches) const override { return real_->work(micro_batches); }
  std::vector<std::string> notices() const override { return real_->notices(); }
  std::vector<gpt2::MemoryItem> memory() const override { return real_->memory(); }
  std::optional<int64_t> memory_used_bytes() const override { return real_->memory_used_bytes(); }
  double logits_rounded_after_loss() const override { return real_->logits_rounded_after_loss(); }

  void read(State which, std::span<float> values) override {
    const Watchdog::Watched watched(dog_, "read");
    real_->read(which, values);
    look("read");
  }
  void write(State which, std::span<const float> values) override {
    const Watchdog::Watched watched(dog_, "write");
    real_->write(which, values);
    look("write");
  }
  void read_weights(std::span<float> values) override {
    const Watchdog::Watched watched(dog_, "read_weights");
    real_->read_weights(values);
    look("read_weights");
  }
  void enqueue_step(const gpt2::StepPlan& plan) override {
    const Watchdog::Watched watched(dog_, "enqueue_step");
    const Kept kept(plan.micro_batches);
    real_->enqueue_step(plan);
    audit_.tokens_changed += kept.changed(plan.micro_batches);
    look("enqueue_step");
  }
  gpt2::StepOutcome finish_step() override {
    const Watchdog::Watched watched(dog_, "finish_step");
    const gpt2::StepOutcome outcome = real_->finish_step();
    look("finish_step");
    return outcome;
  }
  double evaluate(const Batch& batch, std::span<float> logits) override {
    const Watchdog::Watched watched(dog_, "evaluate");
    const Kept kept({&batch, 1});
    const double loss = real_->evaluate(batch, logits);
    audit_.tokens_changed += kept.changed({&batch, 1});
    look("evaluate");
    return loss;
  }
  double forward_backward(const Batch& batch, std::span<float> logits) override {
    const Watchdog::Watched watched(dog_, "forward_backward");
    const Kept kept({&batch, 1});
    const double loss = real_->forward_backward(batch, logits);
    audit_.tokens_changed += kept.changed({&batch, 1});
    look("forward_backward");
    return loss;
  }
  std::vector<float> next_token_logits(std::span<const int32_t> context) override {
    const Watchdog::Watched watched(dog_, "next_token_logits");
    const Batch tokens{context, {}};  // it has no targets
    const Kept kept({&tokens, 1});
    std::vector<float> logits = real_->next_token_logits(context);
    audit_.tokens_changed += kept.changed({&tokens, 1});
    look("next_token_logits");
    return logits;
  }

 private:
  // A copy of the tokens of a call. The caller's spans are const; memory behind them need not be.
  class Kept {
   public:
    explicit Kept(std::span<const Batch> batches) {
      for (const Batch& b : batches) {
        tokens_.insert(tokens_.end(), b.inputs.begin(), b.inputs.end());
        tokens_.insert(tokens_.end(), b.targets.begin(), b.targets.end());
      }
    }
    int64_t changed(std::span<const Batch> batches) const {
      int64_t n = 0;
      auto was = tokens_.begin();
      for (const Batch& b : batches)
        for (const auto& tokens : {b.inputs, b.targets})
          for (const int32_t t : tokens) n += t != *was++;
      return n;
    }

   private:
    std::vector<int32_t> tokens_;
  };

  void look(const char* call) {
    if (device_ == nullptr || !device_->launch_error || !audit_.launch_error.empty()) return;
    if (const std::string error = device_->launch_error(); !error.empty()) audit_.launch_error = error + ", found after " + call;
  }

  std::unique_ptr<gpt2::Trainer> real_;
  const DeviceHooks* device_;
  TrainerAudit& audit_;
  Watchdog* dog_;
};

}  // namespace

std::unique_ptr<gpt2::Trainer> audited(std::unique_ptr<gpt2::Trainer> trainer, const DeviceHooks* device, TrainerAudit& audit,
                                       Watchdog* dog) {
  return std::make_unique<Audited>(std::move(trainer), device, audit, dog);
}

}  // namespace gate
