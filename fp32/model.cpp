// One line per op, in the order of the step. Ranges are scoped by braces: pass, layer, op.
#include "fp32/model.h"

#include "fp32/kernels/attention.cuh"
#include "gpt2/op_range.h"
#include "gpt2/ops/adamw.cuh"
#include "gpt2/ops/classifier.cuh"
#include "gpt2/ops/elementwise.cuh"
#include "gpt2/ops/encoder.cuh"
#include "gpt2/ops/grad_norm.cuh"
#include "gpt2/ops/layernorm_backward.cuh"
#include "gpt2/ops/layernorm_forward.cuh"

namespace fp32 {

namespace ops = gpt2::ops;
using gpt2::kNoLayer;
using gpt2::Op;
using gpt2::OpRange;
using gpt2::Pass;
using gpt2::Tensor;

Model::Model(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan, cudaStream_t stream)
    : StepModel(plan, options, Fp32::weights, stream),
      config_(options.model),
      variants_(variants),
      plan_(plan),
      B_(options.batch_size),
      T_(options.seq_len),
      C_(options.model.channels),
      activations_(plan.activation_floats),
      activation_gradients_(plan.activation_gradient_floats),
      scratch_(plan.scratch_bytes),
      workspace_(kMatmulWorkspaceBytes),
      matmul_(matmul_rate_from_name(options.matmul), workspace_.data()) {}

void Model::forward() {
  const ActivationSlots& a = plan_.activations;
  weights_needed(kNoLayer);
  {
    const OpRange range(Pass::encoder, kNoLayer, Op::embedding);
    ops::embedding_forward(activation(a.encoded), inputs(), parameter(Tensor::wte), parameter(Tensor::wpe), B_, T_, C_, stream_);
  }
  const float* stream_in = activation(a.encoded);
  for (int layer = 0; layer < config_.layers; ++layer) {
    float* stream_out = activation(a.residual2, layer);
    weights_needed(layer);
    layer_forward(layer, stream_in, stream_out);
    stream_in = stream_out;
  }
  {
    const OpRange range(Pass::forward, kNoLayer, Op::lnf);
    ops::layernorm_forward(variants_.layernorm_forward, activation(a.lnf), activation(a.lnf_mean), activation(a.lnf_rstd), stream_in,
                           nullptr, parameter(Tensor::lnfw), parameter(Tensor::lnfb), rows(), C_, stream_);
  }
  {
    const OpRange range(Pass::forward, kNoLayer, Op::lm_head);
    linear_forward(variants_.linear_forward, matmul_, activation(a.logits), activation(a.lnf), parameter(Tensor::wte), nullptr, rows(), C_,
                   config_.padded_vocab, stream_);
  }
}

void Model::layer_forward(int layer, const float* stream_in, float* stream_out) {
  const ActivationSlots& a = plan_.activations;
  const int64_t n = rows();
  float* branch = activation(a.branch);
  float* middle = activation(a.residual1, layer);
  {
    const OpRange range(Pass::forward, layer, Op::ln1);
    ops::layernorm_forward(variants_.layernorm_forward, activation(a.ln1, layer), activation(a.ln1_mean, layer),
                           activation(a.ln1_rstd, layer), stream_in, nullptr, parameter(Tensor::ln1w, layer),
                           parameter(Tensor::ln1b, layer), n, C_, stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::qkv);
    linear_forward(variants_.linear_forward, matmul_, activation(a.qkv, layer), activation(a.ln1, layer), parameter(Tensor::qkvw, layer),
                   parameter(Tensor::qkvb, layer), n, C_, 3 * C_, stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::attention);
    attention_forward(variants_.attention_forward, matmul_, activation(a.attention, layer), activation(a.lse, layer),
                      activation(a.qkv, layer), {B_, T_, C_, config_.heads}, scratch(), stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::attproj);
    linear_forward(variants_.linear_forward, matmul_, branch, activation(a.attention, layer), parameter(Tensor::attprojw, layer),
                   parameter(Tensor::attprojb, layer), n, C_, C_, stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::residual1);
    ops::residual_forward(middle, stream_in, branch, n * C_, stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::ln2);
    ops::layernorm_forward(variants_.layernorm_forward, activation(a.ln2, layer), activation(a.ln2_mean, layer),
                           activation(a.ln2_rstd, layer), middle, nullptr, parameter(Tensor::ln2w, layer), parameter(Tensor::ln2b, layer),
                           n, C_, stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::mlp_up);
    linear_forward(variants_.linear_forward, matmul_, activation(a.mlp_up, layer), activation(a.ln2, layer), parameter(Tensor::fcw, layer),
                   parameter(Tensor::fcb, layer), n, C_, 4 * C_, stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::gelu);
    ops::gelu_forward(activation(a.gelu, layer), activation(a.mlp_up, layer), n * 4 * C_, stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::mlp_down);
    linear_forward(variants_.linear_forward, matmul_, branch, activation(a.gelu, layer), parameter(Tensor::fcprojw, layer),
                   parameter(Tensor::fcprojb, layer), n, 4 * C_, C_, stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::residual2);
    ops::residual_forward(stream_out, middle, branch, n * C_, stream_);
  }
}

void Model::loss(bool accumulate, bool write_gradient) {
  const OpRange range(Pass::classifier, kNoLayer, Op::loss);
  float* losses = activation(plan_.activations.losses);
  ops::classifier(variants_.classifier, activation(plan_.activations.logits), losses, targets(), rows(), config_.vocab_size,
                  config_.padded_vocab, scalars(), write_gradient, stream_);
  ops::mean_loss(stats(), losses, rows(), scalars(), accumulate, stream_);
}

void Model::backward(bool accumulate) {
  const ActivationSlots& a = plan_.activations;
  float* dresidual = activation_gradient(plan_.gradients.residual);
  float* dbranch = activation_gradient(plan_.gradients.branch);
  {
    const OpRange range(Pass::backward, kNoLayer, Op::lm_head);
    const float* dlogits = activation(a.logits);
    linear_backward_input(matmul_, dbranch, dlogits, parameter(Tensor::wte), rows(), C_, config_.padded_vocab, stream_);
    // Transposed, dlogits would be as large as all logits, and cuBLASLt's kernel for this shape gains less than that takes.
    linear_backward_weight(LinearBackward::as_stored, matmul_, gradient(Tensor::wte), nullptr, dlogits, activation(a.lnf), rows(), C_,
                           config_.padded_vocab, accumulate, nullptr, stream_);
  }
  {
    // The first to write the residual stream's gradient; every layer adds to it.
    const OpRange range(Pass::backward, kNoLayer, Op::lnf);
    ops::layernorm_backward<float, float>(
        variants_.layernorm_backward,
        {.dinp = dresidual, .dweight = gradient(Tensor::lnfw), .dbias = gradient(Tensor::lnfb), .accumulate = accumulate}, dbranch,
        activation(a.residual2, config_.layers - 1), activation(a.lnf_mean), activation(a.lnf_rstd), parameter(Tensor::lnfw), rows(), C_,
        scratch(), stream_);
  }
  for (int layer = static_cast<int>(config_.layers) - 1; layer >= 0; --layer)
    layer_backward(layer, layer == 0 ? activation(a.encoded) : activation(a.residual2, layer - 1), accumulate);
  {
    // wte already holds the classifier's part of its gradient, so the embedding's part always adds.
    const OpRange range(Pass::backward, kNoLayer, Op::embedding);
    ops::sort_by_token(inputs(), rows(), C_, config_.vocab_size, scratch_.data(), stream_);
    ops::embedding_backward<float>(gradient(Tensor::wte), gradient(Tensor::wpe), dresidual, B_, T_, C_, config_.max_seq_len, accumulate,
                                   scratch_.data(), stream_);
  }
  gradients_ready(kNoLayer);
}

// A residual sum hands its gradient to both branches unchanged: no kernel, dresidual is read by the branch and added to after it.
void Model::layer_backward(int layer, const float* stream_in, bool accumulate) {
  const ActivationSlots& a = plan_.activations;
  const int64_t n = rows();
  float* dresidual = activation_gradient(plan_.gradients.residual);
  float* dbranch = activation_gradient(plan_.gradients.branch);
  float* dqkv = activation_gradient(plan_.gradients.qkv);
  float* dmlp = activation_gradient(plan_.gradients.mlp);
  {
    const OpRange range(Pass::backward, layer, Op::mlp_down);
    linear_backward(dmlp, Tensor::fcprojw, Tensor::fcprojb, layer, dresidual, activation(a.gelu, layer), 4 * C_, C_, accumulate);
  }
  {
    const OpRange range(Pass::backward, layer, Op::gelu);
    ops::gelu_backward(dmlp, dmlp, activation(a.mlp_up, layer), n * 4 * C_, stream_);
  }
  {
    const OpRange range(Pass::backward, layer, Op::mlp_up);
    linear_backward(dbranch, Tensor::fcw, Tensor::fcb, layer, dmlp, activation(a.ln2, layer), C_, 4 * C_, accumulate);
  }
  {
    const OpRange range(Pass::backward, layer, Op::ln2);
    ops::layernorm_backward<float, float>(variants_.layernorm_backward,
                                          {.dinp = dresidual,
                                           .dweight = gradient(Tensor::ln2w, layer),
                                           .dbias = gradient(Tensor::ln2b, layer),
                                           .add_to_dinp = true,
                                           .accumulate = accumulate},
                                          dbranch, activation(a.residual1, layer), activation(a.ln2_mean, layer),
                                          activation(a.ln2_rstd, layer), parameter(Tensor::ln2w, layer), n, C_, scratch(), stream_);
  }
  {
    const OpRange range(Pass::backward, layer, Op::attproj);
    linear_backward(dbranch, Tensor::attprojw, Tensor::attprojb, layer, dresidual, activation(a.attention, layer), C_, C_, accumulate);
  }
  {
    const OpRange range(Pass::backward, layer, Op::attention);
    attention_backward(variants_.attention_backward, matmul_, dqkv, dbranch, activation(a.qkv, layer), activation(a.attention, layer),
                       activation(a.lse, layer), {B_, T_, C_, config_.heads}, scratch(), stream_);
  }
  {
    const OpRange range(Pass::backward, layer, Op::qkv);
    linear_backward(dbranch, Tensor::qkvw, Tensor::qkvb, layer, dqkv, activation(a.ln1, layer), C_, 3 * C_, accumulate);
  }
  {
    const OpRange range(Pass::backward, layer, Op::ln1);
    ops::layernorm_backward<float, float>(variants_.layernorm_backward,
                                          {.dinp = dresidual,
                                           .dweight = gradient(Tensor::ln1w, layer),
                                           .dbias = gradient(Tensor::ln1b, layer),
                                           .add_to_dinp = true,
                                           .accumulate = accumulate},
                                          dbranch, stream_in, activation(a.ln1_mean, layer), activation(a.ln1_rstd, layer),
                                          parameter(Tensor::ln1w, layer), n, C_, scratch(), stream_);
  }
  gradients_ready(layer);
}

void Model::linear_backward(float* dinp, Tensor weight, Tensor bias, int layer, const float* dout, const float* inp, int64_t in,
                            int64_t out_channels, bool accumulate) {
  linear_backward_input(matmul_, dinp, dout, parameter(weight, layer), rows(), in, out_channels, stream_);
  linear_backward_weight(variants_.linear_backward, matmul_, gradient(weight, layer), gradient(bias, layer), dout, inp, rows(), in,
                         out_channels, accumulate, scratch(), stream_);
}

bool Model::begin_gradients() {
  switch (variants_.zero_grad) {
    case ZeroGrad::overwrite:
      return false;
    case ZeroGrad::memset:
      break;
  }
  zero_gradients();
  return true;
}

void Model::update() {
  if (exchange_) {
    norm_over_ranks();
    return exchange_->update(ops::Rounding::nearest, ops::Fp32Weights{masters_.data()}, ops::WholeMoments{adam_m_.data(), adam_v_.data()},
                             block_gradients(), stats(), scalars());
  }
  {
    const OpRange range(Pass::optimizer, kNoLayer, Op::grad_norm);
    ops::grad_norm<float>(stats(), gradients_.data(), layout_.total, scalars(), scratch_.data(), stream_);
  }
  {
    const OpRange range(Pass::optimizer, kNoLayer, Op::adamw);
    ops::adamw<float>(variants_.adamw, ops::Rounding::nearest, nullptr, masters_.data(), adam_m_.data(), adam_v_.data(), gradients_.data(),
                      layout_, scalars(), &stats()->clip_scale, stream_);
  }
}

void Model::gather_weights_ahead() { exchange_->gather_ahead(masters_.data()); }
void Model::gather_all_weights() { exchange_->gather_all(masters_.data()); }
void Model::warm_up_exchange() { exchange_->warm_up(masters_.data(), block_gradients(), stats(), scalars()); }

}  // namespace fp32
