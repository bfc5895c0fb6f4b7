// GPT-2 on the CPU, forward, backward and AdamW. ReferenceModel<double> is the oracle that every trainer is
// held against; ReferenceModel<float> is the "reference" trainer (reference_trainer.h). Bitwise the same
// results from run to run and for any number of OpenMP threads. Everything is allocated by the constructor.
// What a reader would get wrong: backward() turns the logits into their gradient in place, so read logits()
// before it.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "gpt2/reference/attention.h"
#include "gpt2/reference/buffer.h"
#include "gpt2/reference/gemm.h"
#include "gpt2/reference/layers.h"
#include "gpt2/trainer.h"

namespace gpt2::reference {

// What ReferenceModel allocates beside its scratch (scratch_bytes()), by kind; computed without allocating.
std::vector<MemoryItem> planned_memory(const ModelConfig& config, int64_t batch_size, int64_t seq_len, int64_t real_bytes);

// Throws stepscope::InputError unless `batch` holds B*T inputs and targets, all in [0, V).
void check_batch(const Batch& batch, const ModelConfig& config, int64_t batch_size, int64_t seq_len);

template <typename Real>
class ReferenceModel {
 public:
  // Throws stepscope::InputError for an absurd shape, B or T < 1 or T > max_seq_len; stepscope::MachineError
  // when this machine has less memory than planned_memory() says.
  ReferenceModel(const ModelConfig& config, int64_t batch_size, int64_t seq_len);

  const ModelConfig& config() const { return config_; }
  int64_t batch_size() const { return B_; }
  int64_t seq_len() const { return T_; }
  // Packed operands of the matrix products and what each thread needs for attention.
  int64_t scratch_bytes() const;

  // In the order of the tensor table; sizes are tensor_layout().total. Writable: setting parameters is
  // writing into the span.
  std::span<Real> parameters() { return parameters_.span(); }
  std::span<Real> gradients() { return gradients_.span(); }
  std::span<Real> adam_m() { return adam_m_.span(); }
  std::span<Real> adam_v() { return adam_v_.span(); }
  std::span<const Real> gradients() const { return gradients_.span(); }
  // Throws stepscope::InputError when the size is not tensor_layout().total.
  void set_parameters(std::span<const float> values);

  // Called with every activation and every gradient of one as soon as it is computed, and may change it: the
  // gate plays there what a trainer loses by storing fewer bits. `stream`: it is the residual stream or its
  // gradient, which a trainer may store in more. Empty (the default): nothing is called.
  using Storage = std::function<void(std::span<Real> values, bool stream)>;
  void set_storage(Storage storage) { storage_ = std::move(storage); }

  // Mean loss over the batch. Afterwards logits() holds (B, T, Vp); columns >= V are zero.
  double forward(const Batch& batch);
  std::span<const Real> logits() const { return logits_.span(); }

  // Gradients of the loss of the batch last given to forward(), times `scale`; added to what is there if
  // `accumulate`. Once per forward(): throws std::logic_error otherwise.
  void backward(double scale = 1, bool accumulate = false);

  // forward() and backward() with the classifier fused; bitwise the same gradients. `before_classifier`, if
  // given, is called while logits() is still what it says.
  double forward_backward(const Batch& batch, double scale = 1, bool accumulate = false,
                          const std::function<void()>& before_classifier = {});

  // Of the gradients as they stand, over all parameters.
  double gradient_norm() const;
  // The caller fills every number; see AdamWNumbers.
  void update(const AdamWNumbers& numbers);

 private:
  struct Layer {                      // activations kept for the backward pass; (M, columns) each unless said otherwise
    Real *ln1, *ln1_mean, *ln1_rstd;  // C, (M), (M)
    Real* qkv;                        // 3C
    Real *attention, *log_sum_exp;    // C, (B, NH, T)
    Real* middle;                     // C: the residual stream between attention and MLP
    Real *ln2, *ln2_mean, *ln2_rstd;  // C, (M), (M)
    Real *up, *gelu;                  // 4C, 4C
    Real* out;                        // C: the residual stream after the layer
  };

  Real* parameter(Tensor t, int64_t layer = 0);
  Real* gradient(Tensor t, int64_t layer = 0);
  const Real* layer_input(int64_t layer) const;
  void carve_activations();
  void run_forward(const Batch& batch);
  void run_backward(bool accumulate);
  void layer_forward(int layer);
  void layer_backward(int layer, bool accumulate);
  double classify(double gradient_scale);
  void stored(Real* values, int64_t count, bool stream = false) {
    if (storage_) storage_({values, static_cast<size_t>(count)}, stream);
  }

  ModelConfig config_;
  int64_t B_, T_, M_;
  TensorLayout layout_;
  AttentionShape attention_shape_;
  Buffer<Real> parameters_, gradients_, adam_m_, adam_v_;
  Buffer<Real> activations_, logits_;
  std::vector<Layer> layers_;
  Real *encoded_ = nullptr, *lnf_ = nullptr, *lnf_mean_ = nullptr, *lnf_rstd_ = nullptr;
  Real* branch_ = nullptr;  // (M, C): output of attproj or mlp_down before it joins the residual stream
  // Backward: of the residual stream (M, C), of the narrow tensor at hand (M, C), of qkv (M, 3C), of the
  // MLP's middle (M, 4C).
  Real *dstream_ = nullptr, *dnarrow_ = nullptr, *dqkv_ = nullptr, *dwide_ = nullptr;
  PackBuffers<Real> buffers_;
  std::vector<AttentionScratch<Real>> attention_scratch_;
  std::vector<int32_t> inputs_, targets_;
  bool logits_valid_ = false;
  Storage storage_;
};

}  // namespace gpt2::reference
