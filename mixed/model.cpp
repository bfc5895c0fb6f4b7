// One line per op, in the order of the step. Ranges are scoped by braces: pass, layer, op.
#include "mixed/model.h"

#include <stdexcept>
#include <type_traits>

#include "gpt2/op_range.h"
#include "gpt2/ops/column_sums.cuh"
#include "gpt2/ops/elementwise.cuh"
#include "gpt2/ops/encoder.cuh"
#include "gpt2/ops/grad_norm.cuh"
#include "gpt2/ops/layernorm_backward.cuh"
#include "gpt2/ops/layernorm_forward.cuh"
#include "mixed/kernels/attention.cuh"

namespace mixed {

namespace ops = gpt2::ops;
using gpt2::kNoLayer;
using gpt2::Op;
using gpt2::OpRange;
using gpt2::Pass;
using gpt2::Tensor;

void Model::update() {
  if (exchange_) {
    norm_over_ranks();
    return update_over_ranks();
  }
  {
    const OpRange range(Pass::optimizer, kNoLayer, Op::grad_norm);
    norm_of_gradients();
  }
  {
    const OpRange range(Pass::optimizer, kNoLayer, Op::adamw);
    with_moments([&](const auto& moments) { update_by(moments); });
  }
}

void Model::update_over_ranks() {
  with_masters([&](const auto& masters) {
    with_moments([&](const auto& moments) { exchange_->update(rounding_, masters, moments, block_gradients(), stats(), scalars()); });
  });
}

template <class M>
void Model::update_by(const M& moments) {
  const auto update = [&](const auto& gradients) {
    switch (variants_.masters) {
      case Masters::as_fp32:
        ops::adamw(rounding_, weights_.data(), masters_.data(), moments, gradients, layout_, scalars(), &stats()->clip_scale, stream_);
        break;
      case Masters::split:
        ops::adamw_split(rounding_, split_masters(), moments, gradients, layout_, scalars(), &stats()->clip_scale, stream_);
        break;
    }
  };
  if (gradient_arenas_) return update(gradients_in_arenas());
  const float* gradients = gradients_.data();
  switch (variants_.adamw) {
    case AdamWKernel::all_tensors:
      return update(gradients);
    case AdamWKernel::per_tensor:  // whose row refuses every other form of masters and moments
      break;
  }
  ops::adamw(variants_.adamw, rounding_, weights_.data(), masters_.data(), adam_m_.data(), adam_v_.data(), gradients, layout_, scalars(),
             &stats()->clip_scale, stream_);
}

// ---- forward and backward -----------------------------------------------------------------------------------------------

namespace {

// R: storage of the residual stream; G: of its gradient. bf16, float or ops::LowByte.
//
// The residual stream has a place before every layer, in the middle of it and after the last. Where it is wider than bf16 it lives in one
// buffer, and the places hold it rounded, for the backward pass. Its gradient has one buffer; where that is wider than bf16, a rounded
// copy lies beside it for the products that read it. With LowByte the buffer has the lower bytes, and what is rounded is the upper halves:
// a sum then reads the upper halves of the place before, and writes those of its own.
template <class R, class G>
class ModelOf final : public Model {
 public:
  ModelOf(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan, cudaStream_t stream)
      : Model(options, variants, plan, stream) {}

  void forward() override {
    forward_to_lnf();
    logits_of_lnf();
  }
  void forward_to_loss() override {
    forward_to_lnf();
    loss_of_lnf();
  }
  void backward(bool accumulate) override;

 private:
  static constexpr bool kWideResidual = ops::kKeepsMore<R, bf16>;
  static constexpr bool kWideGradient = ops::kKeepsMore<G, bf16>;

