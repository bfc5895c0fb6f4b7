// Op cases to the launchers of the fp32 trainer.
#include <cuda_runtime.h>

#include "experiments/gate/op_launch.h"
#include "experiments/gate/op_scalars.h"
#include "fp32/kernels/attention.cuh"
#include "fp32/matmul.h"
#include "fp32/trainer.h"
#include "fp32/variants.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops/adamw.cuh"
#include "gpt2/ops/elementwise.cuh"
#include "gpt2/ops/encoder.cuh"
#include "gpt2/ops/layernorm_backward.cuh"
#include "gpt2/ops/layernorm_forward.cuh"

namespace gate {
namespace {

struct Context : OpContext {
  Context(const std::string& rate, void* stream_to_use)
      : stream(static_cast<cudaStream_t>(stream_to_use)),
        workspace(fp32::kMatmulWorkspaceBytes),
        matmul(fp32::matmul_rate_from_name(rate), workspace.data()),
        scalars(stream) {}
  cudaStream_t stream;
  gpt2::cuda::DeviceBuffer<unsigned char> workspace;
  fp32::MatmulEngine matmul;
  OpScalars scalars;
};
Context& here(OpContext& c) { return static_cast<Context&>(c); }
float* f(void* p) { return static_cast<float*>(p); }
const float* f(const void* p) { return static_cast<const float*>(p); }

template <class Enum>
Enum pick(const char* slot, const std::string& variant) {
  return static_cast<Enum>(fp32::variant_index(slot, variant));
}
fp32::AttentionShape heads(const OpShape& s) { return {s.B, s.T, s.C, s.NH}; }

class Fp32Ops final : public OpTrainer {
 public:
  std::string name() const override { return "fp32"; }
  std::vector<std::string> rates() const override { return {"fp32", "tf32"}; }
  std::vector<gpt2::VariantInfo> variants() const override { return fp32::fp32_variants(); }
  OpStorage storage() const override { return {}; }
  bool repeats(std::string_view, std::string_view) const override { return true; }
  std::unique_ptr<OpContext> context(const std::string& rate, void* stream) const override {
    return std::make_unique<Context>(rate, stream);
  }

  void embedding_forward(OpContext& c, Element, void* out, const int* tokens, const void* wte, const void* wpe,
                         const OpShape& s) const override {
    gpt2::ops::embedding_forward(f(out), tokens, f(wte), f(wpe), s.B, s.T, s.C, here(c).stream);
  }
  void embedding_backward(OpContext& c, Element, Element, void* dwte, float* dwpe, const void* dout, const int* tokens, bool accumulate,
                          const OpShape& s, void* scratch) const override {
    gpt2::ops::sort_by_token(tokens, s.rows(), s.C, s.V, scratch, here(c).stream);
    gpt2::ops::embedding_backward<float>(f(dwte), dwpe, f(dout), s.B, s.T, s.C, s.max_seq_len, accumulate, scratch, here(c).stream);
  }
  int64_t embedding_backward_scratch(const OpShape& s) const override { return gpt2::ops::embedding_backward_scratch_bytes(s.rows(), s.C); }

  void layernorm_forward(OpContext& c, Variant v, Element, const Normed& o, const void* inp, const void* weight, const void* bias,
                         int64_t rows, int64_t C) const override {
    gpt2::ops::layernorm_forward(pick<fp32::LayernormForward>("layernorm_forward", v), f(o.out), o.mean, o.rstd, f(inp), nullptr, f(weight),
                                 f(bias), rows, C, here(c).stream);
  }
  void layernorm_backward(OpContext& c, Variant v, Element, const NormGradients& g, const void* dout, const void* inp, const float* mean,
                          const float* rstd, const void* weight, int64_t rows, int64_t C, bool add_to_dinp, bool accumulate,
                          void* scratch) const override {
    gpt2::ops::layernorm_backward<float, float>(
        pick<fp32::LayernormBackward>("layernorm_backward", v),
        {.dinp = f(g.dinp), .dweight = g.dweight, .dbias = g.dbias, .add_to_dinp = add_to_dinp, .accumulate = accumulate}, f(dout), f(inp),
        mean, rstd, f(weight), rows, C, f(scratch), here(c).stream);
  }
  int64_t layernorm_backward_scratch(Variant v, int64_t rows, int64_t C) const override {
    return 4 * gpt2::ops::layernorm_backward_scratch_floats<float>(pick<fp32::LayernormBackward>("layernorm_backward", v), rows, C);
  }

