// The judge: GPT-2 in double precision on the CPU, with an AdamW written out again from its definition in
// gpt2/trainer.h, so that a mistake in a trainer's optimizer is not repeated here. State is set from the fp32
// values that the trainer holds: both start from the same rounded numbers, and what remains is the trainer's
// own error.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpt2/trainer.h"

namespace gpt2::reference {
template <typename Real>
class ReferenceModel;
}

namespace gate {

struct Storage;

class Oracle {
 public:
  Oracle(const gpt2::ModelConfig& config, int64_t batch_size, int64_t seq_len);
  ~Oracle();
  Oracle(const Oracle&) = delete;  // holds gigabytes
  Oracle& operator=(const Oracle&) = delete;

  // Parameters, adam_m or adam_v; tensor_layout().total values each. Moments start at zero.
  void set(gpt2::State which, std::span<const float> values);
  std::span<const double> parameters() const;
  std::span<const double> adam_m() const;
  std::span<const double> adam_v() const;

  // Forward and backward over all micro-batches; gradients() is then their mean, as is the loss returned.
  // Inputs that gpt2's reference refuses (tokens beyond the vocabulary, a wrong size) throw
  // stepscope::InputError.
  double forward_backward(std::span<const gpt2::Batch> micro_batches);
  // The loss and the logits alone.
  double forward(std::span<const gpt2::Batch> micro_batches);
  std::span<const double> gradients() const;
  std::span<const double> logits() const { return logits_; }  // of the last micro-batch, (B, T, V), unpadded
  double grad_norm() const;

  // From here on every activation that is stored is rounded to one of its two neighbours, at random by `draw`, and
  // parameters that are set are too, and gradients of the blocks' matrices once they are whole: what a trainer of that storage loses, played
  // in double.
  void set_rounding(const Storage& storage, uint64_t draw);

  // forward_backward and update: loss and gradient norm before the update.
  gpt2::StepOutcome step(const gpt2::StepPlan& plan);

 private:
  double run(std::span<const gpt2::Batch> micro_batches, bool with_gradients);
  std::unique_ptr<gpt2::reference::ReferenceModel<double>> model_;
  std::vector<double> logits_;
  void round_gradients();
  int weight_bits_ = 0, gradient_bits_ = 0, wte_gradient_bits_ = 0;
  uint64_t draw_ = 0;
};

}  // namespace gate
