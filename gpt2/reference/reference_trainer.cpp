#include "gpt2/reference/reference_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/errors.h"
#include "gpt2/distributed/communicator.h"
#include "gpt2/op_range.h"
#include "gpt2/reference/reference_model.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace gpt2 {
namespace {

constexpr size_t kMaxUnfinished = 2;

class ReferenceTrainer final : public Trainer {
 public:
  explicit ReferenceTrainer(const TrainerOptions& options)
      : options_((check(options), options)), model_(options.model, options.batch_size, options.seq_len) {}

  const TrainerOptions& options() const override { return options_; }
  std::string_view name() const override { return "reference"; }
  std::string device() const override { return reference_device(); }

  void read(State which, std::span<float> values) override {
    last_end_.reset();
    const std::span<float> state = checked(which, values.size());
    std::copy(state.begin(), state.end(), values.begin());
  }
  void write(State which, std::span<const float> values) override {
    last_end_.reset();
    const std::span<float> state = checked(which, values.size());
    std::copy(values.begin(), values.end(), state.begin());
  }

  void enqueue_step(const StepPlan& plan) override {
    if (finished_.size() >= kMaxUnfinished) throw std::logic_error("enqueue_step: two steps are unfinished already");
    if (plan.micro_batches.empty()) throw stepscope::InputError("a step needs at least one micro-batch");
    for (const Batch& batch : plan.micro_batches) reference::check_batch(batch, options_.model, options_.batch_size, options_.seq_len);
    const auto begin = last_end_.value_or(std::chrono::steady_clock::now());
    StepOutcome outcome;
    outcome.step = plan.step;
    {
      const int64_t ranks = options_.communicator == nullptr ? 1 : options_.communicator->world().size;
      const double share = 1.0 / static_cast<double>(static_cast<int64_t>(plan.micro_batches.size()) * ranks);
      std::vector<double> losses;
      for (const Batch& batch : plan.micro_batches) losses.push_back(model_.forward_backward(batch, share, !losses.empty()));
      if (options_.communicator != nullptr) losses = exchange(losses, outcome);
      for (const double loss : losses) outcome.loss += share * loss;
      outcome.grad_norm = model_.gradient_norm();
      outcome.skipped = outcome.loss > plan.skip_above_loss || outcome.grad_norm > plan.skip_above_grad_norm;
      if (!outcome.skipped) model_.update(numbers(plan, outcome.grad_norm));
    }
    last_end_ = std::chrono::steady_clock::now();
    outcome.time_ns = std::chrono::duration<double, std::nano>(*last_end_ - begin).count();
    finished_.push_back(outcome);
  }

  StepOutcome finish_step() override {
    if (finished_.empty()) throw std::logic_error("finish_step: no step is unfinished");
    const StepOutcome outcome = finished_.front();
    finished_.pop_front();
    return outcome;
  }

  double evaluate(const Batch& batch, std::span<float> logits) override {
    last_end_.reset();
    check_logits(logits);
    const double loss = model_.forward(batch);
    copy_logits(logits);
    return loss;
  }

  double forward_backward(const Batch& batch, std::span<float> logits) override {
    last_end_.reset();
    check_logits(logits);
    return model_.forward_backward(batch, 1, false, [&] { copy_logits(logits); });
  }

  std::vector<MemoryItem> memory() const override {
    std::vector<MemoryItem> items = reference::planned_memory(options_.model, options_.batch_size, options_.seq_len, sizeof(float));
    items.push_back({"scratch", model_.scratch_bytes()});
    return items;
  }

 private:
  static void check(const TrainerOptions& options) {
    if (options.communicator != nullptr && !options.communicator->memory_is_host())
      throw std::logic_error("the reference trainer's gradients are in host memory");
    if (options.matmul != "fp32")
      throw stepscope::InputError(fmt::format("--matmul {}: the reference trainer has fp32 only", options.matmul));
    if (!options.variants.empty())
      throw stepscope::InputError(fmt::format("--variant {}={}: the reference trainer has no variants", options.variants.begin()->first,
                                              options.variants.begin()->second));
  }

