#include "gpt2/reference/reference_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/errors.h"
#include "gpt2/op_range.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace gpt2::reference {
namespace {

constexpr int64_t kPackRows = 1024, kPackColumns = 3072, kPackDepthBlocks = 4;

int thread_count() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

// The one list of activation sizes, per token row: what a layer keeps, what the model keeps or works in
// beside the layers.
constexpr int64_t layer_columns(int64_t C) { return 16 * C + 4; }   // ln1 ln2 attention middle out, qkv, up gelu, 4 statistics
constexpr int64_t shared_columns(int64_t C) { return 12 * C + 2; }  // encoded lnf branch dstream dnarrow, dqkv, dwide, 2 statistics

int64_t activation_count(const ModelConfig& c, int64_t M) {
  return M * (c.layers * layer_columns(c.channels) + shared_columns(c.channels)) + c.layers * M * c.heads;
}

void check_shape(const ModelConfig& config, int64_t B, int64_t T) {
  check_config(config, "model");
  if (B < 1) throw stepscope::InputError(fmt::format("batch size is {}, expected at least 1", B));
  if (T < 1 || T > config.max_seq_len)
    throw stepscope::InputError(fmt::format("sequence length is {}, expected 1 to {} for this model", T, config.max_seq_len));
  if (B > (int64_t{1} << 31) / T)
    throw stepscope::InputError(fmt::format("batch size {} times sequence length {} is more than 2^31 tokens", B, T));
}

}  // namespace

std::vector<MemoryItem> planned_memory(const ModelConfig& config, int64_t batch_size, int64_t seq_len, int64_t real_bytes) {
  check_shape(config, batch_size, seq_len);
  const int64_t parameters = tensor_layout(config).total * real_bytes;
  const int64_t M = batch_size * seq_len;
  return {{"parameters", parameters},
          {"gradients", parameters},
          {"optimizer state", 2 * parameters},
          {"activations", activation_count(config, M) * real_bytes},
          {"logits", M * config.padded_vocab * real_bytes}};
}

void check_batch(const Batch& batch, const ModelConfig& config, int64_t batch_size, int64_t seq_len) {
  auto check = [&](std::span<const int32_t> tokens, const char* what) {
    const int64_t expected = batch_size * seq_len;
    if (static_cast<int64_t>(tokens.size()) != expected)
      throw stepscope::InputError(
          fmt::format("batch: {} {} tokens, expected {} ({} sequences of {})", tokens.size(), what, expected, batch_size, seq_len));
    for (size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] < 0 || tokens[i] >= config.vocab_size)
        throw stepscope::InputError(
            fmt::format("batch: {} token {} at position {}, expected 0 to {}", what, tokens[i], i, config.vocab_size - 1));
  };
  check(batch.inputs, "input");
  check(batch.targets, "target");
}

template <typename Real>
ReferenceModel<Real>::ReferenceModel(const ModelConfig& config, int64_t batch_size, int64_t seq_len)
    : config_((check_shape(config, batch_size, seq_len), config)),  // first: the products below rely on it
      B_(batch_size),
      T_(seq_len),
      M_(batch_size * seq_len),
      layout_(tensor_layout(config)),
      attention_shape_{batch_size, seq_len, config.heads, config.head_size()},
      buffers_(kPackRows, kPackColumns, kPackDepthBlocks) {
  int64_t needed = 0;
  for (const MemoryItem& item : planned_memory(config, batch_size, seq_len, sizeof(Real))) needed += item.bytes;
  const int64_t present = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  if (needed > present)
    throw stepscope::MachineError(
        fmt::format("the CPU reference needs {:.1f} GB for batch size {}, sequence length {}; this machine has {:.1f} GB",
                    static_cast<double>(needed) * 1e-9, batch_size, seq_len, static_cast<double>(present) * 1e-9));
  parameters_ = Buffer<Real>(layout_.total);
  gradients_ = Buffer<Real>(layout_.total);
  adam_m_ = Buffer<Real>(layout_.total);
  adam_v_ = Buffer<Real>(layout_.total);
  logits_ = Buffer<Real>(M_ * config_.padded_vocab);
  carve_activations();
  for (int i = 0; i < thread_count(); ++i) attention_scratch_.emplace_back(attention_shape_);
  inputs_.resize(static_cast<size_t>(M_));
  targets_.resize(static_cast<size_t>(M_));
}

