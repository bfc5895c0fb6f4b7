// Names to launchers.
#include "mixed/op_api.h"

#include <cuda_bf16.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <type_traits>

#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/errors.h"
#include "mixed/kernels/adamw.cuh"
#include "mixed/kernels/attention.cuh"
#include "mixed/kernels/classifier.cuh"
#include "mixed/kernels/elementwise.cuh"
#include "mixed/kernels/encoder.cuh"
#include "mixed/kernels/grad_norm.cuh"
#include "mixed/kernels/layernorm.cuh"
#include "mixed/matmul.h"
#include "mixed/step_scalars.h"
#include "mixed/variants.h"

namespace mixed::op {

struct Context::Impl {
  explicit Impl(cudaStream_t stream_to_use)
      : stream(stream_to_use),
        workspace(kMatmulWorkspaceBytes),
        matmul(MatmulAlgorithm::heuristic, workspace.data(), std::filesystem::path()),
        scalars(1),
        stats(1) {}
  // Copied only when they change, so that a repeated launch is timed alone. Pageable memory: the call returns when the host's bytes
  // were taken.
  void set(const StepScalars& s) {
    if (set_before && std::memcmp(&s, &*set_before, sizeof s) == 0) return;
    set_before = s;
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(scalars.data(), &s, sizeof s, cudaMemcpyHostToDevice, stream));
  }
  void copy(void* to, const void* from, size_t bytes) {
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
  }
  // So that a value that the kernel leaves out shows.
  void poison_stats() { STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(stats.data(), 0xff, sizeof(StepStats), stream)); }

  cudaStream_t stream;
  gpt2::cuda::DeviceBuffer<unsigned char> workspace;
  MatmulEngine matmul;
  gpt2::cuda::DeviceBuffer<StepScalars> scalars;
  std::optional<StepScalars> set_before;
  gpt2::cuda::DeviceBuffer<StepStats> stats;
};

Context::Context(DeviceStream stream) : impl_(std::make_unique<Impl>(static_cast<cudaStream_t>(stream))) {}
Context::~Context() = default;

namespace {

static_assert(sizeof(Bf16) == sizeof(bf16));

bf16* k(Bf16* p) { return reinterpret_cast<bf16*>(p); }
const bf16* k(const Bf16* p) { return reinterpret_cast<const bf16*>(p); }
float* k(float* p) { return p; }
const float* k(const float* p) { return p; }

template <class Variant>
Variant pick(std::string_view slot, std::string_view name) {
  return static_cast<Variant>(variant_index(slot, name));
}

AttentionShape attention_shape(const Shape& s) { return {s.B, s.T, s.C, s.NH}; }

constexpr int64_t kFloat = 4;

}  // namespace

template <class R>
void embedding_forward(Context& context, R* out, const int* tokens, const Bf16* wte, const Bf16* wpe, const Shape& s) {
  mixed::embedding_forward(k(out), tokens, k(wte), k(wpe), s.B, s.T, s.C, context.impl().stream);
}

template <class R>
void embedding_backward(Context& context, float* dwte, float* dwpe, const R* dout, const int* tokens, bool accumulate,
                        const Shape& s, void* scratch) {
  mixed::embedding_backward(dwte, dwpe, k(dout), tokens, s.B, s.T, s.C, s.V, s.max_seq_len, accumulate, scratch,
                            context.impl().stream);
}

int64_t embedding_backward_scratch_bytes(const Shape& s) { return mixed::embedding_backward_scratch_bytes(s.rows(), s.C); }

template <class R>
void layernorm_forward(Context& context, std::string_view variant, Bf16* out, float* mean, float* rstd, const R* inp, Bf16* kept,
                       const Bf16* weight, const Bf16* bias, int64_t rows, int64_t C) {
  mixed::layernorm_forward(pick<LayernormForward>("layernorm_forward", variant), k(out), mean, rstd, k(inp), k(kept), k(weight),
                           k(bias), rows, C, context.impl().stream);
}

