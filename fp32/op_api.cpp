// Names to launchers.
#include "fp32/op_api.h"

#include "fp32/kernels/adamw.cuh"
#include "fp32/kernels/attention.cuh"
#include "fp32/kernels/classifier.cuh"
#include "fp32/kernels/column_sums.cuh"
#include "fp32/kernels/elementwise.cuh"
#include "fp32/kernels/encoder.cuh"
#include "fp32/kernels/grad_norm.cuh"
#include "fp32/kernels/layernorm.cuh"
#include "fp32/matmul.h"
#include "fp32/variants.h"
#include "gpt2/cuda/device_buffer.h"

namespace fp32::op {

struct Context::Impl {
  Impl(std::string_view rate, cudaStream_t stream_to_use)
      : stream(stream_to_use), workspace(kMatmulWorkspaceBytes), matmul(matmul_rate_from_name(rate), workspace.data()) {}
  cudaStream_t stream;
  gpt2::cuda::DeviceBuffer<unsigned char> workspace;
  MatmulEngine matmul;
};

Context::Context(std::string_view matmul, DeviceStream stream)
    : impl_(std::make_unique<Impl>(matmul, static_cast<cudaStream_t>(stream))) {}
Context::~Context() = default;

namespace {

template <class Variant>
Variant pick(std::string_view slot, std::string_view name) {
  return static_cast<Variant>(variant_index(slot, name));
}

AttentionShape attention_shape(const Shape& s) { return {s.B, s.T, s.C, s.NH}; }

constexpr int64_t kFloat = 4;

}  // namespace

void embedding_forward(Context& context, float* out, const int* tokens, const float* wte, const float* wpe, const Shape& s) {
  fp32::embedding_forward(out, tokens, wte, wpe, s.B, s.T, s.C, context.impl().stream);
}

void embedding_backward(Context& context, float* dwte, float* dwpe, const float* dout, const int* tokens, bool accumulate,
                        const Shape& s, void* scratch) {
  fp32::embedding_backward(dwte, dwpe, dout, tokens, s.B, s.T, s.C, s.V, s.max_seq_len, accumulate, scratch,
                           context.impl().stream);
}

int64_t embedding_backward_scratch_bytes(const Shape& s) { return fp32::embedding_backward_scratch_bytes(s.rows(), s.C); }

void layernorm_forward(Context& context, std::string_view variant, float* out, float* mean, float* rstd, const float* inp,
                       const float* weight, const float* bias, int64_t rows, int64_t C) {
  fp32::layernorm_forward(pick<LayernormForward>("layernorm_forward", variant), out, mean, rstd, inp, weight, bias, rows, C,
                          context.impl().stream);
}

void layernorm_backward(Context& context, std::string_view variant, float* dinp, float* dweight, float* dbias,
                        const float* dout, const float* inp, const float* mean, const float* rstd, const float* weight,
                        int64_t rows, int64_t C, bool add_to_dinp, bool accumulate, void* scratch) {
  fp32::layernorm_backward(pick<LayernormBackward>("layernorm_backward", variant), dinp, dweight, dbias, dout, inp, mean, rstd,
                           weight, rows, C, add_to_dinp, accumulate, static_cast<float*>(scratch), context.impl().stream);
}

int64_t layernorm_backward_scratch_bytes(std::string_view variant, int64_t rows, int64_t C) {
  return kFloat * layernorm_backward_scratch_floats(pick<LayernormBackward>("layernorm_backward", variant), rows, C);
}

void linear_forward(Context& context, std::string_view variant, float* out, const float* inp, const float* weight,
                    const float* bias, int64_t rows, int64_t in, int64_t out_channels) {
  fp32::linear_forward(pick<LinearForward>("linear_forward", variant), context.impl().matmul, out, inp, weight, bias, rows, in,
                       out_channels, context.impl().stream);
}

void linear_backward(Context& context, float* dinp, float* dweight, float* dbias, const float* dout, const float* inp,
                     const float* weight, int64_t rows, int64_t in, int64_t out_channels, bool accumulate, void* scratch) {
  Context::Impl& c = context.impl();
  if (dinp != nullptr) linear_backward_input(c.matmul, dinp, dout, weight, rows, in, out_channels, c.stream);
  linear_backward_weight(c.matmul, dweight, dout, inp, rows, in, out_channels, accumulate, c.stream);
  if (dbias != nullptr)
    bias_gradient(dbias, dout, rows, out_channels, accumulate, static_cast<float*>(scratch), c.stream);
}

int64_t linear_backward_scratch_bytes(int64_t rows, int64_t, int64_t out_channels) {
  return kFloat * bias_gradient_scratch_floats(rows, out_channels);
}

void attention_forward(Context& context, std::string_view variant, float* out, float* lse, const float* qkv, const Shape& s,
                       void* scratch) {
  Context::Impl& c = context.impl();
  fp32::attention_forward(pick<AttentionForward>("attention_forward", variant), c.matmul, out, lse, qkv, attention_shape(s),
                          static_cast<float*>(scratch), c.stream);
}

int64_t attention_forward_scratch_bytes(std::string_view variant, const Shape& s) {
  return kFloat * attention_forward_scratch_floats(pick<AttentionForward>("attention_forward", variant), attention_shape(s));
}

void attention_backward(Context& context, std::string_view variant, float* dqkv, const float* dout, const float* qkv,
                        const float* out, const float* lse, const Shape& s, void* scratch) {
  Context::Impl& c = context.impl();
  fp32::attention_backward(pick<AttentionBackward>("attention_backward", variant), c.matmul, dqkv, dout, qkv, out, lse,
                           attention_shape(s), static_cast<float*>(scratch), c.stream);
}

int64_t attention_backward_scratch_bytes(std::string_view variant, const Shape& s) {
  return kFloat *
         attention_backward_scratch_floats(pick<AttentionBackward>("attention_backward", variant), attention_shape(s));
}

void gelu_forward(Context& context, float* out, const float* inp, int64_t n) {
  fp32::gelu_forward(out, inp, n, context.impl().stream);
}

void gelu_backward(Context& context, float* dinp, const float* dout, const float* inp, int64_t n) {
  fp32::gelu_backward(dinp, dout, inp, n, context.impl().stream);
}

void residual_forward(Context& context, float* out, const float* a, const float* b, int64_t n) {
  fp32::residual_forward(out, a, b, n, context.impl().stream);
}

void classifier(Context& context, std::string_view variant, float* logits, float* losses, const int* targets, int64_t rows,
                int64_t V, int64_t Vp, float gradient_scale, bool write_gradient) {
  fp32::classifier(pick<Classifier>("classifier", variant), logits, losses, targets, rows, V, Vp, gradient_scale,
                   write_gradient, context.impl().stream);
}

void mean_loss(Context& context, double* loss, const float* losses, int64_t rows, double scale, bool accumulate) {
  fp32::mean_loss(loss, losses, rows, scale, accumulate, context.impl().stream);
}

void grad_norm(Context& context, double* norm, float* clip_scale, const float* gradients, int64_t n, float clip,
               void* scratch) {
  fp32::grad_norm(norm, clip_scale, gradients, n, clip, scratch, context.impl().stream);
}

int64_t grad_norm_scratch_bytes(int64_t n) { return fp32::grad_norm_scratch_bytes(n); }

void adamw(Context& context, std::string_view variant, float* parameters, const float* gradients, float* m, float* v,
           const gpt2::TensorLayout& layout, const gpt2::AdamW& settings, int64_t step, const float* clip_scale) {
  fp32::adamw(pick<AdamWKernel>("adamw", variant), parameters, gradients, m, v, layout, settings, step, clip_scale,
              context.impl().stream);
}

}  // namespace fp32::op