  // Sums the gradients over the ranks. `mine`: the losses of this rank's micro-batches. Returns those of all ranks in the order in which
  // one rank would have trained on them, so that their sum has the same bits for any number of ranks.
  std::vector<double> exchange(const std::vector<double>& mine, StepOutcome& outcome) {
    distributed::Communicator& c = *options_.communicator;
    const size_t ranks = static_cast<size_t>(c.world().size), each = mine.size() + 1;
    std::vector<double> all(each * ranks);
    const auto own = all.begin() + static_cast<std::ptrdiff_t>(each * static_cast<size_t>(c.world().rank));
    std::copy(mine.begin(), mine.end(), own);
    own[static_cast<std::ptrdiff_t>(mine.size())] = model_.gradient_norm();
    {
      const OpRange range(Pass::communication, kNoLayer, Op::norm_gather);
      c.enqueue({distributed::CollectiveKind::all_gather, distributed::Element::fp64, static_cast<int64_t>(all.size()), -1}, all.data(),
                nullptr);
    }
    const std::span<float> gradients = model_.gradients();
    {
      const OpRange range(Pass::communication, kNoLayer, Op::reduce_gradients);
      c.enqueue({distributed::CollectiveKind::all_reduce, distributed::Element::fp32, static_cast<int64_t>(gradients.size()), 0},
                gradients.data(), nullptr);
    }
    for (size_t i = all.size(); i-- > 0;)
      if (!std::isfinite(all[i])) outcome.not_finite_rank = static_cast<int>(i / each);
    std::vector<double> in_order;
    for (size_t a = 0; a < mine.size(); ++a)
      for (size_t r = 0; r < ranks; ++r) in_order.push_back(all[r * each + a]);
    return in_order;
  }

  static reference::AdamWNumbers numbers(const StepPlan& plan, double grad_norm) {
    const AdamW& a = plan.adamw;
    double scale = 1;
    if (a.clip > 0 && grad_norm > static_cast<double>(a.clip)) scale = static_cast<double>(a.clip) / grad_norm;
    return {a.learning_rate, a.beta1, a.beta2, a.eps, a.weight_decay, scale, plan.step};
  }

  std::span<float> checked(State which, size_t size) {
    std::span<float> state;
    switch (which) {
      case State::parameters:
        state = model_.parameters();
        break;
      case State::gradients:
        state = model_.gradients();
        break;
      case State::adam_m:
        state = model_.adam_m();
        break;
      case State::adam_v:
        state = model_.adam_v();
        break;
    }
    if (size != state.size()) throw stepscope::InputError(fmt::format("state of {} values, expected {}", size, state.size()));
    return state;
  }

  void check_logits(std::span<const float> logits) const {
    const int64_t expected = options_.batch_size * options_.seq_len * options_.model.vocab_size;
    if (!logits.empty() && static_cast<int64_t>(logits.size()) != expected)
      throw stepscope::InputError(fmt::format("room for {} logits, expected {}", logits.size(), expected));
  }
  void copy_logits(std::span<float> logits) const {
    if (logits.empty()) return;
    const int64_t V = options_.model.vocab_size, Vp = options_.model.padded_vocab;
    const float* from = model_.logits().data();
    for (int64_t row = 0; row < options_.batch_size * options_.seq_len; ++row)
      std::copy(from + row * Vp, from + row * Vp + V, logits.data() + row * V);
  }

  TrainerOptions options_;
  reference::ReferenceModel<float> model_;
  std::deque<StepOutcome> finished_;
  // Of the last step, unless something else was done since: a step's time counts the idle time before it.
  std::optional<std::chrono::steady_clock::time_point> last_end_;
};

}  // namespace

std::unique_ptr<Trainer> make_reference_trainer(const TrainerOptions& options) { return std::make_unique<ReferenceTrainer>(options); }

std::string reference_device() {
#ifdef _OPENMP
  const int threads = omp_get_max_threads();
#else
  const int threads = 1;
#endif
  return fmt::format("CPU, {} thread{}", threads, threads == 1 ? "" : "s");
}

}  // namespace gpt2
