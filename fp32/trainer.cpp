// gpt2::Trainer over the Model: tokens in, steps queued, outcomes out.
//
// Ring of three step slots for at most two unfinished steps: the third keeps the end event of the step before the oldest unfinished
// one, which is where that step's time begins.
#include "fp32/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "base/errors.h"
#include "fp32/memory_plan.h"
#include "fp32/model.h"
#include "fp32/variant_rows.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/op_range.h"
#include "gpt2/trainer_checks.h"

namespace fp32 {
namespace {

using gpt2::Batch;
using gpt2::State;
using gpt2::cuda::DeviceBuffer;
using gpt2::cuda::Event;
using gpt2::cuda::PinnedBuffer;

constexpr int64_t kSlots = 3;
constexpr int64_t kMostUnfinished = 2;
// Left to the libraries: kernels are loaded lazily, and cuBLASLt keeps some memory of its own.
constexpr int64_t kReservedBytes = int64_t{512} << 20;

// Owner of everything that a step in flight needs besides the model.
struct StepSlot {
  Event begin, end;
  PinnedBuffer<int32_t> tokens;  // inputs, targets of every micro-batch
  PinnedBuffer<StepStats> stats{1};
  int64_t step = 0;
  bool follows_previous = false;  // nothing but the step before used the device since its end
};

class Fp32Trainer final : public gpt2::Trainer {
 public:
  Fp32Trainer(const gpt2::TrainerOptions& options, const VariantChoice& variants, std::vector<std::string> notices, const MemoryPlan& plan,
              std::string device_name)
      : options_(options),
        notices_(std::move(notices)),
        plan_(plan),
        device_name_(std::move(device_name)),
        model_(options, variants, plan, stream_.get()),
        stats_(kSlots + 1) {
    // A trainer starts from zero moments, whatever the memory held.
    zero(State::parameters);
    zero(State::gradients);
    zero(State::adam_m);
    zero(State::adam_v);
    // Steps fill every field, but the padding between them is copied to the host too.
    STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(stats_.data(), 0, (kSlots + 1) * sizeof(StepStats), stream_.get()));
    stream_.synchronize();
  }
  ~Fp32Trainer() override { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaStreamSynchronize(stream_.get())); }

  const gpt2::TrainerOptions& options() const override { return options_; }
  std::vector<std::string> notices() const override { return notices_; }
  std::string_view name() const override { return "fp32"; }
  std::string device() const override { return device_name_; }
  std::vector<gpt2::MemoryItem> memory() const override { return plan_.items; }

