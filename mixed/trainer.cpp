// gpt2::Trainer over the Model: tokens in, steps queued, outcomes out.
//
// Ring of three step slots for at most two unfinished steps: the third keeps the end event of the step before the oldest unfinished
// one, which is where that step's time begins.
#include "mixed/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/errors.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/op_range.h"
#include "gpt2/trainer_checks.h"
#include "mixed/attention_cudnn.h"
#include "mixed/fused_work.h"
#include "mixed/memory_plan.h"
#include "mixed/model.h"
#include "mixed/step_graph.h"
#include "mixed/variant_rows.h"

namespace mixed {
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
  PinnedBuffer<unsigned char> uploads;  // one after the other, as Model::upload takes them
  PinnedBuffer<StepStats> stats{1};
  int64_t step = 0;
  bool follows_previous = false;  // nothing but the step before used the device since its end
};

class MixedTrainer final : public gpt2::Trainer {
 public:
  MixedTrainer(const gpt2::TrainerOptions& options, const VariantChoice& variants, std::vector<std::string> notices, const MemoryPlan& plan,
               const gpt2::cuda::DeviceInfo& device)
      : options_(options),
        variants_(variants),
        notices_(std::move(notices)),
        plan_(plan),
        device_name_(device.name),
        model_(Model::make(options, variants, plan, stream_.get())) {
    {
      const gpt2::ListenerPause unheard;  // not a step: nobody's time is to be attributed to it
      model_->rehearse();
    }
    // A trainer starts from zero moments, whatever the memory held.
    zero(State::parameters);
    zero(State::gradients);
    zero(State::adam_m);
    zero(State::adam_v);
    model_->round_weights(false);
    // Steps fill every field, but the padding between them is copied to the host too.
    STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(model_->stats(), 0, sizeof(StepStats), stream_.get()));
    stream_.synchronize();
    used_bytes_ = device.memory_free_bytes - gpt2::cuda::device_info().memory_free_bytes;
  }
  ~MixedTrainer() override { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaStreamSynchronize(stream_.get())); }

  const gpt2::TrainerOptions& options() const override { return options_; }
  std::vector<std::string> notices() const override { return notices_; }
  std::string_view name() const override { return "mixed"; }
  std::string device() const override { return device_name_; }
  std::vector<gpt2::OpWork> work(int64_t micro_batches) const override { return fused_work(options_, variants_, micro_batches); }
  std::vector<gpt2::MemoryItem> memory() const override { return plan_.items; }
  std::optional<int64_t> memory_used_bytes() const override { return used_bytes_; }

  void read(State which, std::span<float> values) override {
    interrupted_ = true;
    check_size(values.size());
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(values.data(), model_->state(which), values.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()));
    stream_.synchronize();
  }

  void write(State which, std::span<const float> values) override {
    interrupted_ = true;
    check_size(values.size());
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(model_->state(which), values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream_.get()));
    if (which == State::parameters) {
      model_->round_weights(false);
      written_ = true;
    }
    stream_.synchronize();
  }

  void read_weights(std::span<float> values) override {
    interrupted_ = true;
    check_size(values.size());
    std::vector<bf16> rounded(values.size());
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    STEPSCOPE_CUDA_CHECK(
        cudaMemcpyAsync(rounded.data(), model_->weights(), rounded.size() * sizeof(bf16), cudaMemcpyDeviceToHost, stream_.get()));
    stream_.synchronize();
    std::transform(rounded.begin(), rounded.end(), values.begin(), [](bf16 x) { return __bfloat162float(x); });
  }

  void enqueue_step(const gpt2::StepPlan& plan) override {
    if (queued_ - finished_ >= kMostUnfinished) throw std::logic_error("enqueue_step: two steps are unfinished; call finish_step first");
    if (plan.micro_batches.empty()) throw stepscope::InputError("a step needs at least one micro-batch");
    if (plan.step < 1) throw stepscope::InputError(fmt::format("step {}: steps of AdamW count from 1", plan.step));
    for (const Batch& batch : plan.micro_batches) gpt2::check_batch(batch, options_);

    StepSlot& slot = slots_[static_cast<size_t>(queued_ % kSlots)];
    const auto micro_batches = static_cast<int64_t>(plan.micro_batches.size());
    // Grows when a step accumulates more than any before it. The slot is not in flight, so nothing reads the old memory.
    if (slot.uploads.size() < micro_batches * model_->upload_bytes())
      slot.uploads = PinnedBuffer<unsigned char>(micro_batches * model_->upload_bytes());
    const StepScalars scalars = scalars_of(plan);
    for (int64_t i = 0; i < micro_batches; ++i)
      fill_upload(slot.uploads.data() + i * model_->upload_bytes(), scalars, plan.micro_batches[static_cast<size_t>(i)]);

    slot.step = plan.step;
    slot.follows_previous = queued_ > 0 && !interrupted_;
    interrupted_ = false;
    slot.begin.record(stream_.get());
    const bool graph = as_graph() && plan.graph_allowed;
    for (int64_t i = 0; i < micro_batches; ++i) {
      model_->upload(slot.uploads.data() + i * model_->upload_bytes());
      if (written_ && options_.weight_rounding == "stochastic") model_->round_weights(true);
      written_ = false;
      if (micro_batches == 1)
        queue(graph, whole_step_, [&] {
          micro_batch(true);
          model_->update();
        });
      else
        queue(graph, i == 0 ? first_micro_batch_ : later_micro_batch_, [&] { micro_batch(i == 0); });
    }
    if (micro_batches > 1) queue(graph, update_, [&] { model_->update(); });
    download_stats(slot.stats.data());
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

  // One row comes back instead of the (B, T, V) of the default: 0.1 MB instead of 0.8 GB a token at B=4, T=1024.
  std::vector<float> next_token_logits(std::span<const int32_t> context) override {
    if (context.empty() || static_cast<int64_t>(context.size()) > options_.seq_len)
      throw std::logic_error("a context has 1 to seq_len tokens");
    interrupted_ = true;
    const int64_t rows = model_->rows();
    // Attention is causal, so whatever follows the context cannot reach the row that is read.
    std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
    std::copy(context.begin(), context.end(), tokens.begin());
    gpt2::check_tokens(tokens, "context", rows, options_.seq_len, options_.model.vocab_size);
    upload_once({tokens, tokens});
    model_->forward();
    const auto V = static_cast<size_t>(options_.model.vocab_size);
    std::vector<bf16> row(V);
    const bf16* from = model_->logits() + (static_cast<int64_t>(context.size()) - 1) * options_.model.padded_vocab;
    {
      const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
      STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(row.data(), from, V * sizeof(bf16), cudaMemcpyDeviceToHost, stream_.get()));
    }
    stream_.synchronize();
    std::vector<float> logits(V);
    std::transform(row.begin(), row.end(), logits.begin(), [](bf16 x) { return __bfloat162float(x); });
    return logits;
  }

 private:
  bool as_graph() const {
    switch (variants_.step_launch) {
      case StepLaunch::graph:
        return true;
      case StepLaunch::stream:
        return false;
    }
    return false;
  }

  void zero(State which) {
    const auto bytes = static_cast<size_t>(plan_.parameter_count) * sizeof(float);
    STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(model_->state(which), 0, bytes, stream_.get()));
  }

  void check_size(size_t size) const {
    if (static_cast<int64_t>(size) != plan_.layout.total)
      throw stepscope::InputError(fmt::format("state of {} values, expected the model's {} parameters", size, plan_.layout.total));
  }

  StepScalars scalars_of(const gpt2::StepPlan& plan) const { return mixed::scalars_of(plan, model_->rows()); }

  void fill_upload(unsigned char* pinned, const StepScalars& scalars, const Batch& batch) const {
    std::memcpy(pinned, &scalars, sizeof(scalars));
    auto* tokens = reinterpret_cast<int32_t*>(pinned + kScalarBytes);
    std::copy(batch.inputs.begin(), batch.inputs.end(), tokens);
    std::copy(batch.targets.begin(), batch.targets.end(), tokens + model_->rows());
  }

  template <class Work>
  void queue(bool graph, StepGraph& as_graph, const Work& work) {
    if (graph)
      as_graph.launch(stream_.get(), work);
    else
      work();
  }

  void micro_batch(bool first) {
    const bool add = first ? model_->begin_gradients() : true;
    model_->forward();
    model_->loss(!first, true);
    model_->backward(add);
  }

  void download_stats(StepStats* pinned) {
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(pinned, model_->stats(), sizeof(StepStats), cudaMemcpyDeviceToHost, stream_.get()));
  }

  // Logits without their padded columns.
  std::vector<bf16> download_logits(size_t count) {
    const int64_t V = options_.model.vocab_size;
    if (static_cast<int64_t>(count) != model_->rows() * V)
      throw stepscope::InputError(fmt::format("logits of {} values, expected B * T * V = {}", count, model_->rows() * V));
    std::vector<bf16> logits(count);
    const gpt2::OpRange range(gpt2::Pass::other, gpt2::kNoLayer, gpt2::Op::copy);
    const size_t width = static_cast<size_t>(V) * sizeof(bf16);
    const size_t pitch = static_cast<size_t>(options_.model.padded_vocab) * sizeof(bf16);
    STEPSCOPE_CUDA_CHECK(cudaMemcpy2DAsync(logits.data(), width, model_->logits(), pitch, width, static_cast<size_t>(model_->rows()),
                                           cudaMemcpyDeviceToHost, stream_.get()));
    return logits;
  }

  // Outside the steps, with a pinned buffer of its own.
  void upload_once(const Batch& batch) {
    if (once_upload_.size() == 0) once_upload_ = PinnedBuffer<unsigned char>(model_->upload_bytes());
    StepScalars scalars;
    scalars.loss_scale = 1.0 / static_cast<double>(model_->rows());
    scalars.gradient_scale = static_cast<float>(scalars.loss_scale);
    fill_upload(once_upload_.data(), scalars, batch);
    model_->upload(once_upload_.data());
  }

  // Host-synchronous.
  double run_once(const Batch& batch, std::span<float> logits, bool with_gradients) {
    interrupted_ = true;
    gpt2::check_batch(batch, options_);
    upload_once(batch);
    model_->forward();
    std::vector<bf16> rounded;
    if (!logits.empty()) rounded = download_logits(logits.size());  // before the classifier turns them into gradients
    model_->loss(false, with_gradients);
    if (with_gradients) model_->backward(model_->begin_gradients());
    download_stats(once_stats_.data());
    stream_.synchronize();
    std::transform(rounded.begin(), rounded.end(), logits.begin(), [](bf16 x) { return __bfloat162float(x); });
    return once_stats_.data()->loss;
  }

  gpt2::TrainerOptions options_;
  VariantChoice variants_;
  std::vector<std::string> notices_;
  MemoryPlan plan_;
  std::string device_name_;
  gpt2::cuda::Stream stream_;
  std::unique_ptr<Model> model_;
  StepGraph whole_step_, first_micro_batch_, later_micro_batch_, update_;
  std::array<StepSlot, kSlots> slots_;
  PinnedBuffer<unsigned char> once_upload_;
  PinnedBuffer<StepStats> once_stats_{1};
  int64_t used_bytes_ = 0;
  int64_t queued_ = 0;
  int64_t finished_ = 0;
  bool interrupted_ = false;  // something else than steps used the device since the last enqueue_step
  bool written_ = false;      // master weights came from outside since the last enqueue_step
};

}  // namespace