template <typename Real>
void ReferenceModel<Real>::carve_activations() {
  activations_ = Buffer<Real>(activation_count(config_, M_));
  Real* next = activations_.data();
  const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
  const int64_t C = config_.channels, MC = M_ * C;
  encoded_ = take(MC);
  for (int64_t l = 0; l < config_.layers; ++l) {
    Layer a;
    a.ln1 = take(MC), a.ln1_mean = take(M_), a.ln1_rstd = take(M_);
    a.qkv = take(3 * MC);
    a.attention = take(MC), a.log_sum_exp = take(M_ * config_.heads);
    a.middle = take(MC);
    a.ln2 = take(MC), a.ln2_mean = take(M_), a.ln2_rstd = take(M_);
    a.up = take(4 * MC), a.gelu = take(4 * MC);
    a.out = take(MC);
    layers_.push_back(a);
  }
  lnf_ = take(MC), lnf_mean_ = take(M_), lnf_rstd_ = take(M_);
  branch_ = take(MC);
  dstream_ = take(MC), dnarrow_ = take(MC), dqkv_ = take(3 * MC), dwide_ = take(4 * MC);
  if (next != activations_.data() + activations_.size()) throw std::logic_error("the activations taken are not those that were planned");
}

template <typename Real>
Real* ReferenceModel<Real>::parameter(Tensor t, int64_t layer) {
  return parameters_.data() + layout_[t].offset + layer * layout_[t].per_layer;
}
template <typename Real>
Real* ReferenceModel<Real>::gradient(Tensor t, int64_t layer) {
  return gradients_.data() + layout_[t].offset + layer * layout_[t].per_layer;
}
template <typename Real>
const Real* ReferenceModel<Real>::layer_input(int64_t layer) const {
  return layer == 0 ? encoded_ : layers_[static_cast<size_t>(layer - 1)].out;
}

template <typename Real>
void ReferenceModel<Real>::set_parameters(std::span<const float> values) {
  if (static_cast<int64_t>(values.size()) != layout_.total)
    throw stepscope::InputError(fmt::format("{} parameters given, expected {}", values.size(), layout_.total));
  std::copy(values.begin(), values.end(), parameters_.data());
}

template <typename Real>
void ReferenceModel<Real>::layer_forward(int layer) {
  const int64_t C = config_.channels;
  const Layer& a = layers_[static_cast<size_t>(layer)];
  const Real* in = layer_input(layer);
  const auto p = [&](Tensor t) { return parameter(t, layer); };
  constexpr Pass f = Pass::forward;
  {
    const OpRange range(f, layer, Op::ln1);
    layernorm_forward(a.ln1, a.ln1_mean, a.ln1_rstd, in, p(Tensor::ln1w), p(Tensor::ln1b), M_, C);
    stored(a.ln1, M_ * C);
  }
  {
    const OpRange range(f, layer, Op::qkv);
    linear_forward<Real>({M_, C, 3 * C, 3 * C}, a.qkv, a.ln1, p(Tensor::qkvw), p(Tensor::qkvb), buffers_);
    stored(a.qkv, 3 * M_ * C);
  }
  {
    const OpRange range(f, layer, Op::attention);
    attention_forward(attention_shape_, a.attention, a.log_sum_exp, a.qkv, attention_scratch_);
    stored(a.attention, M_ * C);
  }
  {
    const OpRange range(f, layer, Op::attproj);
    linear_forward<Real>({M_, C, C, C}, branch_, a.attention, p(Tensor::attprojw), p(Tensor::attprojb), buffers_);
    stored(branch_, M_ * C);
  }
  {
    const OpRange range(f, layer, Op::residual1);
    residual_forward(a.middle, in, branch_, M_ * C);
    stored(a.middle, M_ * C, true);
  }
  {
    const OpRange range(f, layer, Op::ln2);
    layernorm_forward(a.ln2, a.ln2_mean, a.ln2_rstd, a.middle, p(Tensor::ln2w), p(Tensor::ln2b), M_, C);
    stored(a.ln2, M_ * C);
  }
  {
    const OpRange range(f, layer, Op::mlp_up);
    linear_forward<Real>({M_, C, 4 * C, 4 * C}, a.up, a.ln2, p(Tensor::fcw), p(Tensor::fcb), buffers_);
    stored(a.up, 4 * M_ * C);
  }
  {
    const OpRange range(f, layer, Op::gelu);
    gelu_forward(a.gelu, a.up, M_ * 4 * C);
    stored(a.gelu, 4 * M_ * C);
  }
  {
    const OpRange range(f, layer, Op::mlp_down);
    linear_forward<Real>({M_, 4 * C, C, C}, branch_, a.gelu, p(Tensor::fcprojw), p(Tensor::fcprojb), buffers_);
    stored(branch_, M_ * C);
  }
  {
    const OpRange range(f, layer, Op::residual2);
    residual_forward(a.out, a.middle, branch_, M_ * C);
    stored(a.out, M_ * C, true);
  }
}

