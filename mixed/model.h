// The training step of the mixed-precision trainer: forward, backward and update as one line per op, each launch inside a leaf range.
// Only queues work on one stream; waits for nothing and allocates nothing once constructed, so that all of it can be captured.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops.h"
#include "gpt2/ops/adamw_blocks.cuh"
#include "gpt2/ops/step_model.h"
#include "gpt2/trainer.h"
#include "mixed/hopper_products.h"
#include "mixed/kernels/lm_head.cuh"
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
  // Masters that are not kept in fp32 (masters=split): clears them; copies them to and from fp32 on the host, by way of memory that only
  // steps use. Both copies wait for the stream; writing rounds the weights to nearest.
  bool has_split_masters() const { return variants_.masters == Masters::split; }
  void zero_split_masters();
  void read_split_masters(std::span<float> values);
  void write_split_masters(std::span<const float> values);
  // Moments that are not kept in fp32, as the split masters above: read exactly, written rounded to nearest, which gives what was read its
  // bits again.
  bool has_narrow_moments() const { return variants_.moments != Moments::as_fp32; }
  void zero_narrow_moments();
  void read_narrow_moments(gpt2::State which, std::span<float> values);
  void write_narrow_moments(gpt2::State which, std::span<const float> values);
  const bf16* weights() const { return weights_.data(); }
  // Gradients of which some lie in bf16 (weight_gradients=bf16), as the split masters above: read exactly, written rounded to nearest.
  bool has_narrow_gradients() const { return narrow_gradients_.size() > 0; }
  void zero_narrow_gradients();
  void read_gradients(std::span<float> values);
  void write_gradients(std::span<const float> values);

  const void* logits() const override { return at<bf16>(plan_.activations.logits); }
  bool trains_without_logits() const override { return variants_.lm_head != LmHead::logits; }
  void loss(bool accumulate, bool write_gradient) override;
  bool begin_gradients() override;
  void update() override;
  void gather_weights_ahead() override;
  void gather_all_weights() override;
  void warm_up_exchange() override;

  // Before the first step, while nothing in memory matters: runs everything once on random weights and tokens, so that kernels are
  // loaded, cuDNN's kernels built and matmul algorithms searched before anything is timed or captured. Waits for the device.
  void rehearse();
  // After it: the products that were to be chosen by joules and were chosen by time, and why; nothing where there are none.
  std::optional<std::string> why_products_by_time() const { return matmul_.why_by_time(); }

 protected:
  Model(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan, cudaStream_t stream);

  template <class T>
  T* at(const Slot& slot, int64_t layer = 0) const {
    return reinterpret_cast<T*>(activations_.data() + slot.at(layer));
  }
  bf16* parameter(gpt2::Tensor t, int64_t layer = 0) const { return weights_.data() + offset(t, layer); }
  float* scratch() const { return reinterpret_cast<float*>(scratch_.data()); }

  gpt2::ModelConfig config_;
  VariantChoice variants_;
  gpt2::ops::Rounding rounding_;
  MemoryPlan plan_;
  int64_t B_, T_, C_;

  // The end of the forward pass (model_head.cpp), and the products behind the loss. lm_head=hopper: with exponentials in the logits' place,
  // and the loss then has the rows' factors on lnf's output.
  void logits_of_lnf();
  void loss_of_lnf();
  void head_backward(bool accumulate);
  Head head() const;

  gpt2::ops::SplitMasters split_masters() const { return {weights_.data(), masters_low_.data(), masters_up_.data()}; }
  // With one index for weights and the rest, which lie elsewhere than their weights where ranks divide them: valid from number `held` on,
  // in a stretch of the arena.
  gpt2::ops::SplitMasters split_masters_by_held(int64_t held, int64_t arena) const {
    return {weights_.data() + (arena - held), masters_low_.data(), masters_up_.data()};
  }
  gpt2::ops::SplitMoments split_moments() const {
    return {moment_up_[0].data(), moment_up_[1].data(), moment_low_[0].data(), moment_low_[1].data()};
  }
  gpt2::ops::ShortMoments short_moments() const { return {moment_up_[0].data(), reinterpret_cast<uint16_t*>(moment_up_[1].data())}; }
  // use(WholeMoments, SplitMoments or ShortMoments), and use(Fp32Masters or SplitMasters): whichever form there is.
  template <class Use>
  void with_moments(const Use& use) const {
    switch (variants_.moments) {
      case Moments::as_fp32:
        return use(gpt2::ops::WholeMoments{adam_m_.data(), adam_v_.data()});
      case Moments::split:
        return use(split_moments());
      case Moments::as_16_bits:
        return use(short_moments());
    }
  }
  template <class Use>
  void with_masters(const Use& use) const {
    switch (variants_.masters) {
      case Masters::as_fp32:
        return use(gpt2::ops::Fp32Masters{weights_.data(), masters_.data()});
      case Masters::split:
        return use(split_masters());
    }
  }
  void update_over_ranks();
  template <class M>
  void update_by(const M& moments);
  // Between the host and a state that is not one fp32 vector. bring puts `count` values of it in fp32 into device memory, take reads them
  // there: the first is number `held` of what this rank holds, which is number `arena` of all, in the order in which they lie.
  using Bring = std::function<void(float* to, int64_t held, int64_t arena, int64_t count)>;
  using Take = std::function<void(const float* from, int64_t held, int64_t arena, int64_t count)>;
  void read_in_pieces(std::span<float> values, gpt2::State which, const Bring& bring);
  void write_in_pieces(std::span<const float> values, gpt2::State which, const Take& take);
  // All parameters' numbers, as many at a time as staging memory holds; host-synchronous.
  void in_pieces(const std::function<void(float* staging, int64_t first, int64_t count)>& use);
  bf16* narrow_gradient(gpt2::Tensor t, int64_t layer = 0) const { return narrow_gradients_.data() + gradient_offset(t, layer); }
  // use(dwte), in the form in which it is stored.
  template <class Use>
  void with_wte_gradient(const Use& use) const {
    switch (variants_.wte_gradient) {
      case WteGradient::as_bf16:
        return use(narrow_gradient(gpt2::Tensor::wte));
      case WteGradient::as_fp32:
        return use(gradient(gpt2::Tensor::wte));
    }
  }
  // Where gradient_arenas_ is set.
  gpt2::ops::GradientArenas gradients_in_arenas() const { return {gradients_.data(), narrow_gradients_.data(), *gradient_arenas_}; }
  // The gradient of a block's matrix (out_channels, in) from that of its output, and of its bias unless `bias` is null.
  void weight_gradient(gpt2::Tensor weight, int layer, float* bias, const bf16* dout, const bf16* inp, int64_t in, int64_t out_channels,
                       bool accumulate);
  // The embedding's backward adds rows in the order of their tokens, which are known from the begin: sorted on a second stream beside the
  // head's products, for which embedding_backward waits.
  void sort_tokens();
  // The norm of all gradients and the clip factor. With grad_norm=beside_backward most of it was summed before, by the first two, which
  // do nothing otherwise: the part of a layer whose gradients are final, on the side stream; and the wait for all such parts.
  void sum_squares_beside(int layer);
  void join_squares();
  void norm_of_gradients();
  void finish_squares();

  gpt2::cuda::DeviceBuffer<bf16> weights_;
  gpt2::cuda::DeviceBuffer<uint16_t> masters_low_;  // empty, as masters_up_, unless masters are split
  gpt2::cuda::DeviceBuffer<uint8_t> masters_up_;
  // Of m and of v. Split moments have both, those of 16 bits lie in the first, and both are empty where moments are in fp32.
  std::array<gpt2::cuda::DeviceBuffer<bf16>, 2> moment_up_;
  std::array<gpt2::cuda::DeviceBuffer<gpt2::ops::LowByte>, 2> moment_low_;
  gpt2::cuda::DeviceBuffer<unsigned char> activations_, scratch_;
  gpt2::cuda::DeviceBuffer<unsigned char> embedding_scratch_;  // from sort_tokens on, beside other ops
  gpt2::cuda::DeviceBuffer<unsigned char> workspace_;
  MatmulEngine matmul_;
  HopperProducts hopper_;
  bool exponentials_ = false;  // what was queued last ends with them, not with logits

  // Of grad_norm=beside_backward: partial sums of every layer, then of what is outside the layers.
  gpt2::cuda::DeviceBuffer<double> squares_;
  gpt2::cuda::Stream side_;
  gpt2::cuda::Event layer_is_final_, squares_are_summed_;
  gpt2::cuda::Fence tokens_are_there_, tokens_are_sorted_;
};

}  // namespace mixed
