// The end of the forward pass, the loss, and the first products of the backward pass: with logits, or with what lm_head=hopper has instead.
#include <stdexcept>

#include "gpt2/op_range.h"
#include "gpt2/ops/classifier.cuh"
#include "mixed/model.h"

namespace mixed {

namespace ops = gpt2::ops;
using gpt2::kNoLayer;
using gpt2::Op;
using gpt2::OpRange;
using gpt2::Pass;
using gpt2::Tensor;

Head Model::head() const {
  const ActivationSlots& a = plan_.activations;
  return {
      rows(),         C_, config_.vocab_size, config_.padded_vocab, at<bf16>(a.lnf), parameter(Tensor::wte), targets(), at<bf16>(a.logits),
      scratch_.data()};
}

void Model::logits_of_lnf() {
  const ActivationSlots& a = plan_.activations;
  const OpRange range(Pass::forward, kNoLayer, Op::lm_head);
  linear_forward(variants_.linear_forward, matmul_, at<bf16>(a.logits), at<bf16>(a.lnf), parameter(Tensor::wte), nullptr, rows(), C_,
                 config_.padded_vocab, stream_);
  exponentials_ = false;
}

void Model::loss_of_lnf() {
  switch (variants_.lm_head) {
    case LmHead::logits:
      logits_of_lnf();
      break;
    case LmHead::hopper: {
      const OpRange range(Pass::forward, kNoLayer, Op::lm_head);
      head_forward(hopper_, head(), stream_);
      exponentials_ = true;
      break;
    }
  }
}

void Model::loss(bool accumulate, bool write_gradient) {
  if (exponentials_ != (write_gradient && trains_without_logits()))
    throw std::logic_error("loss: the forward pass ended with another head");
  const OpRange range(Pass::classifier, kNoLayer, Op::loss);
  float* losses = at<float>(plan_.activations.losses);
  if (exponentials_)
    head_losses(losses, at<float>(plan_.activations.head_factors), head(), scalars(), stream_);
  else
    ops::classifier(variants_.classifier, at<bf16>(plan_.activations.logits), losses, targets(), rows(), config_.vocab_size,
                    config_.padded_vocab, scalars(), write_gradient, stream_);
  ops::mean_loss(stats(), losses, rows(), scalars(), accumulate, stream_);
}

// lnf's output is read for the last time by the weight gradient, then its own gradient takes its place.
void Model::head_backward(bool accumulate) {
  const ActivationSlots& a = plan_.activations;
  const OpRange range(Pass::backward, kNoLayer, Op::lm_head);
  with_wte_gradient([&](auto* dwte) {
    linear_backward_weight(variants_.bias_gradient, matmul_, dwte, nullptr, at<bf16>(a.logits), at<bf16>(a.lnf), rows(), C_,
                           config_.padded_vocab, accumulate, scratch(), stream_);
  });
  linear_backward_input(matmul_, at<bf16>(a.lnf), at<bf16>(a.logits), parameter(Tensor::wte), rows(), C_, config_.padded_vocab, stream_);
  switch (variants_.lm_head) {
    case LmHead::logits:
      break;
    case LmHead::hopper:
      scale_rows(at<bf16>(a.lnf), at<float>(a.head_factors), rows(), C_, stream_);
      break;
  }
}

}  // namespace mixed