template <class R>
void residual_layernorm_forward(Context& context, R* sum, Bf16* kept, Bf16* out, float* mean, float* rstd, const R* a,
                                const Bf16* branch, const Bf16* weight, const Bf16* bias, int64_t rows, int64_t C) {
  const LayernormForward variant =
      why_not(LayernormForward::warp_per_row, C, C % 8 == 0) ? LayernormForward::block_per_row : LayernormForward::warp_per_row;
  mixed::residual_layernorm_forward(variant, k(sum), k(kept), k(out), mean, rstd, k(a), k(branch), k(weight), k(bias), rows, C,
                                    context.impl().stream);
}

template <class R>
void layernorm_backward(Context& context, std::string_view variant, R* dinp, Bf16* dinp_copy, float* dweight, float* dbias,
                        float* dinp_column_sums, const Bf16* dout, const Bf16* inp, const float* mean, const float* rstd,
                        const Bf16* weight, int64_t rows, int64_t C, bool add_to_dinp, bool accumulate, void* scratch) {
  mixed::layernorm_backward(pick<LayernormBackward>("layernorm_backward", variant), k(dinp), k(dinp_copy), dweight, dbias,
                            dinp_column_sums, k(dout), k(inp), mean, rstd, k(weight), rows, C, add_to_dinp, accumulate,
                            static_cast<float*>(scratch), context.impl().stream);
}

int64_t layernorm_backward_scratch_bytes(std::string_view variant, int64_t rows, int64_t C) {
  return kFloat * layernorm_backward_scratch_floats(pick<LayernormBackward>("layernorm_backward", variant), rows, C);
}

void linear_forward(Context& context, std::string_view variant, Bf16* out, const Bf16* inp, const Bf16* weight, const Bf16* bias,
                    int64_t rows, int64_t in, int64_t out_channels) {
  mixed::linear_forward(pick<LinearForward>("linear_forward", variant), context.impl().matmul, k(out), k(inp), k(weight), k(bias),
                        rows, in, out_channels, context.impl().stream);
}

void linear_gelu_forward(Context& context, std::string_view variant, Bf16* after, Bf16* before, const Bf16* inp, const Bf16* weight,
                         const Bf16* bias, int64_t rows, int64_t in, int64_t out_channels) {
  Context::Impl& c = context.impl();
  if (pick<Gelu>("gelu_forward", variant) == Gelu::matmul_epilogue) {
    mixed::linear_gelu_forward(c.matmul, k(after), k(before), k(inp), k(weight), k(bias), rows, in, out_channels, c.stream);
    return;
  }
  const Gemm product = linear_forward_product(LinearForward::bias_epilogue, k(before), k(inp), k(weight), k(bias), rows, in, out_channels);
  const LinearForward linear = c.matmul.why_not(product) ? LinearForward::bias_kernel : LinearForward::bias_epilogue;
  mixed::linear_forward(linear, c.matmul, k(before), k(inp), k(weight), k(bias), rows, in, out_channels, c.stream);
  mixed::gelu_forward(k(after), k(before), rows * out_channels, c.stream);
}

template <class R>
void linear_residual_forward(Context& context, R* out, const R* addend, const Bf16* inp, const Bf16* weight, const Bf16* bias,
                             int64_t rows, int64_t in, int64_t out_channels) {
  Context::Impl& c = context.impl();
  mixed::linear_residual_forward(c.matmul, k(out), k(addend), k(inp), k(weight), k(bias), rows, in, out_channels, c.stream);
}

void linear_gelu_backward_input(Context& context, std::string_view variant, Bf16* dbefore, const Bf16* dout, const Bf16* weight,
                                const Bf16* before, int64_t rows, int64_t in, int64_t out_channels) {
  Context::Impl& c = context.impl();
  if (pick<Gelu>("gelu_backward", variant) == Gelu::matmul_epilogue) {
    mixed::linear_gelu_backward_input(c.matmul, k(dbefore), k(dout), k(weight), k(before), rows, in, out_channels, c.stream);
    return;
  }
  linear_backward_input(c.matmul, k(dbefore), k(dout), k(weight), rows, in, out_channels, c.stream);
  mixed::gelu_backward(k(dbefore), k(dbefore), k(before), rows * in, c.stream);
}