  // A place of the residual stream. `rounded`: what the backward pass reads of it.
  struct ResidualPlace {
    R* sum = nullptr;
    bf16* rounded = nullptr;
    bf16* rounded_beside() const { return kWideResidual ? rounded : nullptr; }  // for kernels that write both
    bf16* up() const { return ops::kIsSplit<R> ? rounded : nullptr; }
  };
  ResidualPlace residual_at(bf16* place) const {
    if constexpr (kWideResidual)
      return {at<R>(plan_.activations.stream), place};
    else
      return {place, place};
  }
  // Before layer `layer`; of the number of layers: after the last.
  ResidualPlace entering(int64_t layer) const {
    const ActivationSlots& a = plan_.activations;
    return residual_at(layer == 0 ? at<bf16>(a.encoded) : at<bf16>(a.residual2, layer - 1));
  }
  ResidualPlace inside(int64_t layer) const { return residual_at(at<bf16>(plan_.activations.residual1, layer)); }
  G* dresidual() const { return at<G>(plan_.activations.dresidual); }
  bf16* dresidual_rounded() const { return at<bf16>(plan_.activations.dresidual_rounded); }
  bf16* dresidual_rounded_beside() const { return kWideGradient ? dresidual_rounded() : nullptr; }
  const bf16* dresidual_up() const { return ops::kIsSplit<G> ? dresidual_rounded() : nullptr; }

  // A layernorm at its place in the model.
  struct Norm {
    Op op;
    int range_layer;  // gpt2::kNoLayer for lnf
    int64_t layer;
    bf16* out;
    float *mean, *rstd;
    Tensor weight, bias;
  };
  Norm ln1(int layer) const {
    const ActivationSlots& a = plan_.activations;
    return {Op::ln1,      layer,       layer, at<bf16>(a.ln1, layer), at<float>(a.ln1_mean, layer), at<float>(a.ln1_rstd, layer),
            Tensor::ln1w, Tensor::ln1b};
  }
  Norm ln2(int layer) const {
    const ActivationSlots& a = plan_.activations;
    return {Op::ln2,      layer,       layer, at<bf16>(a.ln2, layer), at<float>(a.ln2_mean, layer), at<float>(a.ln2_rstd, layer),
            Tensor::ln2w, Tensor::ln2b};
  }
  Norm lnf() const {
    const ActivationSlots& a = plan_.activations;
    return {Op::lnf, kNoLayer, 0, at<bf16>(a.lnf), at<float>(a.lnf_mean), at<float>(a.lnf_rstd), Tensor::lnfw, Tensor::lnfb};
  }
  // The linear layer that ends a block, and the residual sum behind it.
  struct Projection {
    Op linear, residual;
    int layer;
    const bf16* inp;
    int64_t in;
    Tensor weight, bias;
  };
  Projection attproj(int layer) const {
    return {Op::attproj, Op::residual1, layer, at<bf16>(plan_.activations.attention, layer), C_, Tensor::attprojw, Tensor::attprojb};
  }
  Projection mlp_down(int layer) const {
    return {Op::mlp_down, Op::residual2, layer, at<bf16>(plan_.activations.gelu, layer), 4 * C_, Tensor::fcprojw, Tensor::fcprojb};
  }

  void forward_to_lnf();
  void normalize(const Norm& norm, const ResidualPlace& of);
  void project_add_normalize(const Projection& p, const ResidualPlace& from, const ResidualPlace& to, const Norm& next);
  void up_and_gelu(int layer);

