// The model on the device: what memory it has, and one training step as a list of ops, forward, backward and
// update.
//
// What a reader would get wrong: the gradient of the residual stream is ONE buffer, `dresidual_`, from the
// last layernorm down to the embedding. Both branches of a residual add receive it unchanged; a block's own
// path is added to it by layernorm_backward. Parameter gradients are overwritten, never accumulated, except
// dwte, to which first the lm head and then the embedding contribute.
//
// What is bf16: activations, their gradients, and the weights the kernels read. What is fp32: the master
// weights that AdamW moves, every parameter gradient, both moments, layernorm's mean and rstd, the losses.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "data.h"
#include "matmul.cuh"

namespace baseline {

// ---- memory -------------------------------------------------------------------------------------

// Hands out pieces of one block of memory, 256 bytes aligned. Without a block it only counts.
class Arena {
 public:
  explicit Arena(char* block = nullptr) : block_(block) {}
  template <typename T>
  T* take(int64_t count) {
    T* piece = block_ ? reinterpret_cast<T*>(block_ + used_) : nullptr;
    used_ += (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return piece;
  }
  int64_t used() const { return used_; }  // bytes

 private:
  char* block_;
  int64_t used_ = 0;
};

// Rows of attention scores are this many elements apart, so that each begins at a multiple of 16 bytes.
inline int64_t padded_row(int64_t T) { return (T + 7) / 8 * 8; }

// What the forward pass of a layer keeps for its backward pass.
struct LayerActivations {
  bf16* ln1;                   // (N,C)
  float *ln1_mean, *ln1_rstd;  // (N) (N)
  bf16 *q, *k, *v;             // (B,NH,T,HS) each
  bf16* probabilities;         // (B,NH,T,Tp); one buffer for all layers when they are recomputed
  bf16* attention;             // (N,C)
  bf16* residual1;             // (N,C) after the attention branch
  bf16* ln2;
  float *ln2_mean, *ln2_rstd;
  bf16 *up, *gelu;  // (N,4C) before and after the GELU
  bf16* residual2;  // (N,C) after the MLP branch: the input of the next layer
};

struct Activations {
  std::vector<LayerActivations> layer;
  bf16* embedded;  // (N,C)
  bf16* lnf;
  float *lnf_mean, *lnf_rstd;
  bf16* logits;          // (N,Vp), then their gradient
  float* losses;         // (N)
  bf16* wide;            // (N,4C) scratch: qkv and its gradient, the gradient of the GELU
  bf16 *narrow, *heads;  // (N,C) scratch
  bf16 *dq, *dk, *dv;    // (B,NH,T,HS)
  bf16* dscores;         // (B,NH,T,Tp)
  bf16* dresidual;       // (N,C)
  float* partial;        // chunk sums

