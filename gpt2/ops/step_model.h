// What the training step of every GPU trainer stands on: the fp32 state of the optimizer, and the upload of scalars and tokens that a
// micro-batch begins with. A trainer's model adds the ops, one line each. Only queues work on one stream; a micro-batch waits for
// nothing and allocates nothing, so that all of it can be captured.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops/gradient_exchange.h"
#include "gpt2/ops/memory_plan.h"
#include "gpt2/ops/step_scalars.h"
#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace gpt2::ops {

// What the host sends before a micro-batch, in one copy: the scalars of its step, then inputs and targets (B,T) each.
inline constexpr int64_t kScalarBytes = 256;
static_assert(sizeof(StepScalars) <= kScalarBytes);

class StepModel {
 public:
  virtual ~StepModel() = default;
  StepModel(const StepModel&) = delete;
  StepModel& operator=(const StepModel&) = delete;

  // What the fp32 parameters are: what the model multiplies with, and then whole on every rank; the masters of narrower weights, which
  // ranks may divide; or nothing, where the trainer keeps them in another form, and state(State::parameters) is null.
  enum class Fp32 { weights, masters, none };

  // fp32: of a trainer with narrower weights, parameters are their masters; null where it keeps a state in another form. What this rank has of
  // it, in the order of its arena. Gradients in two arenas: the fp32 arena alone.
  float* state(State which) const;
  int64_t state_elements(State which) const;
  Held held(State which) const;
  StepStats* stats() const { return stats_.data(); }
  // (rows, padded vocabulary) after forward(), in the storage of the activations; after `loss` with gradient, their gradient.
  virtual const void* logits() const = 0;

  // Scalars and tokens of the next micro-batch from pinned memory of upload_bytes() that stays until the copy has run.
  void upload(const unsigned char* pinned);
  // Up to the logits.
  virtual void forward() = 0;
  // As forward, in front of a loss with gradient, and what such a loss reads: the logits, or what a model has instead of them.
  virtual void forward_to_loss() { forward(); }
  virtual bool trains_without_logits() const { return false; }
  // stats()->loss = sum of token losses * loss_scale, or added to it; with gradient, the logits become dlogits * gradient_scale, and whatever
  // takes their place becomes what backward() wants of it.
  virtual void loss(bool accumulate, bool write_gradient) = 0;
  // Gradients of all parameters from dlogits; overwritten, or added to when `accumulate`.
  virtual void backward(bool accumulate) = 0;
  // Before the first micro-batch of a step; returns whether its backward must add to the (now zero) gradients.
  virtual bool begin_gradients() = 0;
  // Gradient norm, clip factor, AdamW.
  virtual void update() = 0;

  // With other ranks; nullptr without a communicator.
  GradientExchange* exchange() const { return exchange_.get(); }
  // Around a backward pass whose gradients the ranks add up; nothing without a communicator.
  void begin_exchange();
  void end_exchange();
  // stats: the gradient norm and the loss over all ranks.
  void norm_over_ranks();
  // Before the forward pass of a step, where the ranks gather weights then: gather_ahead, or nothing. And all at once.
  virtual void gather_weights_ahead() = 0;
  virtual void gather_all_weights() = 0;
  bool gathers_ahead() const { return exchange_ && exchange_->plan().gathers_ahead(); }
  // Connects the ranks. Overwrites weights, gradients and stats.
  virtual void warm_up_exchange() = 0;

  int64_t rows() const { return rows_; }
  int64_t upload_bytes() const { return kScalarBytes + 2 * rows_ * static_cast<int64_t>(sizeof(int32_t)); }

 protected:
  // fp32_moments: false where the trainer keeps them in another form, and state() of both is null.
  StepModel(const PlannedMemory& plan, const TrainerOptions& options, Fp32 parameters, cudaStream_t stream, bool fp32_moments = true);

  const StepScalars* scalars() const { return reinterpret_cast<const StepScalars*>(input_.data()); }
  int32_t* inputs() const { return reinterpret_cast<int32_t*>(input_.data() + kScalarBytes); }
  int32_t* targets() const { return inputs() + rows_; }
  // Where a tensor begins in every flat vector.
  int64_t offset(Tensor t, int64_t layer = 0) const {
    return exchange_ ? exchange_->plan().buckets.at(t, layer) : layout_[t].offset + layer * layout_[t].per_layer;
  }
  float* gradient(Tensor t, int64_t layer = 0) const { return gradients_.data() + gradient_offset(t, layer); }
  // In the arena that holds it.
  int64_t gradient_offset(Tensor t, int64_t layer = 0) const {
    if (gradient_arenas_) return (*gradient_arenas_)[t] + layer * layout_[t].per_layer;
    const int64_t at = offset(t, layer), narrow = narrow_gradients_.size();
    return at < narrow ? at : at - narrow;
  }
  // With other ranks.
  BlockGradients block_gradients() const { return {gradients_.data(), narrow_gradients_.data(), narrow_gradients_.size()}; }
  // Gradients become zero, in the op zero_grad.
  void zero_gradients();
  // Weights of a layer, or with kNoLayer of the embedding, are read from here on.
  void weights_needed(int layer) {
    if (exchange_) exchange_->need(layer);
  }
  // The gradients of a layer, or with kNoLayer of everything, are as the backward pass leaves them.
  void gradients_ready(int layer) {
    if (exchange_) exchange_->ready(layer);
  }

  TensorLayout layout_;
  std::optional<GradientLayout> gradient_arenas_;  // PlannedMemory::gradient_arenas: of one rank
  int64_t rows_;
  Fp32 parameters_;
  cudaStream_t stream_;
  std::unique_ptr<GradientExchange> exchange_;
  cuda::DeviceBuffer<float> masters_, gradients_, adam_m_, adam_v_;
  cuda::DeviceBuffer<bf16> narrow_gradients_;  // empty unless some gradients lie in bf16
  cuda::DeviceBuffer<unsigned char> input_;
  cuda::DeviceBuffer<StepStats> stats_;
};

}  // namespace gpt2::ops