void linear_backward(Context& context, std::string_view variant, Bf16* dinp, float* dweight, float* dbias, const Bf16* dout,
                     const Bf16* inp, const Bf16* weight, int64_t rows, int64_t in, int64_t out_channels, bool accumulate,
                     void* scratch) {
  Context::Impl& c = context.impl();
  const BiasGradient way = pick<BiasGradient>("bias_gradient", variant);
  if (way == BiasGradient::layernorm_fold)
    throw stepscope::InputError("bias_gradient=layernorm_fold is work of layernorm_backward (dinp_column_sums), not of a product");
  if (dinp != nullptr) linear_backward_input(c.matmul, k(dinp), k(dout), k(weight), rows, in, out_channels, c.stream);
  linear_backward_weight(way, c.matmul, dweight, dbias, k(dout), k(inp), rows, in, out_channels,
                         accumulate, static_cast<float*>(scratch), c.stream);
}

int64_t linear_backward_scratch_bytes(int64_t rows, int64_t out_channels) {
  return kFloat * linear_backward_weight_scratch_floats(rows, out_channels);
}

void attention_forward(Context& context, std::string_view variant, Bf16* out, float* lse, const Bf16* qkv, const Shape& s,
                       void* scratch) {
  Context::Impl& c = context.impl();
  mixed::attention_forward(pick<AttentionForward>("attention_forward", variant), c.matmul, k(out), lse, k(qkv), attention_shape(s),
                           scratch, c.stream);
}

int64_t attention_forward_scratch_bytes(std::string_view variant, const Shape& s) {
  return mixed::attention_forward_scratch_bytes(pick<AttentionForward>("attention_forward", variant), attention_shape(s));
}

void attention_backward(Context& context, std::string_view variant, Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const Bf16* out,
                        const float* lse, const Shape& s, void* scratch) {
  Context::Impl& c = context.impl();
  mixed::attention_backward(pick<AttentionBackward>("attention_backward", variant), c.matmul, k(dqkv), k(dout), k(qkv), k(out), lse,
                            attention_shape(s), scratch, c.stream);
}

int64_t attention_backward_scratch_bytes(std::string_view variant, const Shape& s) {
  return mixed::attention_backward_scratch_bytes(pick<AttentionBackward>("attention_backward", variant), attention_shape(s));
}

void gelu_forward(Context& context, Bf16* out, const Bf16* inp, int64_t n) {
  mixed::gelu_forward(k(out), k(inp), n, context.impl().stream);
}

void gelu_backward(Context& context, Bf16* dinp, const Bf16* dout, const Bf16* inp, int64_t n) {
  mixed::gelu_backward(k(dinp), k(dout), k(inp), n, context.impl().stream);
}

template <class R>
void residual_forward(Context& context, R* out, const R* a, const Bf16* b, int64_t n) {
  mixed::residual_forward(k(out), k(a), k(b), n, context.impl().stream);
}

void classifier(Context& context, std::string_view variant, Bf16* logits, float* losses, const int* targets, int64_t rows, int64_t V,
                int64_t Vp, float gradient_scale, bool write_gradient) {
  Context::Impl& c = context.impl();
  StepScalars scalars;
  scalars.gradient_scale = gradient_scale;
  c.set(scalars);
  mixed::classifier(pick<Classifier>("classifier", variant), k(logits), losses, targets, rows, V, Vp, c.scalars.data(),
                    write_gradient, c.stream);
}

void mean_loss(Context& context, double* loss, const float* losses, int64_t rows, double scale, bool accumulate) {
  Context::Impl& c = context.impl();
  StepScalars scalars;
  scalars.loss_scale = scale;
  c.set(scalars);
  c.poison_stats();
  if (accumulate) c.copy(&c.stats.data()->loss, loss, sizeof *loss);
  mixed::mean_loss(c.stats.data(), losses, rows, c.scalars.data(), accumulate, c.stream);
  c.copy(loss, &c.stats.data()->loss, sizeof *loss);
}