// dstream_: in, the gradient of the layer's output; out, that of its input.
template <typename Real>
void ReferenceModel<Real>::layer_backward(int layer, bool accumulate) {
  const int64_t C = config_.channels;
  const Layer& a = layers_[static_cast<size_t>(layer)];
  const auto p = [&](Tensor t) { return parameter(t, layer); };
  const auto g = [&](Tensor t) { return gradient(t, layer); };
  constexpr Pass b = Pass::backward;
  {
    const OpRange range(b, layer, Op::mlp_down);
    linear_backward<Real>({M_, 4 * C, C, C}, dwide_, g(Tensor::fcprojw), dstream_, a.gelu, p(Tensor::fcprojw), accumulate, buffers_);
    bias_backward(g(Tensor::fcprojb), dstream_, M_, C, accumulate);
    stored(dwide_, 4 * M_ * C);
  }
  {
    const OpRange range(b, layer, Op::gelu);
    gelu_backward(dwide_, a.up, M_ * 4 * C);
    stored(dwide_, 4 * M_ * C);
  }
  {
    const OpRange range(b, layer, Op::mlp_up);
    linear_backward<Real>({M_, C, 4 * C, 4 * C}, dnarrow_, g(Tensor::fcw), dwide_, a.ln2, p(Tensor::fcw), accumulate, buffers_);
    bias_backward(g(Tensor::fcb), dwide_, M_, 4 * C, accumulate);
    stored(dnarrow_, M_ * C);
  }
  {
    const OpRange range(b, layer, Op::ln2);
    layernorm_backward(dstream_, true, g(Tensor::ln2w), g(Tensor::ln2b), accumulate, dnarrow_, a.middle, a.ln2_mean, a.ln2_rstd,
                       p(Tensor::ln2w), M_, C);
    stored(dstream_, M_ * C, true);
  }
  {
    const OpRange range(b, layer, Op::attproj);
    linear_backward<Real>({M_, C, C, C}, dnarrow_, g(Tensor::attprojw), dstream_, a.attention, p(Tensor::attprojw), accumulate, buffers_);
    bias_backward(g(Tensor::attprojb), dstream_, M_, C, accumulate);
    stored(dnarrow_, M_ * C);
  }
  {
    const OpRange range(b, layer, Op::attention);
    attention_backward(attention_shape_, dqkv_, dnarrow_, a.attention, a.log_sum_exp, a.qkv, attention_scratch_);
    stored(dqkv_, 3 * M_ * C);
  }
  {
    const OpRange range(b, layer, Op::qkv);
    linear_backward<Real>({M_, C, 3 * C, 3 * C}, dnarrow_, g(Tensor::qkvw), dqkv_, a.ln1, p(Tensor::qkvw), accumulate, buffers_);
    bias_backward(g(Tensor::qkvb), dqkv_, M_, 3 * C, accumulate);
    stored(dnarrow_, M_ * C);
  }
  {
    const OpRange range(b, layer, Op::ln1);
    layernorm_backward(dstream_, true, g(Tensor::ln1w), g(Tensor::ln1b), accumulate, dnarrow_, layer_input(layer), a.ln1_mean, a.ln1_rstd,
                       p(Tensor::ln1w), M_, C);
    stored(dstream_, M_ * C, true);
  }
}

template <typename Real>
void ReferenceModel<Real>::run_forward(const Batch& batch) {
  check_batch(batch, config_, B_, T_);
  std::copy(batch.inputs.begin(), batch.inputs.end(), inputs_.begin());
  std::copy(batch.targets.begin(), batch.targets.end(), targets_.begin());
  const int64_t C = config_.channels;
  {
    const OpRange range(Pass::encoder, kNoLayer, Op::embedding);
    embedding_forward<Real>(encoded_, inputs_, parameter(Tensor::wte), parameter(Tensor::wpe), T_, C);
    stored(encoded_, M_ * C, true);
  }
  for (int layer = 0; layer < static_cast<int>(config_.layers); ++layer) layer_forward(layer);
  {
    const OpRange range(Pass::forward, kNoLayer, Op::lnf);
    layernorm_forward(lnf_, lnf_mean_, lnf_rstd_, layer_input(config_.layers), parameter(Tensor::lnfw), parameter(Tensor::lnfb), M_, C);
    stored(lnf_, M_ * C);
  }
  {
    // Over V columns, not Vp: the padding of wte is never read, whatever it holds.
    const OpRange range(Pass::forward, kNoLayer, Op::lm_head);
    linear_forward<Real>({M_, C, config_.vocab_size, config_.padded_vocab}, logits_.data(), lnf_, parameter(Tensor::wte), nullptr,
                         buffers_);
    stored(logits_.data(), M_ * config_.padded_vocab);
  }
}

