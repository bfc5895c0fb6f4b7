#include "gpt2/ops/gpu_trainer.h"

#include <cuda_bf16.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "gpt2/op_range.h"
#include "gpt2/ops/rank_work.h"
#include "gpt2/trainer_checks.h"

namespace gpt2::ops {
namespace {

float to_fp32(float x) { return x; }
float to_fp32(__nv_bfloat16 x) { return __bfloat162float(x); }

}  // namespace

template <class S>
GpuTrainer<S>::GpuTrainer(Parts parts, const std::function<std::unique_ptr<StepModel>(cudaStream_t)>& make_model)
    : options_(std::move(parts.options)),
      notices_(std::move(parts.notices)),
      memory_(std::move(parts.memory)),
      device_name_(std::move(parts.device_name)),
      parameter_count_(tensor_layout(options_.model).total),
      model_(make_model(stream_.get())) {
  if (model_->exchange() == nullptr) return;
  const ListenerPause unheard;  // no part of any step
  model_->warm_up_exchange();
  stream_.synchronize();
}

template <class S>
GpuTrainer<S>::~GpuTrainer() {
  STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaStreamSynchronize(stream_.get()));
  if (model_->exchange() != nullptr) model_->exchange()->let_go();
}

template <class S>
void GpuTrainer<S>::start_from_zero() {
  for (const State which : {State::parameters, State::gradients, State::adam_m, State::adam_v}) {
    if (model_->state(which) == nullptr) continue;  // of another form: whoever derives clears it
    STEPSCOPE_CUDA_CHECK(
        cudaMemsetAsync(model_->state(which), 0, static_cast<size_t>(model_->state_elements(which)) * sizeof(float), stream_.get()));
  }
  // Steps fill every field, but the padding between them is copied to the host too.
  STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(model_->stats(), 0, sizeof(StepStats), stream_.get()));
}

template <class S>
void GpuTrainer<S>::read(State which, std::span<float> values) {
  interrupted_ = true;
  complete_weights();
  check_size(values.size());
  const OpRange range(Pass::other, kNoLayer, Op::copy);
  if (auto* ranks = model_->exchange()) return ranks->read(values, model_->state(which), model_->held(which));
  STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(values.data(), model_->state(which), values.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()));
  stream_.synchronize();
}

template <class S>
void GpuTrainer<S>::write(State which, std::span<const float> values) {
  interrupted_ = true;
  check_size(values.size());
  const OpRange range(Pass::other, kNoLayer, Op::copy);
  if (auto* ranks = model_->exchange())
    ranks->write(values, model_->state(which), model_->held(which));
  else
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(model_->state(which), values.data(), values.size_bytes(), cudaMemcpyHostToDevice, stream_.get()));
  if (which == State::parameters) parameters_written();
  stream_.synchronize();
}

template <class S>
void GpuTrainer<S>::enqueue_step(const StepPlan& plan) {
  if (queued_ - finished_ >= kMostUnfinished) throw std::logic_error("enqueue_step: two steps are unfinished; call finish_step first");
  if (plan.micro_batches.empty()) throw stepscope::InputError("a step needs at least one micro-batch");
  if (plan.step < 1) throw stepscope::InputError(fmt::format("step {}: steps of AdamW count from 1", plan.step));
  for (const Batch& batch : plan.micro_batches) check_batch(batch, options_);

  StepSlot& slot = slots_[static_cast<size_t>(queued_ % kSlots)];
  const auto micro_batches = static_cast<int64_t>(plan.micro_batches.size());
  // Grows when a step accumulates more than any before it. The slot is not in flight, so nothing reads the old memory.
  if (slot.uploads.size() < micro_batches * model_->upload_bytes())
    slot.uploads = cuda::PinnedBuffer<unsigned char>(micro_batches * model_->upload_bytes());
  const StepScalars scalars = scalars_of(plan, model_->rows() * ranks());
  for (int64_t i = 0; i < micro_batches; ++i)
    fill_upload(slot.uploads.data() + i * model_->upload_bytes(), scalars, plan.micro_batches[static_cast<size_t>(i)]);

  slot.step = plan.step;
  slot.follows_previous = queued_ > 0 && !interrupted_;
  interrupted_ = false;
  slot.begin.record(stream_.get());
  queue_step(plan, slot);
  download_stats(slot.stats.data());
  slot.end.record(stream_.get());
  ++queued_;
}