void grad_norm(Context& context, double* norm, float* clip_scale, const float* gradients, int64_t n, float clip, void* scratch) {
  Context::Impl& c = context.impl();
  StepScalars scalars;
  scalars.clip = clip;
  c.set(scalars);
  c.poison_stats();
  mixed::grad_norm(c.stats.data(), gradients, n, c.scalars.data(), scratch, c.stream);
  c.copy(norm, &c.stats.data()->grad_norm, sizeof *norm);
  c.copy(clip_scale, &c.stats.data()->clip_scale, sizeof *clip_scale);
}

int64_t grad_norm_scratch_bytes(int64_t n) { return mixed::grad_norm_scratch_bytes(n); }

void adamw(Context& context, std::string_view variant, bool stochastic, Bf16* parameters, float* master, float* m, float* v,
           const float* gradients, const gpt2::TensorLayout& layout, const gpt2::AdamW& settings, int64_t step, uint32_t seed,
           const float* clip_scale) {
  Context::Impl& c = context.impl();
  const auto correction = [&](float beta) {
    return static_cast<float>(1.0 - std::pow(static_cast<double>(beta), static_cast<double>(step)));
  };
  StepScalars scalars;
  scalars.learning_rate = settings.learning_rate;
  scalars.beta1 = settings.beta1, scalars.beta2 = settings.beta2;
  scalars.one_minus_beta1 = 1.0f - settings.beta1, scalars.one_minus_beta2 = 1.0f - settings.beta2;
  scalars.correction1 = correction(settings.beta1), scalars.correction2 = correction(settings.beta2);
  scalars.eps = settings.eps;
  scalars.weight_decay = settings.weight_decay;
  scalars.rounding_seed = seed;
  c.set(scalars);
  mixed::adamw(pick<AdamWKernel>("adamw", variant), stochastic ? Rounding::stochastic : Rounding::nearest, k(parameters), master, m, v,
               gradients, layout, c.scalars.data(), clip_scale, c.stream);
}

void round_parameters(Context& context, bool stochastic, Bf16* parameters, const float* master, int64_t n, uint32_t seed) {
  Context::Impl& c = context.impl();
  StepScalars scalars;
  scalars.rounding_seed = seed;
  c.set(scalars);
  mixed::round_parameters(stochastic ? Rounding::stochastic : Rounding::nearest, k(parameters), master, n, c.scalars.data(), c.stream);
}

#define STEPSCOPE_INSTANTIATE(R)                                                                                                       \
  template void embedding_forward<R>(Context&, R*, const int*, const Bf16*, const Bf16*, const Shape&);                                \
  template void embedding_backward<R>(Context&, float*, float*, const R*, const int*, bool, const Shape&, void*);                      \
  template void layernorm_forward<R>(Context&, std::string_view, Bf16*, float*, float*, const R*, Bf16*, const Bf16*, const Bf16*,     \
                                     int64_t, int64_t);                                                                                \
  template void residual_layernorm_forward<R>(Context&, R*, Bf16*, Bf16*, float*, float*, const R*, const Bf16*, const Bf16*,          \
                                              const Bf16*, int64_t, int64_t);                                                          \
  template void layernorm_backward<R>(Context&, std::string_view, R*, Bf16*, float*, float*, float*, const Bf16*, const Bf16*,         \
                                      const float*, const float*, const Bf16*, int64_t, int64_t, bool, bool, void*);                   \
  template void linear_residual_forward<R>(Context&, R*, const R*, const Bf16*, const Bf16*, const Bf16*, int64_t, int64_t, int64_t);  \
  template void residual_forward<R>(Context&, R*, const R*, const Bf16*, int64_t);
STEPSCOPE_INSTANTIATE(Bf16)
STEPSCOPE_INSTANTIATE(float)
#undef STEPSCOPE_INSTANTIATE

}  // namespace mixed::op
