// What the training step of every GPU trainer stands on: the fp32 state of the optimizer, and the upload of scalars and tokens that a
// micro-batch begins with. A trainer's model adds the ops, one line each. Only queues work on one stream; a micro-batch waits for
// nothing and allocates nothing, so that all of it can be captured.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops/step_scalars.h"
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

  // fp32: of a trainer with narrower weights, parameters are their masters.
  float* state(State which) const;
  StepStats* stats() const { return stats_.data(); }
  // (rows, padded vocabulary), in the storage of the activations; after `loss` with gradient, their gradient.
  virtual const void* logits() const = 0;

  // Scalars and tokens of the next micro-batch from pinned memory of upload_bytes() that stays until the copy has run.
  void upload(const unsigned char* pinned);
  // Up to the logits.
  virtual void forward() = 0;
  // stats()->loss = sum of token losses * loss_scale, or added to it; with gradient, the logits become dlogits * gradient_scale.
  virtual void loss(bool accumulate, bool write_gradient) = 0;
  // Gradients of all parameters from dlogits; overwritten, or added to when `accumulate`.
  virtual void backward(bool accumulate) = 0;
  // Before the first micro-batch of a step; returns whether its backward must add to the (now zero) gradients.
  virtual bool begin_gradients() = 0;
  // Gradient norm, clip factor, AdamW.
  virtual void update() = 0;

  int64_t rows() const { return rows_; }
  int64_t upload_bytes() const { return kScalarBytes + 2 * rows_ * static_cast<int64_t>(sizeof(int32_t)); }

 protected:
  // `parameters`: how many values each state has; `rows`: B * T.
  StepModel(int64_t parameters, int64_t rows, cudaStream_t stream);

  const StepScalars* scalars() const { return reinterpret_cast<const StepScalars*>(input_.data()); }
  int32_t* inputs() const { return reinterpret_cast<int32_t*>(input_.data() + kScalarBytes); }
  int32_t* targets() const { return inputs() + rows_; }
  // Gradients become zero, in the op zero_grad.
  void zero_gradients();

  int64_t rows_;
  cudaStream_t stream_;
  cuda::DeviceBuffer<float> masters_, gradients_, adam_m_, adam_v_;
  cuda::DeviceBuffer<unsigned char> input_;
  cuda::DeviceBuffer<StepStats> stats_;
};

}  // namespace gpt2::ops
