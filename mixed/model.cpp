// One line per op, in the order of the step. Ranges are scoped by braces: pass, layer, op.
#include "mixed/model.h"

#include "gpt2/counter_rng.h"
#include "gpt2/op_range.h"
#include "mixed/kernels/attention.cuh"
#include "mixed/kernels/classifier.cuh"
#include "mixed/kernels/elementwise.cuh"
#include "mixed/kernels/encoder.cuh"
#include "mixed/kernels/fill.cuh"
#include "mixed/kernels/grad_norm.cuh"
#include "mixed/kernels/layernorm.cuh"

namespace mixed {

using gpt2::kNoLayer;
using gpt2::Op;
using gpt2::OpRange;
using gpt2::Pass;
using gpt2::Tensor;

Model::Model(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan, cudaStream_t stream)
    : config_(options.model),
      variants_(variants),
      rounding_(options.weight_rounding == "stochastic" ? Rounding::stochastic : Rounding::nearest),
      plan_(plan),
      B_(options.batch_size),
      T_(options.seq_len),
      C_(options.model.channels),
      stream_(stream),
      weights_(plan.parameter_count),
      master_(plan.parameter_count),
      gradients_(plan.parameter_count),
      adam_m_(plan.parameter_count),
      adam_v_(plan.parameter_count),
      activations_(plan.activation_bytes),
      scratch_(plan.scratch_bytes),
      workspace_(kMatmulWorkspaceBytes),
      input_(kScalarBytes + plan.token_count * static_cast<int64_t>(sizeof(int32_t))),
      stats_(1),
      matmul_(variants.matmul_algorithm, workspace_.data()) {}

float* Model::state(gpt2::State which) const {
  switch (which) {
    case gpt2::State::parameters: return master_.data();
    case gpt2::State::gradients: return gradients_.data();
    case gpt2::State::adam_m: return adam_m_.data();
    case gpt2::State::adam_v: return adam_v_.data();
  }
  return nullptr;
}

void Model::round_weights(bool stochastic) {
  const OpRange range(Pass::other, kNoLayer, Op::copy);
  round_parameters(stochastic ? Rounding::stochastic : Rounding::nearest, weights_.data(), master_.data(), plan_.parameter_count,
                   scalars(), stream_);
}

void Model::upload(const unsigned char* pinned) {
  const OpRange range(Pass::other, kNoLayer, Op::copy);
  STEPSCOPE_CUDA_CHECK(
      cudaMemcpyAsync(input_.data(), pinned, static_cast<size_t>(upload_bytes()), cudaMemcpyHostToDevice, stream_));
}

void Model::loss(bool accumulate, bool write_gradient) {
  const OpRange range(Pass::classifier, kNoLayer, Op::loss);
  float* losses = at<float>(plan_.activations.losses);
  classifier(variants_.classifier, logits(), losses, tokens() + rows(), rows(), config_.vocab_size, config_.padded_vocab, scalars(),
             write_gradient, stream_);
  mean_loss(stats(), losses, rows(), scalars(), accumulate, stream_);
}

bool Model::begin_gradients() {
  if (variants_.zero_grad == ZeroGrad::overwrite) return false;
  const OpRange range(Pass::optimizer, kNoLayer, Op::zero_grad);
  STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(gradients_.data(), 0, static_cast<size_t>(gradients_.bytes()), stream_));
  return true;
}

void Model::update() {
  {
    const OpRange range(Pass::optimizer, kNoLayer, Op::grad_norm);
    grad_norm(stats(), gradients_.data(), plan_.layout.total, scalars(), scratch_.data(), stream_);
  }
  {
    const OpRange range(Pass::optimizer, kNoLayer, Op::adamw);
    adamw(variants_.adamw, rounding_, weights_.data(), master_.data(), adam_m_.data(), adam_v_.data(), gradients_.data(),
          plan_.layout, scalars(), &stats()->clip_scale, stream_);
  }
}