// With one micro-batch a step is one piece, so that it can be one graph. Ranks exchange gradients in the last micro-batch only.
template <class S>
void GpuTrainer<S>::queue_step(const StepPlan& plan, const StepSlot& slot) {
  const auto micro_batches = static_cast<int64_t>(plan.micro_batches.size());
  const auto micro_batch = [&](int64_t i) {
    const bool add = i == 0 ? model_->begin_gradients() : true;
    if (i == 0 && model_->gathers_ahead()) model_->gather_weights_ahead();
    model_->forward_to_loss();
    model_->loss(i > 0, true);
    if (i + 1 == micro_batches) model_->begin_exchange();
    model_->backward(add);
    model_->end_exchange();
  };
  const auto piece_of = [&](int64_t i) {
    if (i == 0) return Piece::first_micro_batch;
    return model_->exchange() != nullptr && i + 1 == micro_batches ? Piece::last_micro_batch : Piece::later_micro_batch;
  };
  for (int64_t i = 0; i < micro_batches; ++i) {
    model_->upload(slot.uploads.data() + i * model_->upload_bytes());
    uploaded();
    if (micro_batches == 1)
      queue(Piece::whole_step, plan.graph_allowed, [&] {
        micro_batch(0);
        model_->update();
      });
    else
      queue(piece_of(i), plan.graph_allowed, [&] { micro_batch(i); });
  }
  if (micro_batches > 1) queue(Piece::update, plan.graph_allowed, [&] { model_->update(); });
  weights_behind_ = model_->gathers_ahead();
}

template <class S>
void GpuTrainer<S>::queue(Piece, bool, const std::function<void()>& work) {
  work();
}

template <class S>
StepOutcome GpuTrainer<S>::finish_step() {
  if (finished_ == queued_) throw std::logic_error("finish_step: no step is unfinished");
  const StepSlot& slot = slots_[static_cast<size_t>(finished_ % kSlots)];
  wait_for(slot.end);
  StepOutcome outcome;
  outcome.step = slot.step;
  outcome.loss = slot.stats.data()->loss;
  outcome.grad_norm = slot.stats.data()->grad_norm;
  outcome.skipped = slot.stats.data()->clip_scale == kLeftOut;
  const cuda::Event& start = slot.follows_previous ? slots_[static_cast<size_t>((finished_ - 1) % kSlots)].end : slot.begin;
  outcome.time_ns = cuda::elapsed_ns(start, slot.end);
  ++finished_;
  return outcome;
}

