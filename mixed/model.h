// The training step of the mixed-precision trainer: forward, backward and update as one line per op, each launch inside a leaf range.
// Only queues work on one stream; waits for nothing and allocates nothing once constructed, so that all of it can be captured.
#pragma once
#include <cstdint>
#include <memory>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops.h"
#include "gpt2/ops/adamw.cuh"
#include "gpt2/ops/step_model.h"
#include "gpt2/trainer.h"
#include "mixed/matmul.h"
#include "mixed/memory_plan.h"
#include "mixed/variants.h"

namespace mixed {

class Model : public gpt2::ops::StepModel {
 public:
  // Allocates the arenas of the plan.
  static std::unique_ptr<Model> make(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan,
                                     cudaStream_t stream);

  // After the master weights were written: the bf16 weights, rounded to nearest, or as the last update of the step before would have
  // rounded them (`stochastic`, with the scalars of the coming step on the device).
  void round_weights(bool stochastic);
  const bf16* weights() const { return weights_.data(); }

  const void* logits() const override { return at<bf16>(plan_.activations.logits); }
  void loss(bool accumulate, bool write_gradient) override;
  bool begin_gradients() override;
  void update() override;

  // Before the first step, while nothing in memory matters: runs everything once on random weights and tokens, so that kernels are
  // loaded, cuDNN's kernels built and matmul algorithms searched before anything is timed or captured. Waits for the device.
  void rehearse();

 protected:
  Model(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan, cudaStream_t stream);

  template <class T>
  T* at(const Slot& slot, int64_t layer = 0) const {
    return reinterpret_cast<T*>(activations_.data() + slot.at(layer));
  }
  bf16* parameter(gpt2::Tensor t, int64_t layer = 0) const { return weights_.data() + offset(t, layer); }
  float* gradient(gpt2::Tensor t, int64_t layer = 0) const { return gradients_.data() + offset(t, layer); }
  int64_t offset(gpt2::Tensor t, int64_t layer) const { return plan_.layout[t].offset + layer * plan_.layout[t].per_layer; }
  float* scratch() const { return reinterpret_cast<float*>(scratch_.data()); }

  gpt2::ModelConfig config_;
  VariantChoice variants_;
  gpt2::ops::Rounding rounding_;
  MemoryPlan plan_;
  int64_t B_, T_, C_;

  gpt2::cuda::DeviceBuffer<bf16> weights_;
  gpt2::cuda::DeviceBuffer<unsigned char> activations_, scratch_, workspace_;
  MatmulEngine matmul_;
};

}  // namespace mixed
