// The training step of the FP32 trainer: forward, backward and update as one line per op, each launch inside a leaf range. Only
// queues work on one stream; waits for nothing and allocates nothing once constructed.
#pragma once
#include <cstdint>

#include "fp32/matmul.h"
#include "fp32/memory_plan.h"
#include "fp32/variants.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops.h"
#include "gpt2/ops/step_model.h"
#include "gpt2/trainer.h"

namespace fp32 {

class Model final : public gpt2::ops::StepModel {
 public:
  // Allocates the arenas of the plan.
  Model(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan, cudaStream_t stream);

  const void* logits() const override { return activation(plan_.activations.logits); }
  void forward() override;
  void loss(bool accumulate, bool write_gradient) override;
  void backward(bool accumulate) override;
  bool begin_gradients() override;
  void update() override;
  void gather_weights_ahead() override;
  void gather_all_weights() override;
  void warm_up_exchange() override;

 private:
  void layer_forward(int layer, const float* stream_in, float* stream_out);
  void layer_backward(int layer, const float* stream_in, bool accumulate);
  // Weight, bias and input gradient of one linear layer.
  void linear_backward(float* dinp, gpt2::Tensor weight, gpt2::Tensor bias, int layer, const float* dout, const float* inp, int64_t in,
                       int64_t out_channels, bool accumulate);

  float* activation(const Slot& slot, int64_t layer = 0) const { return activations_.data() + slot.at(layer); }
  float* activation_gradient(const Slot& slot) const { return activation_gradients_.data() + slot.at(); }
  float* parameter(gpt2::Tensor t, int64_t layer = 0) const { return masters_.data() + offset(t, layer); }
  float* scratch() const { return reinterpret_cast<float*>(scratch_.data()); }

  gpt2::ModelConfig config_;
  VariantChoice variants_;
  MemoryPlan plan_;
  int64_t B_, T_, C_;

  gpt2::cuda::DeviceBuffer<float> activations_, activation_gradients_;
  gpt2::cuda::DeviceBuffer<unsigned char> scratch_, workspace_;
  MatmulEngine matmul_;
};

}  // namespace fp32