  void layer_backward(int layer, bool accumulate);
  void embedding_backward(bool accumulate);
  void normalize_again(const Norm& norm, const ResidualPlace& of);
  // `before`: the projection whose residual sum the norm reads; nullptr in front of the first.
  void normalize_backward(const Norm& norm, const ResidualPlace& of, const Projection* before, bool first, bool accumulate);
  void projection_weight_backward(const Projection& p, bool accumulate);
};

// The norm after a residual sum belongs to the next block, or to the next layer, and may make the sum on its way: so a block ends with
// the norm behind it (fusion across blocks), and only the first norm of all stands alone.
template <class R, class G>
void ModelOf<R, G>::forward_to_lnf() {
  const ActivationSlots& a = plan_.activations;
  const AttentionShape attention{B_, T_, C_, config_.heads};
  const int layers = static_cast<int>(config_.layers);
  weights_needed(kNoLayer);
  {
    const OpRange range(Pass::encoder, kNoLayer, Op::embedding);
    ops::embedding_forward(entering(0).sum, inputs(), parameter(Tensor::wte), parameter(Tensor::wpe), B_, T_, C_, stream_,
                           entering(0).up());
  }
  weights_needed(0);
  {
    const OpRange range(Pass::forward, 0, Op::ln1);
    normalize(ln1(0), entering(0));
  }
  for (int layer = 0; layer < layers; ++layer) {
    {
      const OpRange range(Pass::forward, layer, Op::qkv);
      linear_forward(variants_.linear_forward, matmul_, at<bf16>(a.qkv, layer), at<bf16>(a.ln1, layer), parameter(Tensor::qkvw, layer),
                     parameter(Tensor::qkvb, layer), rows(), C_, 3 * C_, stream_);
    }
    {
      const OpRange range(Pass::forward, layer, Op::attention);
      attention_forward(variants_.attention_forward, variants_.attention_plan, matmul_, at<bf16>(a.attention, layer),
                        at<float>(a.lse, layer), at<bf16>(a.qkv, layer), attention, scratch_.data(), stream_);
    }
    project_add_normalize(attproj(layer), entering(layer), inside(layer), ln2(layer));
    up_and_gelu(layer);
    if (layer + 1 < layers) weights_needed(layer + 1);  // whose first norm ends this layer
    project_add_normalize(mlp_down(layer), inside(layer), entering(layer + 1), layer + 1 < layers ? ln1(layer + 1) : lnf());
  }
}

template <class R, class G>
void ModelOf<R, G>::normalize(const Norm& norm, const ResidualPlace& of) {
  bf16* kept = ops::kIsSplit<R> ? nullptr : of.rounded_beside();  // the upper halves are there
  ops::layernorm_forward(variants_.layernorm_forward, norm.out, norm.mean, norm.rstd, of.sum, kept, parameter(norm.weight, norm.layer),
                         parameter(norm.bias, norm.layer), rows(), C_, stream_, of.up());
}

// to = from + linear(inp); next.out = layernorm(to).
template <class R, class G>
void ModelOf<R, G>::project_add_normalize(const Projection& p, const ResidualPlace& from, const ResidualPlace& to, const Norm& next) {
  bf16* branch = at<bf16>(plan_.activations.branch);
  const bf16* weight = parameter(p.weight, p.layer);
  const bf16* bias = parameter(p.bias, p.layer);
  switch (variants_.residual) {
    case Residual::fused_layernorm: {
      {
        const OpRange range(Pass::forward, p.layer, p.linear);
        linear_forward(variants_.linear_forward, matmul_, branch, p.inp, weight, bias, rows(), p.in, C_, stream_);
      }
      const OpRange range(Pass::forward, next.range_layer, next.op);
      ops::residual_layernorm_forward(variants_.layernorm_forward, to.sum, to.rounded_beside(), next.out, next.mean, next.rstd, from.sum,
                                      branch, parameter(next.weight, next.layer), parameter(next.bias, next.layer), rows(), C_, stream_,
                                      from.up());
      break;
    }
    case Residual::separate: {
      {
        const OpRange range(Pass::forward, p.layer, p.linear);
        linear_forward(variants_.linear_forward, matmul_, branch, p.inp, weight, bias, rows(), p.in, C_, stream_);
      }
      {
        const OpRange range(Pass::forward, p.layer, p.residual);
        ops::residual_forward(to.sum, from.sum, branch, rows() * C_, stream_, to.up(), from.up());
      }
      const OpRange range(Pass::forward, next.range_layer, next.op);
      normalize(next, to);
      break;
    }
    case Residual::matmul_epilogue: {
      {
        const OpRange range(Pass::forward, p.layer, p.linear);
        if constexpr (ops::kIsSplit<R>)
          throw std::logic_error("residual=matmul_epilogue: the row refuses a split stream");
        else
          linear_residual_forward<R>(matmul_, to.sum, from.sum, p.inp, weight, bias, rows(), p.in, C_, stream_);
      }
      const OpRange range(Pass::forward, next.range_layer, next.op);
      normalize(next, to);
      break;
    }
  }
}

template <class R, class G>
void ModelOf<R, G>::up_and_gelu(int layer) {
  const ActivationSlots& a = plan_.activations;
  const bf16* ln2 = at<bf16>(a.ln2, layer);
  bf16* up = at<bf16>(a.mlp_up, layer);
  bf16* gelu = at<bf16>(a.gelu, layer);
  switch (variants_.gelu_forward) {
    case Gelu::matmul_epilogue: {
      const OpRange range(Pass::forward, layer, Op::mlp_up);
      linear_gelu_forward(matmul_, gelu, up, ln2, parameter(Tensor::fcw, layer), parameter(Tensor::fcb, layer), rows(), C_, 4 * C_,
                          stream_);
      break;
    }
    case Gelu::kernel: {
      {
        const OpRange range(Pass::forward, layer, Op::mlp_up);
        linear_forward(variants_.linear_forward, matmul_, up, ln2, parameter(Tensor::fcw, layer), parameter(Tensor::fcb, layer), rows(), C_,
                       4 * C_, stream_);
      }
      const OpRange range(Pass::forward, layer, Op::gelu);
      ops::gelu_forward(gelu, up, rows() * 4 * C_, stream_);
      break;
    }
    case Gelu::hopper: {
      const OpRange range(Pass::forward, layer, Op::mlp_up);
      linear_gelu_slope_forward(hopper_, gelu, up, ln2, parameter(Tensor::fcw, layer), parameter(Tensor::fcb, layer), rows(), C_, 4 * C_,
                                stream_);
      break;
    }
  }
}

template <class R, class G>
void ModelOf<R, G>::backward(bool accumulate) {
  const int layers = static_cast<int>(config_.layers);
  sort_tokens();
  head_backward(accumulate);
  if (exchange_) exchange_->ready(ops::GradientExchange::kAfterHead);
  {
    // The first to write the residual stream's gradient; every layer adds to it.
    const OpRange range(Pass::backward, kNoLayer, Op::lnf);
    const Projection before = mlp_down(layers - 1);
    normalize_backward(lnf(), entering(layers), &before, true, accumulate);
  }
  for (int layer = layers - 1; layer >= 0; --layer) {
    layer_backward(layer, accumulate);
    sum_squares_beside(layer);
  }
  embedding_backward(accumulate);
  gradients_ready(kNoLayer);
  join_squares();
}

// wte already holds the classifier's part of its gradient, so the embedding's part always adds: that of this rank, or of all.
template <class R, class G>
void ModelOf<R, G>::embedding_backward(bool accumulate) {
  const auto add = [&](const auto* rows_of_all, const bf16* upper_halves, int64_t batches) {
    const OpRange range(Pass::backward, kNoLayer, Op::embedding);
    with_wte_gradient([&](auto* dwte) {
      ops::embedding_backward<bf16>(dwte, gradient(Tensor::wpe), rows_of_all, batches, T_, C_, config_.max_seq_len, accumulate,
                                    embedding_scratch_.data(), stream_, upper_halves);
    });
  };
  if (!exchange_ || !exchange_->gathers_rows()) {
    tokens_are_sorted_.wait(stream_);
    return add(dresidual(), dresidual_up(), B_);
  }
  const int64_t values = rows() * C_;
  const auto send = [&](const auto* from) {
    return exchange_->gather_rows([&, from](void* mine, cudaStream_t on) {
      STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(mine, from, static_cast<size_t>(values) * sizeof(*from), cudaMemcpyDeviceToDevice, on));
    });
  };
  switch (variants_.embedding_exchange) {
    case EmbeddingExchange::gathered_bf16_rows: {
      const auto gathered = send(dresidual_rounded());
      return add(static_cast<const bf16*>(gathered.rows), nullptr, B_ * gathered.ranks);
    }
    case EmbeddingExchange::gathered_rows:
    case EmbeddingExchange::dense:  // gathers none
      break;
  }
  if constexpr (ops::kIsSplit<G>) {  // rows travel in one piece, so they are joined on their way into the buffer
    const auto gathered = exchange_->gather_rows(
        [&](void* mine, cudaStream_t on) { ops::join_values(static_cast<float*>(mine), dresidual_up(), dresidual(), 0, values, on); });
    add(static_cast<const float*>(gathered.rows), nullptr, B_ * gathered.ranks);
  } else {
    const auto gathered = send(dresidual());
    add(static_cast<const G*>(gathered.rows), nullptr, B_ * gathered.ranks);
  }
}

// A residual sum hands its gradient to both branches unchanged: no kernel, dresidual is read by the branch and added to after it. Every
// weight gradient comes before the input gradient that overwrites its activation: the names below say what a place holds then
// (memory_plan.h says which takes whose place).
template <class R, class G>
void ModelOf<R, G>::layer_backward(int layer, bool accumulate) {
  const ActivationSlots& a = plan_.activations;
  const AttentionShape attention{B_, T_, C_, config_.heads};
  const int64_t n = rows();
  bf16* up = at<bf16>(a.mlp_up, layer);
  bf16* gelu = at<bf16>(a.gelu, layer);
  bf16* dup = gelu;
  bf16* dln2 = ln2(layer).out;
  bf16* dattention = dln2;
  bf16* dqkv = up;
  bf16* dln1 = ln1(layer).out;

  if (plan_.recompute != Recompute::none) {
    const OpRange range(Pass::backward, layer, Op::gelu);
    ops::gelu_forward(gelu, up, n * 4 * C_, stream_);
  }
  switch (variants_.gelu_backward) {
    case Gelu::matmul_epilogue: {
      const OpRange range(Pass::backward, layer, Op::mlp_down);
      projection_weight_backward(mlp_down(layer), accumulate);
      linear_gelu_backward_input(matmul_, dup, dresidual_rounded(), parameter(Tensor::fcprojw, layer), up, n, 4 * C_, C_, stream_);
      break;
    }
    case Gelu::kernel: {
      {
        const OpRange range(Pass::backward, layer, Op::mlp_down);
        projection_weight_backward(mlp_down(layer), accumulate);
        linear_backward_input(matmul_, dup, dresidual_rounded(), parameter(Tensor::fcprojw, layer), n, 4 * C_, C_, stream_);
      }
      const OpRange range(Pass::backward, layer, Op::gelu);
      ops::gelu_backward(dup, dup, up, n * 4 * C_, stream_);
      break;
    }
    case Gelu::hopper: {
      const OpRange range(Pass::backward, layer, Op::mlp_down);
      projection_weight_backward(mlp_down(layer), accumulate);
      linear_gelu_slope_backward(hopper_, dup, scratch(), dresidual_rounded(), parameter(Tensor::fcprojw, layer), up, n, 4 * C_, C_,
                                 stream_);
      break;
    }
  }
  if (plan_.recompute == Recompute::gelu_and_layernorm) {
    const OpRange range(Pass::backward, layer, Op::ln2);
    normalize_again(ln2(layer), inside(layer));
  }
  {
    const OpRange range(Pass::backward, layer, Op::mlp_up);
    float* bias = gradient(Tensor::fcb, layer);
    if (sums_columns(variants_.gelu_backward)) {  // scratch holds mlp_down's
      ops::reduce_partials(bias, scratch(), gelu_partials(n), 4 * C_, 4 * C_, accumulate, stream_);
      bias = nullptr;
    }
    weight_gradient(Tensor::fcw, layer, bias, dup, ln2(layer).out, C_, 4 * C_, accumulate);
    linear_backward_input(matmul_, dln2, dup, parameter(Tensor::fcw, layer), n, C_, 4 * C_, stream_);
  }
  {
    const OpRange range(Pass::backward, layer, Op::ln2);
    const Projection before = attproj(layer);
    normalize_backward(ln2(layer), inside(layer), &before, false, accumulate);
  }
  {
    const OpRange range(Pass::backward, layer, Op::attproj);
    projection_weight_backward(attproj(layer), accumulate);
    linear_backward_input(matmul_, dattention, dresidual_rounded(), parameter(Tensor::attprojw, layer), n, C_, C_, stream_);
  }
  const hopper::ColumnSums dqkv_sums =
      attention_sums(variants_.bias_gradient, variants_.attention_backward, variants_.attention_plan, attention, scratch_.data());
  {
    const OpRange range(Pass::backward, layer, Op::attention);
    attention_backward(variants_.attention_backward, variants_.attention_plan, matmul_, dqkv, dattention, at<bf16>(a.qkv, layer),
                       at<bf16>(a.attention, layer), at<float>(a.lse, layer), attention, scratch_.data(), stream_, dqkv_sums);
  }
  if (plan_.recompute == Recompute::gelu_and_layernorm) {
    const OpRange range(Pass::backward, layer, Op::ln1);
    normalize_again(ln1(layer), entering(layer));
  }
  {
    const OpRange range(Pass::backward, layer, Op::qkv);
    float* bias = gradient(Tensor::qkvb, layer);
    if (dqkv_sums != nullptr) {
      // attproj's, which normalize_backward(ln2) made above, and which no rank has exchanged yet.
      const LinearBehind behind{gradient(Tensor::attprojb, layer), parameter(Tensor::attprojw, layer)};
      attention_bias_gradient(bias, dqkv_sums, behind, attention, accumulate, stream_);
      bias = nullptr;
    }
    weight_gradient(Tensor::qkvw, layer, bias, dqkv, ln1(layer).out, C_, 3 * C_, accumulate);
    linear_backward_input(matmul_, dln1, dqkv, parameter(Tensor::qkvw, layer), n, C_, 3 * C_, stream_);
  }
  {
    const OpRange range(Pass::backward, layer, Op::ln1);
    if (layer == 0) {
      normalize_backward(ln1(layer), entering(layer), nullptr, false, accumulate);
    } else {
      const Projection before = mlp_down(layer - 1);
      normalize_backward(ln1(layer), entering(layer), &before, false, accumulate);
    }
  }
  gradients_ready(layer);
}

// The norm's output once more, from what the backward pass has of the residual stream.
template <class R, class G>
void ModelOf<R, G>::normalize_again(const Norm& norm, const ResidualPlace& of) {
  ops::layernorm_forward<bf16, bf16>(variants_.layernorm_forward, norm.out, nullptr, nullptr, of.rounded, nullptr,
                                     parameter(norm.weight, norm.layer), parameter(norm.bias, norm.layer), rows(), C_, stream_);
}

// Adds to dresidual() the gradient of a norm whose output's gradient has taken the output's place. dresidual() is then the gradient of the
// projection in front, and its column sums that projection's bias gradient.
template <class R, class G>
void ModelOf<R, G>::normalize_backward(const Norm& norm, const ResidualPlace& of, const Projection* before, bool first, bool accumulate) {
  float* projection_bias = nullptr;
  switch (variants_.bias_gradient) {
    case BiasGradient::softmax_identities:
    case BiasGradient::attention_fold:
    case BiasGradient::layernorm_fold:
      if (before != nullptr) projection_bias = gradient(before->bias, before->layer);
      break;
    case BiasGradient::column_sums:
    case BiasGradient::matmul_epilogue:
      break;
  }
  ops::layernorm_backward<bf16, G>(variants_.layernorm_backward,
                                   {.dinp = dresidual(),
                                    .dinp_copy = dresidual_rounded_beside(),
                                    .dweight = gradient(norm.weight, norm.layer),
                                    .dbias = gradient(norm.bias, norm.layer),
                                    .dinp_column_sums = projection_bias,
                                    .add_to_dinp = !first,
                                    .accumulate = accumulate},
                                   norm.out, of.rounded, norm.mean, norm.rstd, parameter(norm.weight, norm.layer), rows(), C_, scratch(),
                                   stream_);
}

template <class R, class G>
void ModelOf<R, G>::projection_weight_backward(const Projection& p, bool accumulate) {
  float* bias = gradient(p.bias, p.layer);
  switch (variants_.bias_gradient) {
    case BiasGradient::softmax_identities:
    case BiasGradient::attention_fold:
    case BiasGradient::layernorm_fold:
      bias = nullptr;
      break;  // normalize_backward made it
    case BiasGradient::column_sums:
    case BiasGradient::matmul_epilogue:
      break;
  }
  weight_gradient(p.weight, p.layer, bias, dresidual_rounded(), p.inp, p.in, C_, accumulate);
}

template <class R>
std::unique_ptr<Model> make_with_residual(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan,
                                          cudaStream_t stream) {
  switch (variants.residual_gradient) {
    case ResidualGradient::split:
      return std::make_unique<ModelOf<R, ops::LowByte>>(options, variants, plan, stream);
    case ResidualGradient::as_fp32:
      return std::make_unique<ModelOf<R, float>>(options, variants, plan, stream);
    case ResidualGradient::as_bf16:
      return std::make_unique<ModelOf<R, bf16>>(options, variants, plan, stream);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Model> Model::make(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan,
                                   cudaStream_t stream) {
  switch (variants.residual_stream) {
    case ResidualStream::split:
      return make_with_residual<ops::LowByte>(options, variants, plan, stream);
    case ResidualStream::as_fp32:
      return make_with_residual<float>(options, variants, plan, stream);
    case ResidualStream::as_bf16:
      return make_with_residual<bf16>(options, variants, plan, stream);
  }
  return nullptr;
}

}  // namespace mixed
