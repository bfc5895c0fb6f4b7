// The training step of the mixed-precision trainer: forward, backward and update as one line per op, each launch inside a leaf range.
// Only queues work on one stream; waits for nothing and allocates nothing once constructed, so that all of it can be captured.
#pragma once
#include <cstdint>
#include <memory>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops.h"
#include "gpt2/trainer.h"
#include "mixed/kernels/adamw.cuh"
#include "mixed/matmul.h"
#include "mixed/memory_plan.h"
#include "mixed/step_scalars.h"
#include "mixed/variants.h"

namespace mixed {

// What the host sends before a micro-batch, in one copy: the scalars of its step, then inputs and targets (B,T) each.
inline constexpr int64_t kScalarBytes = 256;
static_assert(sizeof(StepScalars) <= kScalarBytes);

class Model {
 public:
  // Allocates the arenas of the plan.
  static std::unique_ptr<Model> make(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan,
                                     cudaStream_t stream);
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // fp32: parameters are the master weights.
  float* state(gpt2::State which) const;
  // After the master weights were written: the bf16 weights, rounded to nearest, or as the last update of the step before would have
  // rounded them (`stochastic`, with the scalars of the coming step on the device).
  void round_weights(bool stochastic);
  const bf16* weights() const { return weights_.data(); }
  bf16* logits() const { return at<bf16>(plan_.activations.logits); }
  StepStats* stats() const { return stats_.data(); }

  // Scalars and tokens of the next micro-batch from pinned memory that stays until the copy has run: kScalarBytes, then 2 * B * T
  // int32.
  void upload(const unsigned char* pinned);
  // Up to the logits.
  virtual void forward() = 0;
  // stats()->loss = sum of token losses * loss_scale, or added to it; with gradient, the logits become dlogits * gradient_scale.
  void loss(bool accumulate, bool write_gradient);
  // Gradients of all parameters from dlogits; overwritten, or added to when `accumulate`.
  virtual void backward(bool accumulate) = 0;
  // Before the first micro-batch of a step; returns whether its backward must add to the (now zero) gradients.
  bool begin_gradients();
  void update();

  // Before the first step, while nothing in memory matters: runs everything once on random weights and tokens, so that kernels are
  // loaded, cuDNN's kernels built and matmul algorithms searched before anything is timed or captured. Waits for the device.
  void rehearse();

  int64_t rows() const { return B_ * T_; }
  int64_t upload_bytes() const { return kScalarBytes + plan_.token_count * static_cast<int64_t>(sizeof(int32_t)); }

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
  const StepScalars* scalars() const { return reinterpret_cast<const StepScalars*>(input_.data()); }
  int32_t* tokens() const { return reinterpret_cast<int32_t*>(input_.data() + kScalarBytes); }

  gpt2::ModelConfig config_;
  VariantChoice variants_;
  Rounding rounding_;
  MemoryPlan plan_;
  int64_t B_, T_, C_;
  cudaStream_t stream_;

  gpt2::cuda::DeviceBuffer<bf16> weights_;
  gpt2::cuda::DeviceBuffer<float> master_, gradients_, adam_m_, adam_v_;
  gpt2::cuda::DeviceBuffer<unsigned char> activations_, scratch_, workspace_, input_;
  gpt2::cuda::DeviceBuffer<StepStats> stats_;
  MatmulEngine matmul_;
};

}  // namespace mixed