  void read(State which, std::span<float> values) override {
    interrupted_ = true;
    check_size(values.size());
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(values.data(), model_.state(which), values.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()));
    stream_.synchronize();
  }

  void write(State which, std::span<const float> values) override {
    interrupted_ = true;
    check_size(values.size());
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(model_.state(which), values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream_.get()));
    stream_.synchronize();
  }

  void enqueue_step(const gpt2::StepPlan& plan) override {
    if (queued_ - finished_ >= kMostUnfinished) throw std::logic_error("enqueue_step: two steps are unfinished; call finish_step first");
    if (plan.micro_batches.empty()) throw stepscope::InputError("a step needs at least one micro-batch");
    if (plan.step < 1) throw stepscope::InputError(fmt::format("step {}: steps of AdamW count from 1", plan.step));
    for (const Batch& batch : plan.micro_batches) gpt2::check_batch(batch, options_);

    StepSlot& slot = slots_[static_cast<size_t>(queued_ % kSlots)];
    const auto micro_batches = static_cast<int64_t>(plan.micro_batches.size());
    const int64_t rows = model_.rows();
    // Grows when a step accumulates more than any before it. The slot is not in flight, so nothing reads the old memory.
    if (slot.tokens.size() < 2 * rows * micro_batches) slot.tokens = PinnedBuffer<int32_t>(2 * rows * micro_batches);
    for (int64_t i = 0; i < micro_batches; ++i) {
      const Batch& batch = plan.micro_batches[static_cast<size_t>(i)];
      std::copy(batch.inputs.begin(), batch.inputs.end(), slot.tokens.data() + 2 * i * rows);
      std::copy(batch.targets.begin(), batch.targets.end(), slot.tokens.data() + (2 * i + 1) * rows);
    }

    slot.step = plan.step;
    slot.follows_previous = queued_ > 0 && !interrupted_;
    interrupted_ = false;
    slot.begin.record(stream_.get());
    StepStats* stats = stats_.data() + queued_ % kSlots;
    const double tokens = static_cast<double>(rows) * static_cast<double>(micro_batches);
    const bool add_from_the_start = model_.begin_gradients();
    for (int64_t i = 0; i < micro_batches; ++i) {
      model_.upload_tokens(slot.tokens.data() + 2 * i * rows, slot.tokens.data() + (2 * i + 1) * rows);
      model_.forward();
      model_.loss(stats, 1.0 / tokens, i > 0, true, static_cast<float>(1.0 / tokens));
      model_.backward(i > 0 || add_from_the_start);
    }
    model_.update(plan.adamw, plan.step, stats);
    download_stats(stats, slot.stats.data());
    slot.end.record(stream_.get());
    ++queued_;
  }

  gpt2::StepOutcome finish_step() override {
    if (finished_ == queued_) throw std::logic_error("finish_step: no step is unfinished");
    const StepSlot& slot = slots_[static_cast<size_t>(finished_ % kSlots)];
    slot.end.wait();
    gpt2::StepOutcome outcome;
    outcome.step = slot.step;
    outcome.loss = slot.stats.data()->loss;
    outcome.grad_norm = slot.stats.data()->grad_norm;
    const Event& start = slot.follows_previous ? slots_[static_cast<size_t>((finished_ - 1) % kSlots)].end : slot.begin;
    outcome.time_ns = gpt2::cuda::elapsed_ns(start, slot.end);
    ++finished_;
    return outcome;
  }

  void* stream() const override { return stream_.get(); }

  double evaluate(const Batch& batch, std::span<float> logits) override { return run_once(batch, logits, /*with_gradients=*/false); }
  double forward_backward(const Batch& batch, std::span<float> logits) override { return run_once(batch, logits, /*with_gradients=*/true); }

  // One row comes back instead of the (B, T, V) of the default: 0.2 MB instead of 0.8 GB a token at B=4, T=1024.
  std::vector<float> next_token_logits(std::span<const int32_t> context) override {
    if (context.empty() || static_cast<int64_t>(context.size()) > options_.seq_len)
      throw std::logic_error("a context has 1 to seq_len tokens");
    interrupted_ = true;
    const int64_t rows = model_.rows();
    // Attention is causal, so whatever follows the context cannot reach the row that is read.
    std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
    std::copy(context.begin(), context.end(), tokens.begin());
    gpt2::check_tokens(tokens, "context", rows, options_.seq_len, options_.model.vocab_size);
    upload_once({tokens, tokens});
    model_.forward();
    std::vector<float> logits(static_cast<size_t>(options_.model.vocab_size));
    const float* row = model_.logits() + (static_cast<int64_t>(context.size()) - 1) * options_.model.padded_vocab;
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(logits.data(), row, logits.size() * sizeof(float), cudaMemcpyDeviceToHost, stream_.get()));
    stream_.synchronize();
    return logits;
  }

 private:
  void zero(State which) {
    const auto bytes = static_cast<size_t>(plan_.parameter_floats) * sizeof(float);
    STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(model_.state(which), 0, bytes, stream_.get()));
  }

  void check_size(size_t size) const {
    if (static_cast<int64_t>(size) != plan_.layout.total)
      throw stepscope::InputError(fmt::format("state of {} values, expected the model's {} parameters", size, plan_.layout.total));
  }

  void download_stats(const StepStats* from, StepStats* pinned) {
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(pinned, from, sizeof(StepStats), cudaMemcpyDeviceToHost, stream_.get()));
  }

  // Logits without their padded columns.
  void download_logits(std::span<float> logits) {
    const int64_t V = options_.model.vocab_size;
    if (static_cast<int64_t>(logits.size()) != model_.rows() * V)
      throw stepscope::InputError(fmt::format("logits of {} values, expected B * T * V = {}", logits.size(), model_.rows() * V));
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    const size_t width = static_cast<size_t>(V) * sizeof(float);
    const size_t pitch = static_cast<size_t>(options_.model.padded_vocab) * sizeof(float);
    STEPSCOPE_CUDA_CHECK(cudaMemcpy2DAsync(logits.data(), width, model_.logits(), pitch, width, static_cast<size_t>(model_.rows()),
                                           cudaMemcpyDeviceToHost, stream_.get()));
  }

  // Outside the steps, with pinned tokens of its own.
  void upload_once(const Batch& batch) {
    const int64_t rows = model_.rows();
    if (once_tokens_.size() == 0) once_tokens_ = PinnedBuffer<int32_t>(2 * rows);
    std::copy(batch.inputs.begin(), batch.inputs.end(), once_tokens_.data());
    std::copy(batch.targets.begin(), batch.targets.end(), once_tokens_.data() + rows);
    model_.upload_tokens(once_tokens_.data(), once_tokens_.data() + rows);
  }

  // Host-synchronous, outside the steps; has its own place for the loss.
  double run_once(const Batch& batch, std::span<float> logits, bool with_gradients) {
    interrupted_ = true;
    gpt2::check_batch(batch, options_);
    upload_once(batch);
    StepStats* stats = stats_.data() + kSlots;
    const double scale = 1.0 / static_cast<double>(model_.rows());
    model_.forward();
    if (!logits.empty()) download_logits(logits);  // before the classifier turns them into gradients
    model_.loss(stats, scale, false, with_gradients, static_cast<float>(scale));
    if (with_gradients) model_.backward(model_.begin_gradients());
    download_stats(stats, once_stats_.data());
    stream_.synchronize();
    return once_stats_.data()->loss;
  }

  gpt2::TrainerOptions options_;
  std::vector<std::string> notices_;
  MemoryPlan plan_;
  std::string device_name_;
  gpt2::cuda::Stream stream_;
  Model model_;
  DeviceBuffer<StepStats> stats_;  // one per slot, the last for run_once
  std::array<StepSlot, kSlots> slots_;
  PinnedBuffer<int32_t> once_tokens_;
  PinnedBuffer<StepStats> once_stats_{1};
  int64_t queued_ = 0;
  int64_t finished_ = 0;
  bool interrupted_ = false;  // something else than steps used the device since the last enqueue_step
};

}  // namespace

std::unique_ptr<gpt2::Trainer> make_fp32_trainer(const gpt2::TrainerOptions& options) {
  (void)choose_variants(options.variants);  // what can be refused without a device is
  const MatmulRate rate = matmul_rate_from_name(options.matmul);
  gpt2::check_trainable_shape(options);
  const gpt2::cuda::DeviceInfo device = gpt2::cuda::device_info();
  MatmulEngine library(rate, nullptr);  // is asked, computes nothing
  const auto [variants, names, notices] = fp32::variants().settle(
      {options, device.shared_bytes_per_block, [&](const Gemm& product) { return library.why_not(product); }}, options.variants, false);
  const MemoryPlan plan = plan_memory(options, variants);
  require_memory(plan, options, variants, device.memory_free_bytes - kReservedBytes, device.name);
  gpt2::TrainerOptions settled = options;
  settled.variants = names;
  return std::make_unique<Fp32Trainer>(settled, variants, notices, plan, device.name);
}

std::vector<gpt2::VariantInfo> fp32_variants() { return variant_table(); }
std::vector<gpt2::VariantFacts> fp32_variant_facts() { return variants().facts(); }

}  // namespace fp32