std::unique_ptr<gpt2::Trainer> make_mixed_trainer(const gpt2::TrainerOptions& options) {
  const VariantChoice wanted = choose_variants(options.variants, options.deterministic);  // what can be refused without a device is
  if (options.weight_rounding != "nearest" && options.weight_rounding != "stochastic")
    throw stepscope::InputError(fmt::format("--weight-rounding {}: expected nearest or stochastic", options.weight_rounding));
  if (options.matmul != "bf16")
    throw stepscope::InputError(fmt::format("--matmul {}: the mixed trainer multiplies in bf16", options.matmul));
  (void)recompute_from_name(options.recompute);
  const gpt2::cuda::DeviceInfo device = gpt2::cuda::device_info();
  gpt2::check_trainable_shape(options);
  MatmulEngine library(wanted.matmul_algorithm, nullptr);  // is asked, computes nothing
  const Run run{
      options, device.shared_bytes_per_block, [&](const Gemm& product) { return library.why_not(product); },
      [&](bool deterministic) {
        return why_no_cudnn_plan({options.batch_size, options.seq_len, options.model.channels, options.model.heads}, deterministic);
      }};
  const auto [choice, names, notices] = variants().settle(run, options.variants, options.deterministic);
  const MemoryPlan plan = plan_memory(options, choice);
  require_memory(plan, options, choice, device.memory_free_bytes - kReservedBytes, device.name);
  gpt2::TrainerOptions settled = options;
  settled.variants = names;
  return std::make_unique<MixedTrainer>(settled, choice, notices, plan, device);
}

std::vector<gpt2::VariantInfo> mixed_variants() { return variant_table(); }
std::vector<gpt2::VariantFacts> mixed_variant_facts() { return variants().facts(); }

}  // namespace mixed
