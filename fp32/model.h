// The training step of the FP32 trainer: forward, backward and update as one line per op, each launch inside a leaf range. Only
// queues work on one stream; waits for nothing and allocates nothing once constructed.
#pragma once
#include <cstdint>

#include "fp32/matmul.h"
#include "fp32/memory_plan.h"
#include "fp32/variants.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops.h"
#include "gpt2/trainer.h"

namespace fp32 {

// What a step leaves on the device for the host to read.
struct StepStats {
  double loss = 0;
  double grad_norm = 0;
  float clip_scale = 0;
};

class Model {
 public:
  // Allocates the arenas of the plan.
  Model(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan, cudaStream_t stream);

  float* state(gpt2::State which) const;
  float* logits() const { return activation(plan_.activations.logits); }

  // Tokens (B,T) of the next forward, from pinned memory that stays until the copy has run.
  void upload_tokens(const int32_t* pinned_inputs, const int32_t* pinned_targets);
  // Up to the logits.
  void forward();
  // stats->loss = sum of token losses * loss_scale, or added to it; with gradient, the logits become dlogits * gradient_scale.
  void loss(StepStats* stats, double loss_scale, bool accumulate, bool write_gradient, float gradient_scale);
  // Gradients of all parameters from dlogits; overwritten, or added to when `accumulate`.
  void backward(bool accumulate);
  // Before the first micro-batch of a step; returns whether its backward must add to the (now zero) gradients.
  bool begin_gradients();
  void update(const gpt2::AdamW& settings, int64_t step, StepStats* stats);

  int64_t rows() const { return B_ * T_; }

 private:
  void layer_forward(int layer, const float* stream_in, float* stream_out);
  void layer_backward(int layer, const float* stream_in, bool accumulate);
  // Weight, bias and (when dinp is not null) input gradient of one linear layer.
  void linear_backward(float* dinp, gpt2::Tensor weight, gpt2::Tensor bias, int layer, const float* dout, const float* inp, int64_t in,
                       int64_t out_channels, bool accumulate);

  float* activation(const Slot& slot, int64_t layer = 0) const { return activations_.data() + slot.at(layer); }
  float* activation_gradient(const Slot& slot) const { return activation_gradients_.data() + slot.at(); }
  float* parameter(gpt2::Tensor t, int64_t layer = 0) const {
    return parameters_.data() + plan_.layout[t].offset + layer * plan_.layout[t].per_layer;
  }
  float* gradient(gpt2::Tensor t, int64_t layer = 0) const {
    return gradients_.data() + plan_.layout[t].offset + layer * plan_.layout[t].per_layer;
  }
  float* scratch() const { return reinterpret_cast<float*>(scratch_.data()); }

  gpt2::ModelConfig config_;
  VariantChoice variants_;
  MemoryPlan plan_;
  int64_t B_, T_, C_;
  cudaStream_t stream_;

  gpt2::cuda::DeviceBuffer<float> parameters_, gradients_, adam_m_, adam_v_;
  gpt2::cuda::DeviceBuffer<float> activations_, activation_gradients_;
  gpt2::cuda::DeviceBuffer<unsigned char> scratch_, workspace_;
  gpt2::cuda::DeviceBuffer<int32_t> tokens_;  // inputs, then targets
  MatmulEngine matmul_;
};

}  // namespace fp32