void Model::rehearse() {
  // Of GPT-2's own size, so that activations and with them the power that products draw are like those of training.
  fill_uniform(weights_.data(), plan_.parameter_count, 0.035f, stream_);
  gpt2::cuda::PinnedBuffer<unsigned char> input(upload_bytes());
  auto* scalars = new (input.data()) StepScalars;
  scalars->loss_scale = 1.0 / static_cast<double>(rows());
  scalars->gradient_scale = static_cast<float>(scalars->loss_scale);
  auto* token = reinterpret_cast<int32_t*>(input.data() + kScalarBytes);
  gpt2::CounterRng random(1);
  for (int64_t i = 0; i < plan_.token_count; ++i)
    token[i] = static_cast<int32_t>(random.uniform() * static_cast<double>(config_.vocab_size));
  matmul_.begin_rehearsal();
  upload(input.data());
  forward();
  loss(false, true);
  backward(begin_gradients());
  matmul_.end_rehearsal();
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

// ---- forward and backward -----------------------------------------------------------------------------------------------

namespace {

// R: storage of the residual stream; G: of its gradient. bf16 or float.
template <class R, class G>
class ModelOf final : public Model {
 public:
  ModelOf(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan, cudaStream_t stream)
      : Model(options, variants, plan, stream) {}

  void forward() override;
  void backward(bool accumulate) override;

 private:
  // Places along the residual stream: before layer `layer` (L: after the last), and in the middle of it.
  Slot before(int64_t layer) const { return layer == 0 ? plan_.activations.encoded : of_layer(plan_.activations.residual2, layer - 1); }
  Slot middle(int64_t layer) const { return of_layer(plan_.activations.residual1, layer); }
  static Slot of_layer(const Slot& slot, int64_t layer) { return {slot.at(layer), 0}; }
  // The stream at a place: there, or, where it is wider than what is kept, in the one buffer that it has.
  R* stream(const Slot& place) const {
    if constexpr (kWide)
      return at<R>(plan_.activations.stream);
    else
      return at<R>(place);
  }
  // What the backward pass finds of it.
  bf16* kept(const Slot& place) const { return at<bf16>(place); }
  static constexpr bool kWide = sizeof(R) != sizeof(bf16);
  // The gradient of the residual stream, and as an operand of products.
  G* dresidual() const { return at<G>(plan_.activations.dresidual); }
  bf16* dresidual_operand() const { return at<bf16>(plan_.activations.dresidual_copy); }

  void layer_forward(int layer);
  void mlp_up(int layer);
  void layer_backward(int layer, bool accumulate);
  void mlp_down_backward(int layer, bool accumulate);

  // Layernorm of the stream at `here`; when project() left its branch to it, it first makes the stream there: that at `earlier` plus the
  // branch.
  void normalize(bf16* out, float* mean, float* rstd, const Slot& here, const Slot& earlier, Tensor weight, Tensor bias, int layer);
  // The stream at `to` = that at `from` + linear(inp), as far as the variant does not leave it to the next normalize().
  void project(Op linear, Op residual, int layer, const Slot& to, const Slot& from, const bf16* inp, Tensor weight, Tensor bias,
               int64_t in);

  // Gradients of a layernorm, whose input's gradient adds to dresidual(). `projection`: bias of the linear layer in front of the
  // residual sum that this layernorm reads; its gradient is dresidual() summed over rows.
  void normalize_backward(const bf16* dout, const bf16* inp, const Slot& mean, const Slot& rstd, Tensor weight, Tensor bias, int layer,
                          float* projection_bias_gradient, bool first, bool accumulate);
  void weight_gradient(Tensor weight, Tensor bias, int layer, const bf16* dout, const bf16* inp, int64_t in, int64_t out_channels,
                       bool accumulate);
  // Bias gradient of a projection, when the layernorm behind it makes it.
  float* folded(Tensor bias, int layer) const {
    return variants_.bias_gradient == BiasGradient::layernorm_fold && layer >= 0 ? gradient(bias, layer) : nullptr;
  }

  bool branch_waits_ = false;  // between project() and normalize()
};

template <class R, class G>
void ModelOf<R, G>::forward() {
  const ActivationSlots& a = plan_.activations;
  {
    const OpRange range(Pass::encoder, kNoLayer, Op::embedding);
    embedding_forward(stream(before(0)), tokens(), parameter(Tensor::wte), parameter(Tensor::wpe), B_, T_, C_, stream_);
  }
  const int layers = static_cast<int>(config_.layers);
  for (int layer = 0; layer < layers; ++layer) layer_forward(layer);
  {
    const OpRange range(Pass::forward, kNoLayer, Op::lnf);
    normalize(at<bf16>(a.lnf), at<float>(a.lnf_mean), at<float>(a.lnf_rstd), before(layers), middle(layers - 1), Tensor::lnfw,
              Tensor::lnfb, 0);
  }
  {
    const OpRange range(Pass::forward, kNoLayer, Op::lm_head);
    linear_forward(variants_.linear_forward, matmul_, logits(), at<bf16>(a.lnf), parameter(Tensor::wte), nullptr, rows(), C_,
                   config_.padded_vocab, stream_);
  }
}

template <class R, class G>
void ModelOf<R, G>::layer_forward(int layer) {
  const ActivationSlots& a = plan_.activations;
  const int64_t n = rows();
  {
    const OpRange range(Pass::forward, layer, Op::ln1);
    normalize(at<bf16>(a.ln1, layer), at<float>(a.ln1_mean, layer), at<float>(a.ln1_rstd, layer), before(layer),
              layer == 0 ? Slot{} : middle(layer - 1), Tensor::ln1w, Tensor::ln1b, layer);
  }
  {
    const OpRange range(Pass::forward, layer, Op::qkv);
    linear_forward(variants_.linear_forward, matmul_, at<bf16>(a.qkv, layer), at<bf16>(a.ln1, layer),
                   parameter(Tensor::qkvw, layer), parameter(Tensor::qkvb, layer), n, C_, 3 * C_, stream_);
  }
  {
    const OpRange range(Pass::forward, layer, Op::attention);
    attention_forward(variants_.attention_forward, matmul_, at<bf16>(a.attention, layer), at<float>(a.lse, layer),
                      at<bf16>(a.qkv, layer), {B_, T_, C_, config_.heads}, scratch_.data(), stream_);
  }
  project(Op::attproj, Op::residual1, layer, middle(layer), before(layer), at<bf16>(a.attention, layer), Tensor::attprojw, Tensor::attprojb, C_);
  {
    const OpRange range(Pass::forward, layer, Op::ln2);
    normalize(at<bf16>(a.ln2, layer), at<float>(a.ln2_mean, layer), at<float>(a.ln2_rstd, layer), middle(layer), before(layer),
              Tensor::ln2w, Tensor::ln2b, layer);
  }
  mlp_up(layer);
  project(Op::mlp_down, Op::residual2, layer, before(layer + 1), middle(layer), at<bf16>(a.gelu, layer), Tensor::fcprojw,
          Tensor::fcprojb, 4 * C_);
}

template <class R, class G>
void ModelOf<R, G>::mlp_up(int layer) {
  const ActivationSlots& a = plan_.activations;
  bf16* before = at<bf16>(a.mlp_up, layer);
  bf16* after = at<bf16>(a.gelu, layer);
  {
    const OpRange range(Pass::forward, layer, Op::mlp_up);
    if (variants_.gelu_forward == Gelu::matmul_epilogue &&
        linear_gelu_forward(matmul_, after, before, at<bf16>(a.ln2, layer), parameter(Tensor::fcw, layer),
                            parameter(Tensor::fcb, layer), rows(), C_, 4 * C_, stream_))
      return;
    linear_forward(variants_.linear_forward, matmul_, before, at<bf16>(a.ln2, layer), parameter(Tensor::fcw, layer),
                   parameter(Tensor::fcb, layer), rows(), C_, 4 * C_, stream_);
  }
  const OpRange range(Pass::forward, layer, Op::gelu);
  gelu_forward(after, before, rows() * 4 * C_, stream_);
}

template <class R, class G>
void ModelOf<R, G>::normalize(bf16* out, float* mean, float* rstd, const Slot& here, const Slot& earlier, Tensor weight, Tensor bias,
                              int layer) {
  bf16* copy = kWide ? kept(here) : nullptr;
  if (branch_waits_)
    residual_layernorm_forward(stream(here), copy, out, mean, rstd, stream(earlier), at<bf16>(plan_.activations.branch),
                               parameter(weight, layer), parameter(bias, layer), rows(), C_, stream_);
  else
    layernorm_forward(variants_.layernorm_forward, out, mean, rstd, stream(here), copy, parameter(weight, layer),
                      parameter(bias, layer), rows(), C_, stream_);
  branch_waits_ = false;
}

template <class R, class G>
void ModelOf<R, G>::project(Op linear, Op residual, int layer, const Slot& to, const Slot& from, const bf16* inp, Tensor weight,
                            Tensor bias, int64_t in) {
  bf16* branch = at<bf16>(plan_.activations.branch);
  {
    const OpRange range(Pass::forward, layer, linear);
    if (variants_.residual == Residual::matmul_epilogue &&
        linear_residual_forward<R>(matmul_, stream(to), stream(from), inp, parameter(weight, layer), parameter(bias, layer), rows(), in,
                                   C_, stream_))
      return;
    linear_forward(variants_.linear_forward, matmul_, branch, inp, parameter(weight, layer), parameter(bias, layer), rows(), in, C_,
                   stream_);
  }
  branch_waits_ = variants_.residual == Residual::fused_layernorm;
  if (branch_waits_) return;
  const OpRange range(Pass::forward, layer, residual);
  residual_forward<R>(stream(to), stream(from), branch, rows() * C_, stream_);
}

template <class R, class G>
void ModelOf<R, G>::backward(bool accumulate) {
  const ActivationSlots& a = plan_.activations;
  const int layers = static_cast<int>(config_.layers);
  {
    // lnf's output is read for the last time by the weight gradient, then its own gradient takes its place.
    const OpRange range(Pass::backward, kNoLayer, Op::lm_head);
    linear_backward_weight(false, matmul_, gradient(Tensor::wte), nullptr, logits(), at<bf16>(a.lnf), rows(), C_,
                           config_.padded_vocab, accumulate, scratch(), stream_);
    linear_backward_input(matmul_, at<bf16>(a.lnf), logits(), parameter(Tensor::wte), rows(), C_, config_.padded_vocab, stream_);
  }
  {
    // The first to write the residual stream's gradient; every layer adds to it.
    const OpRange range(Pass::backward, kNoLayer, Op::lnf);
    normalize_backward(at<bf16>(a.lnf), kept(before(layers)), a.lnf_mean, a.lnf_rstd, Tensor::lnfw, Tensor::lnfb, 0,
                       folded(Tensor::fcprojb, layers - 1), true, accumulate);
  }
  for (int layer = layers - 1; layer >= 0; --layer) layer_backward(layer, accumulate);
  {
    // wte already holds the classifier's part of its gradient, so the embedding's part always adds.
    const OpRange range(Pass::backward, kNoLayer, Op::embedding);
    embedding_backward(gradient(Tensor::wte), gradient(Tensor::wpe), dresidual(), tokens(), B_, T_, C_, config_.vocab_size,
                       config_.max_seq_len, accumulate, scratch_.data(), stream_);
  }
}

// A residual sum hands its gradient to both branches unchanged: no kernel, dresidual is read by the branch and added to after it. Every
// weight gradient comes before the input gradient that overwrites its activation (memory_plan.h says which takes whose place).
template <class R, class G>
void ModelOf<R, G>::layer_backward(int layer, bool accumulate) {
  const ActivationSlots& a = plan_.activations;
  const int64_t n = rows();
  bf16* ln1 = at<bf16>(a.ln1, layer);
  bf16* ln2 = at<bf16>(a.ln2, layer);
  bf16* up = at<bf16>(a.mlp_up, layer);
  bf16* gelu = at<bf16>(a.gelu, layer);

  if (plan_.recompute != Recompute::none) {
    const OpRange range(Pass::backward, layer, Op::gelu);
    gelu_forward(gelu, up, n * 4 * C_, stream_);
  }
  mlp_down_backward(layer, accumulate);
  bf16* dup = gelu;
  if (plan_.recompute == Recompute::gelu_and_layernorm) {
    const OpRange range(Pass::backward, layer, Op::ln2);
    layernorm_forward<bf16>(variants_.layernorm_forward, ln2, nullptr, nullptr, kept(middle(layer)), nullptr,
                            parameter(Tensor::ln2w, layer), parameter(Tensor::ln2b, layer), n, C_, stream_);
  }
  {
    const OpRange range(Pass::backward, layer, Op::mlp_up);
    weight_gradient(Tensor::fcw, Tensor::fcb, layer, dup, ln2, C_, 4 * C_, accumulate);
    linear_backward_input(matmul_, ln2, dup, parameter(Tensor::fcw, layer), n, C_, 4 * C_, stream_);
  }
  {
    const OpRange range(Pass::backward, layer, Op::ln2);
    normalize_backward(ln2, kept(middle(layer)), a.ln2_mean, a.ln2_rstd, Tensor::ln2w, Tensor::ln2b, layer, folded(Tensor::attprojb, layer), false,
                       accumulate);
  }
  bf16* dattention = ln2;
  {
    const OpRange range(Pass::backward, layer, Op::attproj);
    weight_gradient(Tensor::attprojw, Tensor::attprojb, layer, dresidual_operand(), at<bf16>(a.attention, layer), C_, C_, accumulate);
    linear_backward_input(matmul_, dattention, dresidual_operand(), parameter(Tensor::attprojw, layer), n, C_, C_, stream_);
  }
  bf16* dqkv = up;
  {
    const OpRange range(Pass::backward, layer, Op::attention);
    attention_backward(variants_.attention_backward, matmul_, dqkv, dattention, at<bf16>(a.qkv, layer),
                       at<bf16>(a.attention, layer), at<float>(a.lse, layer), {B_, T_, C_, config_.heads}, scratch_.data(), stream_);
  }
  if (plan_.recompute == Recompute::gelu_and_layernorm) {
    const OpRange range(Pass::backward, layer, Op::ln1);
    layernorm_forward<bf16>(variants_.layernorm_forward, ln1, nullptr, nullptr, kept(before(layer)), nullptr,
                            parameter(Tensor::ln1w, layer), parameter(Tensor::ln1b, layer), n, C_, stream_);
  }
  {
    const OpRange range(Pass::backward, layer, Op::qkv);
    weight_gradient(Tensor::qkvw, Tensor::qkvb, layer, dqkv, ln1, C_, 3 * C_, accumulate);
    linear_backward_input(matmul_, ln1, dqkv, parameter(Tensor::qkvw, layer), n, C_, 3 * C_, stream_);
  }
  {
    const OpRange range(Pass::backward, layer, Op::ln1);
    normalize_backward(ln1, kept(before(layer)), a.ln1_mean, a.ln1_rstd, Tensor::ln1w, Tensor::ln1b, layer,
                       folded(Tensor::fcprojb, layer - 1), false, accumulate);
  }
}

template <class R, class G>
void ModelOf<R, G>::mlp_down_backward(int layer, bool accumulate) {
  const ActivationSlots& a = plan_.activations;
  const bf16* before = at<bf16>(a.mlp_up, layer);
  bf16* gelu = at<bf16>(a.gelu, layer);  // then the gradient of `before`
  {
    const OpRange range(Pass::backward, layer, Op::mlp_down);
    weight_gradient(Tensor::fcprojw, Tensor::fcprojb, layer, dresidual_operand(), gelu, 4 * C_, C_, accumulate);
    if (variants_.gelu_backward == Gelu::matmul_epilogue &&
        linear_gelu_backward_input(matmul_, gelu, dresidual_operand(), parameter(Tensor::fcprojw, layer), before, rows(), 4 * C_, C_,
                                   stream_))
      return;
    linear_backward_input(matmul_, gelu, dresidual_operand(), parameter(Tensor::fcprojw, layer), rows(), 4 * C_, C_, stream_);
  }
  const OpRange range(Pass::backward, layer, Op::gelu);
  gelu_backward(gelu, gelu, before, rows() * 4 * C_, stream_);
}

template <class R, class G>
void ModelOf<R, G>::normalize_backward(const bf16* dout, const bf16* inp, const Slot& mean, const Slot& rstd, Tensor weight, Tensor bias,
                                    int layer, float* projection_bias_gradient, bool first, bool accumulate) {
  layernorm_backward(variants_.layernorm_backward, dresidual(), sizeof(G) == 2 ? nullptr : dresidual_operand(),
                     gradient(weight, layer), gradient(bias, layer), projection_bias_gradient, dout, inp, at<float>(mean, layer),
                     at<float>(rstd, layer), parameter(weight, layer), rows(), C_, !first, accumulate, scratch(), stream_);
}

template <class R, class G>
void ModelOf<R, G>::weight_gradient(Tensor weight, Tensor bias, int layer, const bf16* dout, const bf16* inp, int64_t in,
                                 int64_t out_channels, bool accumulate) {
  const bool projection = bias == Tensor::attprojb || bias == Tensor::fcprojb;
  float* dbias = projection && folded(bias, layer) != nullptr ? nullptr : gradient(bias, layer);
  linear_backward_weight(variants_.bias_gradient == BiasGradient::matmul_epilogue, matmul_, gradient(weight, layer), dbias, dout, inp,
                         rows(), in, out_channels, accumulate, scratch(), stream_);
}

}  // namespace

std::unique_ptr<Model> Model::make(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan,
                                   cudaStream_t stream) {
  const bool wide_stream = variants.residual_stream == ResidualStream::as_fp32;
  const bool wide_gradient = variants.residual_gradient == ResidualGradient::as_fp32;
  if (wide_stream && wide_gradient) return std::make_unique<ModelOf<float, float>>(options, variants, plan, stream);
  if (wide_stream) return std::make_unique<ModelOf<float, bf16>>(options, variants, plan, stream);
  if (wide_gradient) return std::make_unique<ModelOf<bf16, float>>(options, variants, plan, stream);
  return std::make_unique<ModelOf<bf16, bf16>>(options, variants, plan, stream);
}

}  // namespace mixed