// A rank that is gone leaves the others' kernels waiting for ever, so nothing here may wait for the device alone.
template <class S>
void GpuTrainer<S>::wait_for(const cuda::Event& end) {
  if (model_->exchange() == nullptr) return end.wait();
  distributed::Communicator& communicator = model_->exchange()->communicator();
  while (!end.reached()) {
    if (const auto failure = communicator.failure()) {
      if (failure->rank >= 0) throw distributed::RankFailure(*failure);
      throw stepscope::MachineError(failure->what);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

template <class S>
void GpuTrainer<S>::complete_weights() {
  if (!std::exchange(weights_behind_, false)) return;
  interrupted_ = true;
  model_->gather_all_weights();
}

template <class S>
double GpuTrainer<S>::evaluate(const Batch& batch, std::span<float> logits) {
  return run_once(batch, logits, /*with_gradients=*/false);
}
template <class S>
double GpuTrainer<S>::forward_backward(const Batch& batch, std::span<float> logits) {
  return run_once(batch, logits, /*with_gradients=*/true);
}

template <class S>
std::vector<float> GpuTrainer<S>::next_token_logits(std::span<const int32_t> context) {
  if (context.empty() || static_cast<int64_t>(context.size()) > options_.seq_len)
    throw std::logic_error("a context has 1 to seq_len tokens");
  interrupted_ = true;
  complete_weights();
  const int64_t rows = model_->rows();
  // Attention is causal, so whatever follows the context cannot reach the row that is read.
  std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
  std::copy(context.begin(), context.end(), tokens.begin());
  check_tokens(tokens, "context", rows, options_.seq_len, options_.model.vocab_size);
  upload_once({tokens, tokens}, rows);
  model_->forward();
  const auto V = static_cast<size_t>(options_.model.vocab_size);
  std::vector<S> row(V);
  const S* from = static_cast<const S*>(model_->logits()) + (static_cast<int64_t>(context.size()) - 1) * options_.model.padded_vocab;
  {
    const OpRange range(Pass::other, kNoLayer, Op::copy);
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(row.data(), from, V * sizeof(S), cudaMemcpyDeviceToHost, stream_.get()));
  }
  stream_.synchronize();
  std::vector<float> logits(V);
  std::transform(row.begin(), row.end(), logits.begin(), [](S x) { return to_fp32(x); });
  return logits;
}

template <class S>
std::vector<OpWork> GpuTrainer<S>::work_of_this_rank(std::vector<OpWork> alone) const {
  if (model_->exchange() == nullptr) return alone;
  return work_of_rank(std::move(alone), model_->exchange()->plan(), static_cast<int64_t>(sizeof(S)));
}

template <class S>
void GpuTrainer<S>::check_size(size_t size) const {
  if (static_cast<int64_t>(size) != parameter_count_)
    throw stepscope::InputError(fmt::format("state of {} values, expected the model's {} parameters", size, parameter_count_));
}

template <class S>
void GpuTrainer<S>::fill_upload(unsigned char* pinned, const StepScalars& scalars, const Batch& batch) const {
  std::memcpy(pinned, &scalars, sizeof(scalars));
  auto* tokens = reinterpret_cast<int32_t*>(pinned + kScalarBytes);
  std::copy(batch.inputs.begin(), batch.inputs.end(), tokens);
  std::copy(batch.targets.begin(), batch.targets.end(), tokens + model_->rows());
}

template <class S>
void GpuTrainer<S>::download_stats(StepStats* pinned) {
  const OpRange range(Pass::other, kNoLayer, Op::copy);
  STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(pinned, model_->stats(), sizeof(StepStats), cudaMemcpyDeviceToHost, stream_.get()));
}

// Logits without their padded columns.
template <class S>
std::vector<S> GpuTrainer<S>::download_logits(size_t count) {
  const int64_t V = options_.model.vocab_size;
  if (static_cast<int64_t>(count) != model_->rows() * V)
    throw stepscope::InputError(fmt::format("logits of {} values, expected B * T * V = {}", count, model_->rows() * V));
  std::vector<S> logits(count);
  const OpRange range(Pass::other, kNoLayer, Op::copy);
  const size_t width = static_cast<size_t>(V) * sizeof(S);
  const size_t pitch = static_cast<size_t>(options_.model.padded_vocab) * sizeof(S);
  STEPSCOPE_CUDA_CHECK(cudaMemcpy2DAsync(logits.data(), width, model_->logits(), pitch, width, static_cast<size_t>(model_->rows()),
                                         cudaMemcpyDeviceToHost, stream_.get()));
  return logits;
}

// Outside the steps, with a pinned buffer of its own.
template <class S>
void GpuTrainer<S>::upload_once(const Batch& batch, int64_t rows) {
  if (once_upload_.size() == 0) once_upload_ = cuda::PinnedBuffer<unsigned char>(model_->upload_bytes());
  StepScalars scalars;
  scalars.loss_scale = 1.0 / static_cast<double>(rows);
  scalars.gradient_scale = static_cast<float>(scalars.loss_scale);
  fill_upload(once_upload_.data(), scalars, batch);
  model_->upload(once_upload_.data());
}

// Host-synchronous.
template <class S>
double GpuTrainer<S>::run_once(const Batch& batch, std::span<float> logits, bool with_gradients) {
  interrupted_ = true;
  complete_weights();
  check_batch(batch, options_);
  upload_once(batch, model_->rows() * (with_gradients ? ranks() : 1));
  std::vector<S> stored;
  if (!with_gradients || !logits.empty()) model_->forward();
  if (!logits.empty()) stored = download_logits(logits.size());  // before the classifier turns them into gradients
  if (with_gradients && (logits.empty() || model_->trains_without_logits())) model_->forward_to_loss();
  model_->loss(false, with_gradients);
  if (with_gradients) {
    model_->begin_exchange();
    model_->backward(model_->begin_gradients());
    model_->end_exchange();
    model_->norm_over_ranks();
  }
  download_stats(once_stats_.data());
  stream_.synchronize();
  std::transform(stored.begin(), stored.end(), logits.begin(), [](S x) { return to_fp32(x); });
  return once_stats_.data()->loss;
}

template class GpuTrainer<float>;
template class GpuTrainer<__nv_bfloat16>;

}  // namespace gpt2::ops