template <typename Real>
double ReferenceModel<Real>::classify(double gradient_scale) {
  const OpRange range(Pass::classifier, kNoLayer, Op::loss);
  const double loss = softmax_cross_entropy<Real>(logits_.data(), targets_, config_.vocab_size, config_.padded_vocab, gradient_scale);
  if (gradient_scale != 0) stored(logits_.data(), M_ * config_.padded_vocab);
  return loss;
}

template <typename Real>
void ReferenceModel<Real>::run_backward(bool accumulate) {
  logits_valid_ = false;
  const int64_t C = config_.channels;
  {
    const OpRange range(Pass::backward, kNoLayer, Op::lm_head);
    linear_backward<Real>({M_, C, config_.vocab_size, config_.padded_vocab}, dnarrow_, gradient(Tensor::wte), logits_.data(), lnf_,
                          parameter(Tensor::wte), accumulate, buffers_);
    stored(dnarrow_, M_ * C);
  }
  {
    const OpRange range(Pass::backward, kNoLayer, Op::lnf);
    layernorm_backward(dstream_, false, gradient(Tensor::lnfw), gradient(Tensor::lnfb), accumulate, dnarrow_, layer_input(config_.layers),
                       lnf_mean_, lnf_rstd_, parameter(Tensor::lnfw), M_, C);
    stored(dstream_, M_ * C, true);
  }
  for (int layer = static_cast<int>(config_.layers) - 1; layer >= 0; --layer) layer_backward(layer, accumulate);
  const OpRange range(Pass::backward, kNoLayer, Op::embedding);
  embedding_backward<Real>(gradient(Tensor::wte), gradient(Tensor::wpe), dstream_, inputs_, T_, config_.max_seq_len, C, accumulate);
}

template <typename Real>
double ReferenceModel<Real>::forward(const Batch& batch) {
  logits_valid_ = false;  // run_forward may throw half way
  run_forward(batch);
  const double loss = classify(0);
  logits_valid_ = true;
  return loss;
}

template <typename Real>
void ReferenceModel<Real>::backward(double scale, bool accumulate) {
  if (!logits_valid_) throw std::logic_error("backward() needs a forward() of its own before it");
  classify(scale / static_cast<double>(M_));
  run_backward(accumulate);
}

template <typename Real>
double ReferenceModel<Real>::forward_backward(const Batch& batch, double scale, bool accumulate,
                                              const std::function<void()>& before_classifier) {
  logits_valid_ = false;
  run_forward(batch);
  if (before_classifier) before_classifier();
  const double loss = classify(scale / static_cast<double>(M_));
  run_backward(accumulate);
  return loss;
}

template <typename Real>
int64_t ReferenceModel<Real>::scratch_bytes() const {
  int64_t bytes = buffers_.bytes();
  for (const AttentionScratch<Real>& scratch : attention_scratch_) bytes += scratch.bytes();
  return bytes;
}

template <typename Real>
double ReferenceModel<Real>::gradient_norm() const {
  const OpRange range(Pass::optimizer, kNoLayer, Op::grad_norm);
  return norm<Real>(gradients_.span());
}

template <typename Real>
void ReferenceModel<Real>::update(const AdamWNumbers& numbers) {
  const OpRange range(Pass::optimizer, kNoLayer, Op::adamw);
  for (const TensorRow& row : kTensorTable) {
    const TensorSpan& s = layout_[row.id];
    const size_t offset = static_cast<size_t>(s.offset), size = static_cast<size_t>(s.size);
    adamw<Real>(parameters().subspan(offset, size), adam_m().subspan(offset, size), adam_v().subspan(offset, size),
                std::as_const(gradients_).span().subspan(offset, size), numbers, row.decayed);
  }
}

template class ReferenceModel<float>;
template class ReferenceModel<double>;

}  // namespace gpt2::reference