  // `recompute`: keep the attention probabilities of one layer only. They are L * B * NH * T * Tp bf16
  // otherwise, at d12, B=64, T=1024 19.3 GB, as much as everything else the layers keep.
  static Activations carve(Arena& arena, const Config& c, int64_t B, int64_t T, bool recompute) {
    const int64_t N = B * T, C = c.channels, scores = B * c.heads * T * padded_row(T);
    Activations a;
    a.embedded = arena.take<bf16>(N * C);
    bf16* shared_probabilities = recompute ? arena.take<bf16>(scores) : nullptr;
    for (int64_t l = 0; l < c.layers; ++l) {
      LayerActivations layer;
      layer.ln1 = arena.take<bf16>(N * C), layer.ln1_mean = arena.take<float>(N),
      layer.ln1_rstd = arena.take<float>(N);
      layer.q = arena.take<bf16>(N * C), layer.k = arena.take<bf16>(N * C), layer.v = arena.take<bf16>(N * C);
      layer.probabilities = recompute ? shared_probabilities : arena.take<bf16>(scores);
      layer.attention = arena.take<bf16>(N * C);
      layer.residual1 = arena.take<bf16>(N * C);
      layer.ln2 = arena.take<bf16>(N * C), layer.ln2_mean = arena.take<float>(N),
      layer.ln2_rstd = arena.take<float>(N);
      layer.up = arena.take<bf16>(N * 4 * C), layer.gelu = arena.take<bf16>(N * 4 * C);
      layer.residual2 = arena.take<bf16>(N * C);
      a.layer.push_back(layer);
    }
    a.lnf = arena.take<bf16>(N * C), a.lnf_mean = arena.take<float>(N), a.lnf_rstd = arena.take<float>(N);
    a.logits = arena.take<bf16>(N * c.padded_vocab);
    a.losses = arena.take<float>(N);
    a.wide = arena.take<bf16>(N * 4 * C);
    a.narrow = arena.take<bf16>(N * C), a.heads = arena.take<bf16>(N * C);
    a.dq = arena.take<bf16>(N * C), a.dk = arena.take<bf16>(N * C), a.dv = arena.take<bf16>(N * C);
    a.dscores = arena.take<bf16>(scores);
    a.dresidual = arena.take<bf16>(N * C);
    a.partial = arena.take<float>(RowChunks(N).count * 4 * C);
    return a;
  }
};

// Device bytes of everything: for each parameter 18 (master, gradient and two moments in fp32, the bf16
// weight), activations, the workspace of the linear layers.
inline int64_t bytes_needed(const Config& config, int64_t B, int64_t T, bool recompute) {
  Arena count;
  Activations::carve(count, config, B, T, recompute);
  return 18 * TensorTable(config).total + count.used() + LinearEngine::kWorkspaceBytes;
}

struct MemoryPlan {
  bool recompute_attention;
  int64_t bytes;
};

// Keeps the attention probabilities when they fit, recomputes them in the backward pass when only that fits,
// and otherwise says what would fit. cuBLAS and CUDA themselves need some room, hence the reserve.
inline MemoryPlan plan_memory(const Config& config, int64_t B, int64_t T) {
  size_t free = 0, total = 0;
  CHECK(cudaMemGetInfo(&free, &total));
  const int64_t room = static_cast<int64_t>(free) - (int64_t{512} << 20);
  for (const bool recompute : {false, true}) {
    const int64_t bytes = bytes_needed(config, B, T, recompute);
    if (bytes <= room) return {recompute, bytes};
  }
  int64_t fitting = B - 1;
  while (fitting > 0 && bytes_needed(config, fitting, T, true) > room) --fitting;
  const auto gib = [](int64_t bytes) {
    return std::to_string(bytes >> 30) + "." + std::to_string((bytes >> 20) % 1024 * 10 / 1024) + " GiB";
  };
  throw MachineError("--batch-size " + std::to_string(B) + " --seq-len " + std::to_string(T) + " needs " +
                     gib(bytes_needed(config, B, T, true)) + " of device memory, " +
                     gib(static_cast<int64_t>(free)) + " are free; " +
                     (fitting > 0 ? "the largest batch that fits is " + std::to_string(fitting)
                                  : "not even one sequence fits"));
}

// ---- the trainer --------------------------------------------------------------------------------

class Trainer {
 public:
  Trainer(const Config& config, const std::vector<float>& parameters, int64_t B, int64_t T,
          const MemoryPlan& plan)
      : config_(config), table_(config), B_(B), T_(T), N_(B * T), recompute_(plan.recompute_attention) {
    CHECK(cudaStreamCreate(&stream_));
    CHECK(cublasCreate(&cublas_));
    CHECK(cublasSetStream(cublas_, stream_));
    // Where cuBLAS splits a sum it keeps the parts in fp32.
    CHECK(cublasSetMathMode(
        cublas_,
        static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
    masters_ = DeviceArray<float>(table_.total);
    weights_ = DeviceArray<bf16>(table_.total);
    gradients_ = DeviceArray<float>(table_.total);
    first_moment_ = DeviceArray<float>(table_.total);
    second_moment_ = DeviceArray<float>(table_.total);
    CHECK(cudaMemcpy(masters_.get(), parameters.data(), static_cast<size_t>(masters_.bytes()),
                     cudaMemcpyHostToDevice));
    round_to_bf16(weights_.get(), masters_.get(), table_.total, stream_);
    // Zero once is enough for the gradients: each step overwrites all of them but the rows of wpe beyond T,
    // which stay zero.
    for (const auto* array : {&gradients_, &first_moment_, &second_moment_}) {
      CHECK(cudaMemset(array->get(), 0, static_cast<size_t>(array->bytes())));
    }
    Arena count;
    Activations::carve(count, config_, B_, T_, recompute_);
    activation_memory_ = DeviceArray<char>(count.used());
    Arena arena(activation_memory_.get());
    act_ = Activations::carve(arena, config_, B_, T_, recompute_);
    tokens_ = DeviceArray<int>(5 * N_ + 1);
    norm_partial_ = DeviceArray<double>(kNormBlocks);
    scalars_ = DeviceArray<StepScalars>(1);
    CHECK(cudaDeviceSynchronize());
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer() {
    if (cublas_) cublasDestroy(cublas_);
    if (stream_) cudaStreamDestroy(stream_);
  }

  // Copies a batch to the device, with its positions grouped by token for the embedding's gradient.
  void load(const Batch& batch) {
    groups_.build(batch.inputs, config_.vocab);
    OpRange range("other", -1, "copy");
    auto upload = [&](int* to, const std::vector<int32_t>& from) {
      CHECK(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(int), cudaMemcpyHostToDevice, stream_));
      return to + N_;
    };
    int* next = tokens_.get();
    inputs_ = next;
    next = upload(next, batch.inputs);
    targets_ = next;
    next = upload(next, batch.targets);
    positions_ = next;
    next = upload(next, groups_.positions);
    group_tokens_ = next;
    next = upload(next, groups_.tokens);
    group_begins_ = next;  // up to N + 1 values, the last piece
    upload(next, groups_.begins);
  }

  // Logits of the loaded batch.
  void forward() {
    const int64_t C = config_.channels;
    {
      OpRange range("encoder", -1, "embedding");
      embedding_forward(act_.embedded, inputs_, weight(kWte), weight(kWpe), N_, T_, C, stream_);
    }
    for (int64_t l = 0; l < config_.layers; ++l) forward_layer(l);
    {
      OpRange range("forward", -1, "lnf");
      layernorm_forward(act_.lnf, act_.lnf_mean, act_.lnf_rstd, input_of_layer(config_.layers), weight(kLnfw),
                        weight(kLnfb), N_, C, stream_);
    }
    {
      OpRange range("forward", -1, "lm_head");  // the weights are those of the token embedding
      linear_forward(linear_, act_.logits, act_.lnf, weight(kWte), nullptr, N_, C, config_.padded_vocab,
                     stream_);
    }
  }

  // Loss, and the logits' gradient in their place.
  void loss() {
    OpRange range("classifier", -1, "loss");
    cross_entropy(act_.logits, act_.losses, scalars_.get(), targets_, N_, config_.vocab, config_.padded_vocab,
                  stream_);
  }

  // Every parameter's gradient, from the logits' gradient.
  void backward() {
    const int64_t C = config_.channels;
    {
      OpRange range("backward", -1, "lm_head");
      linear_backward(linear_, act_.narrow, gradient(kWte), nullptr, nullptr, act_.logits, act_.lnf,
                      weight(kWte), N_, C, config_.padded_vocab, stream_);
    }
    {
      OpRange range("backward", -1, "lnf");
      CHECK(cudaMemsetAsync(act_.dresidual, 0, static_cast<size_t>(N_ * C) * sizeof(bf16), stream_));
      layernorm_backward(act_.dresidual, gradient(kLnfw), gradient(kLnfb), act_.partial, act_.narrow,
                         input_of_layer(config_.layers), weight(kLnfw), act_.lnf_mean, act_.lnf_rstd, N_, C,
                         stream_);
    }
    for (int64_t l = config_.layers - 1; l >= 0; --l) backward_layer(l);
    {
      OpRange range("backward", -1, "embedding");
      embedding_backward(gradient(kWte), gradient(kWpe), act_.dresidual, group_tokens_, group_begins_,
                         positions_, static_cast<int64_t>(groups_.tokens.size()), B_, T_, C, stream_);
    }
  }

  // Clipping and AdamW; `step` counts from 1.
  void update(AdamW adam, float clip, int64_t step) {
    {
      OpRange range("optimizer", -1, "grad_norm");
      grad_norm(scalars_.get(), norm_partial_.get(), gradients_.get(), table_.total, clip, stream_);
    }
    OpRange range("optimizer", -1, "adamw");
    adam.correction1 =
        static_cast<float>(1.0 - std::pow(static_cast<double>(adam.beta1), static_cast<double>(step)));
    adam.correction2 =
        static_cast<float>(1.0 - std::pow(static_cast<double>(adam.beta2), static_cast<double>(step)));
    const float decay = adam.weight_decay;
    for (const Tensor& tensor : table_.tensor) {
      adam.weight_decay = tensor.decayed ? decay : 0.0f;
      adamw(masters_.get() + tensor.offset, weights_.get() + tensor.offset, gradients_.get() + tensor.offset,
            first_moment_.get() + tensor.offset, second_moment_.get() + tensor.offset, scalars_.get(), adam,
            tensor.size, stream_);
    }
  }

  // Waits for the step to end.
  StepScalars finish() {
    StepScalars scalars{};
    OpRange range("other", -1, "copy");
    CHECK(cudaMemcpyAsync(&scalars, scalars_.get(), sizeof scalars, cudaMemcpyDeviceToHost, stream_));
    CHECK(cudaStreamSynchronize(stream_));
    return scalars;
  }

  // Loss, logits (N,V) and gradients of a batch, written as an llm.c state file, fp32. Changes no parameter.
  void dump_state(const std::string& path, const Batch& batch) {
    Header h{};
    h[0] = kStateMagic, h[1] = 2, h[2] = static_cast<int32_t>(B_), h[3] = static_cast<int32_t>(T_);
    OutputFile file(path);
    file.write(h.data(), kHeaderBytes);
    file.write(batch.inputs.data(), 4 * N_);
    file.write(batch.targets.data(), 4 * N_);
    load(batch);
    forward();
    CHECK(cudaStreamSynchronize(stream_));
    const int64_t V = config_.vocab, Vp = config_.padded_vocab, rows_at_once = std::min<int64_t>(N_, 1024);
    std::vector<bf16> rows(static_cast<size_t>(rows_at_once * V));
    std::vector<float> wide_rows(rows.size());
    for (int64_t n = 0; n < N_; n += rows_at_once) {
      const int64_t count = std::min(rows_at_once, N_ - n);
      CHECK(cudaMemcpy2D(rows.data(), V * sizeof(bf16), act_.logits + n * Vp, Vp * sizeof(bf16),
                         V * sizeof(bf16), count, cudaMemcpyDeviceToHost));
      std::transform(rows.begin(), rows.end(), wide_rows.begin(), [](bf16 x) { return __bfloat162float(x); });
      file.write(wide_rows.data(), 4 * count * V);
    }
    loss();
    backward();
    const float mean_loss = static_cast<float>(finish().loss);
    file.write(&mean_loss, sizeof mean_loss);
    std::vector<float> gradients(static_cast<size_t>(table_.total));
    CHECK(cudaMemcpy(gradients.data(), gradients_.get(), static_cast<size_t>(gradients_.bytes()),
                     cudaMemcpyDeviceToHost));
    file.write(gradients.data(), gradients_.bytes());
    file.finish();
  }

 private:
  const bf16* weight(TensorId id, int64_t layer = 0) const {
    return weights_.get() + table_.tensor[id].offset + layer * table_.tensor[id].per_layer;
  }
  float* gradient(TensorId id, int64_t layer = 0) const {
    return gradients_.get() + table_.tensor[id].offset + layer * table_.tensor[id].per_layer;
  }
  // The residual stream where layer l begins; l == L: where it leaves the last layer.
  const bf16* input_of_layer(int64_t l) const { return l == 0 ? act_.embedded : act_.layer[l - 1].residual2; }
  float attention_scale() const { return 1.0f / std::sqrt(static_cast<float>(config_.head_size())); }

  Stack heads(bf16* data) const { return {data, T_, config_.head_size()}; }
  Stack scores(bf16* data) const { return {data, T_, padded_row(T_)}; }

  // softmax(q k^T / sqrt(HS)) below the diagonal, for all heads of the batch; kept in place.
  void attention_probabilities(const LayerActivations& a) {
    const int64_t HS = config_.head_size(), batch = B_ * config_.heads;
    batched_matmul(cublas_, Op::plain, Op::transposed, T_, T_, HS, heads(a.q), heads(a.k),
                   scores(a.probabilities), batch);
    causal_softmax_forward(a.probabilities, attention_scale(), batch * T_, T_, padded_row(T_), stream_);
  }

  void forward_layer(int64_t l) {
    const LayerActivations& a = act_.layer[l];
    const int64_t C = config_.channels, HS = config_.head_size();
    const int NH = static_cast<int>(config_.heads);
    const bf16* in = input_of_layer(l);
    {
      OpRange range("forward", l, "ln1");
      layernorm_forward(a.ln1, a.ln1_mean, a.ln1_rstd, in, weight(kLn1w, l), weight(kLn1b, l), N_, C,
                        stream_);
    }
    {
      OpRange range("forward", l, "qkv");
      linear_forward(linear_, act_.wide, a.ln1, weight(kQkvw, l), weight(kQkvb, l), N_, C, 3 * C, stream_);
    }
    {
      OpRange range("forward", l, "attention");
      split_qkv_kernel<<<N_, kMoverThreads, 0, stream_>>>(a.q, a.k, a.v, act_.wide, T_, NH,
                                                          static_cast<int>(HS));
      CHECK_LAUNCH();
      attention_probabilities(a);
      batched_matmul(cublas_, Op::plain, Op::plain, T_, HS, T_, scores(a.probabilities), heads(a.v),
                     heads(act_.heads), B_ * NH);
      merge_heads_kernel<<<N_, kMoverThreads, 0, stream_>>>(a.attention, act_.heads, T_, NH,
                                                            static_cast<int>(HS));
      CHECK_LAUNCH();
    }
    {
      OpRange range("forward", l, "attproj");
      linear_forward(linear_, act_.narrow, a.attention, weight(kAttprojw, l), weight(kAttprojb, l), N_, C, C,
                     stream_);
    }
    {
      OpRange range("forward", l, "residual1");
      residual_forward(a.residual1, in, act_.narrow, N_ * C, stream_);
    }
    {
      OpRange range("forward", l, "ln2");
      layernorm_forward(a.ln2, a.ln2_mean, a.ln2_rstd, a.residual1, weight(kLn2w, l), weight(kLn2b, l), N_, C,
                        stream_);
    }
    {
      OpRange range("forward", l, "mlp_up");
      linear_forward(linear_, a.up, a.ln2, weight(kFcw, l), weight(kFcb, l), N_, C, 4 * C, stream_);
    }
    {
      OpRange range("forward", l, "gelu");
      gelu_forward(a.gelu, a.up, N_ * 4 * C, stream_);
    }
    {
      OpRange range("forward", l, "mlp_down");
      linear_forward(linear_, act_.narrow, a.gelu, weight(kFcprojw, l), weight(kFcprojb, l), N_, 4 * C, C,
                     stream_);
    }
    {
      OpRange range("forward", l, "residual2");
      residual_forward(a.residual2, a.residual1, act_.narrow, N_ * C, stream_);
    }
  }

  void backward_layer(int64_t l) {
    const LayerActivations& a = act_.layer[l];
    const int64_t C = config_.channels;
    {
      OpRange range("backward", l, "mlp_down");
      linear_backward(linear_, act_.wide, gradient(kFcprojw, l), gradient(kFcprojb, l), act_.partial,
                      act_.dresidual, a.gelu, weight(kFcprojw, l), N_, 4 * C, C, stream_);
    }
    {
      OpRange range("backward", l, "gelu");
      gelu_backward(act_.wide, a.up, N_ * 4 * C, stream_);
    }
    {
      OpRange range("backward", l, "mlp_up");
      linear_backward(linear_, act_.narrow, gradient(kFcw, l), gradient(kFcb, l), act_.partial, act_.wide,
                      a.ln2, weight(kFcw, l), N_, C, 4 * C, stream_);
    }
    {
      OpRange range("backward", l, "ln2");
      layernorm_backward(act_.dresidual, gradient(kLn2w, l), gradient(kLn2b, l), act_.partial, act_.narrow,
                         a.residual1, weight(kLn2w, l), a.ln2_mean, a.ln2_rstd, N_, C, stream_);
    }
    {
      OpRange range("backward", l, "attproj");
      linear_backward(linear_, act_.narrow, gradient(kAttprojw, l), gradient(kAttprojb, l), act_.partial,
                      act_.dresidual, a.attention, weight(kAttprojw, l), N_, C, C, stream_);
    }
    {
      OpRange range("backward", l, "attention");
      attention_backward(a);
    }
    {
      OpRange range("backward", l, "qkv");
      linear_backward(linear_, act_.narrow, gradient(kQkvw, l), gradient(kQkvb, l), act_.partial, act_.wide,
                      a.ln1, weight(kQkvw, l), N_, C, 3 * C, stream_);
    }
    {
      OpRange range("backward", l, "ln1");
      layernorm_backward(act_.dresidual, gradient(kLn1w, l), gradient(kLn1b, l), act_.partial, act_.narrow,
                         input_of_layer(l), weight(kLn1w, l), a.ln1_mean, a.ln1_rstd, N_, C, stream_);
    }
  }

  // From the gradient of the attention's output, in `narrow` (N,C), to that of qkv, in `wide` (N,3C).
  void attention_backward(const LayerActivations& a) {
    const int64_t HS = config_.head_size(), batch = B_ * config_.heads;
    const int NH = static_cast<int>(config_.heads);
    if (recompute_) attention_probabilities(a);
    split_heads_kernel<<<N_, kMoverThreads, 0, stream_>>>(act_.heads, act_.narrow, T_, NH,
                                                          static_cast<int>(HS));
    CHECK_LAUNCH();
    batched_matmul(cublas_, Op::plain, Op::transposed, T_, T_, HS, heads(act_.heads), heads(a.v),
                   scores(act_.dscores), batch);  // of the probabilities
    batched_matmul(cublas_, Op::transposed, Op::plain, T_, HS, T_, scores(a.probabilities), heads(act_.heads),
                   heads(act_.dv), batch);
    causal_softmax_backward(act_.dscores, a.probabilities, attention_scale(), batch * T_, T_, padded_row(T_),
                            stream_);  // of the scores
    batched_matmul(cublas_, Op::plain, Op::plain, T_, HS, T_, scores(act_.dscores), heads(a.k),
                   heads(act_.dq), batch);
    batched_matmul(cublas_, Op::transposed, Op::plain, T_, HS, T_, scores(act_.dscores), heads(a.q),
                   heads(act_.dk), batch);
    merge_qkv_kernel<<<N_, kMoverThreads, 0, stream_>>>(act_.wide, act_.dq, act_.dk, act_.dv, T_, NH,
                                                        static_cast<int>(HS));
    CHECK_LAUNCH();
  }

  Config config_;
  TensorTable table_;
  int64_t B_, T_, N_;
  bool recompute_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
  LinearEngine linear_;
  DeviceArray<float> masters_, gradients_, first_moment_, second_moment_;
  DeviceArray<bf16> weights_;
  DeviceArray<char> activation_memory_;
  Activations act_;
  TokenGroups groups_;  // borrowed by copies in flight until finish()
  DeviceArray<int> tokens_;
  int *inputs_ = nullptr, *targets_ = nullptr, *positions_ = nullptr, *group_tokens_ = nullptr,
      *group_begins_ = nullptr;
  DeviceArray<double> norm_partial_;
  DeviceArray<StepScalars> scalars_;
};

}  // namespace baseline