  void linear_forward(OpContext& c, Variant v, void* out, const void* inp, const void* weight, const void* bias,
                      const LinearShape& s) const override {
    fp32::linear_forward(pick<fp32::LinearForward>("linear_forward", v), here(c).matmul, f(out), f(inp), f(weight), f(bias), s.rows, s.in,
                         s.out, here(c).stream);
  }
  void linear_backward(OpContext& c, Variant v, void* dinp, float* dweight, float* dbias, const void* dout, const void* inp,
                       const void* weight, const LinearShape& s, bool accumulate, void* scratch) const override {
    fp32::linear_backward_input(here(c).matmul, f(dinp), f(dout), f(weight), s.rows, s.in, s.out, here(c).stream);
    fp32::linear_backward_weight(pick<fp32::LinearBackward>("linear_backward", v), here(c).matmul, dweight, dbias, f(dout), f(inp), s.rows,
                                 s.in, s.out, accumulate, f(scratch), here(c).stream);
  }
  int64_t linear_backward_scratch(Variant v, const LinearShape& s) const override {
    return 4 *
           fp32::linear_backward_scratch_floats(pick<fp32::LinearBackward>("linear_backward", v), fp32::MatmulRate::tf32, s.rows, s.out);
  }

  void attention_forward(OpContext& c, Variant v, void* out, float* lse, const void* qkv, const OpShape& s, void* scratch) const override {
    fp32::attention_forward(pick<fp32::AttentionForward>("attention_forward", v), here(c).matmul, f(out), lse, f(qkv), heads(s), scratch,
                            here(c).stream);
  }
  int64_t attention_forward_scratch(Variant v, const OpShape& s) const override {
    return fp32::attention_forward_scratch_bytes(pick<fp32::AttentionForward>("attention_forward", v), heads(s));
  }
  void attention_backward(OpContext& c, Variant v, void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                          const OpShape& s, void* scratch) const override {
    fp32::attention_backward(pick<fp32::AttentionBackward>("attention_backward", v), here(c).matmul, f(dqkv), f(dout), f(qkv), f(out), lse,
                             heads(s), scratch, here(c).stream);
  }
  int64_t attention_backward_scratch(Variant v, const OpShape& s) const override {
    return fp32::attention_backward_scratch_bytes(pick<fp32::AttentionBackward>("attention_backward", v), heads(s));
  }

  void gelu_forward(OpContext& c, void* out, const void* inp, int64_t n) const override {
    gpt2::ops::gelu_forward(f(out), f(inp), n, here(c).stream);
  }
  void gelu_backward(OpContext& c, void* dinp, const void* dout, const void* inp, int64_t n) const override {
    gpt2::ops::gelu_backward(f(dinp), f(dout), f(inp), n, here(c).stream);
  }
  void residual_forward(OpContext& c, Element, void* out, const void* a, const void* b, int64_t n) const override {
    gpt2::ops::residual_forward(f(out), f(a), f(b), n, here(c).stream);
  }

  void classifier(OpContext& c, Variant v, void* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
                  float gradient_scale, bool write_gradient) const override {
    launch_classifier(here(c).scalars, pick<fp32::Classifier>("classifier", v), f(logits), losses, targets, rows, V, Vp, gradient_scale,
                      write_gradient, here(c).stream);
  }
  void mean_loss(OpContext& c, double* loss, const float* losses, int64_t rows, double scale, bool accumulate) const override {
    launch_mean_loss(here(c).scalars, loss, losses, rows, scale, accumulate, here(c).stream);
  }
  void grad_norm(OpContext& c, Variant, double* norm, float* clip_scale, const float* gradients, int64_t n, float clip,
                 void* scratch) const override {
    launch_grad_norm<float>(here(c).scalars, norm, clip_scale, gradients, n, clip, scratch, here(c).stream);
  }
  int64_t grad_norm_scratch(Variant, int64_t n) const override { return gpt2::ops::grad_norm_scratch_bytes<float>(n); }

  void adamw(OpContext& c, Variant v, bool, const UpdateTensors& t, const gpt2::TensorLayout& layout, const gpt2::AdamW& settings,
             int64_t step) const override {
    gpt2::ops::adamw<float>(pick<fp32::AdamWKernel>("adamw", v), gpt2::ops::Rounding::nearest, nullptr, t.parameters, t.m, t.v, t.gradients,
                            layout, here(c).scalars.of_step(settings, step), t.clip_scale, here(c).stream);
  }
};

}  // namespace

const OpTrainer& fp32_ops() {
  static const Fp32Ops ops;
  return ops;
}

}  // namespace gate
