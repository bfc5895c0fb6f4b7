// The mixed trainer's ops at a model's shapes: places and variants as its slots have them, storage as its
// defaults have it (residual stream in fp32, its gradient too). The first variant of a case is the baseline
// of the check, which is why it is none that a library may refuse; the default is starred wherever it stands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "experiments/gate/op_inputs.h"
#include "experiments/gate/op_oracle.h"
#include "experiments/kernels/kernel_cases.h"
#include "experiments/kernels/model_shapes.h"
#include "gpt2/errors.h"
#include "gpt2/tensor_table.h"
#include "mixed/op_api.h"

namespace experiments {
namespace {

namespace op = mixed::op;
namespace oracle = gate::oracle;
using gate::input_tensor;
using gate::kBf16Unit;
using gate::OpCase;
using gate::output_tensor;
using gate::Rounding;
using gate::update_tensor;
using Floats = std::vector<float>;
using oracle::Doubles;
using Pointers = std::span<void* const>;

constexpr gate::Element kBf16 = gate::Element::bf16;
constexpr gate::Element kF32 = gate::Element::f32;
constexpr Rounding kOnce{.count = 1};
constexpr Rounding kFactorsRounded{.count = 1, .inside = kBf16Unit / 2};
constexpr Rounding kFp32OfProduct{.inside = 1e-6};

float* f(void* p) { return static_cast<float*>(p); }
op::Bf16* h(void* p) { return static_cast<op::Bf16*>(p); }

class Shapes : ModelShapes {
 public:
  Shapes(const gpt2::ModelConfig& model, int64_t B, int64_t T, uint64_t seed)
      : ModelShapes(model, B, T, seed, 6) {}

  std::vector<KernelCase> cases(const std::string& name) {
    const int64_t C = m_.channels, rows = this->rows();
    std::vector<KernelCase> out;
    const auto both = [&](const auto& make, int64_t check_rows, double flops) {
      out.push_back(ModelShapes::both(make, check_rows, rows, flops));
    };
    if (name == "layernorm_forward") {
      both([&](int64_t n, bool check) { return layernorm_forward(n, check); }, rows, 0);
    } else if (name == "layernorm_backward") {
      both([&](int64_t n, bool check) { return layernorm_backward(n, check); }, rows, 0);
    } else if (name == "residual") {
      both([&](int64_t n, bool check) { return residual(n, check); }, rows, 0);
    } else if (name == "linear_forward" || name == "linear_backward") {
      for (const Place& p : places()) {
        const double work = p.work();
        if (name == "linear_forward")
          both([&](int64_t n, bool check) { return linear_forward(p.name, n, p.in, p.out, p.bias, check); },
               few(work), 2 * work * static_cast<double>(rows));
        else
          both([&](int64_t n, bool check) { return linear_backward(p.name, n, p.in, p.out, p.bias, check); },
               few(2 * work), 4 * work * static_cast<double>(rows));
      }
    } else if (name == "linear_gelu_forward") {
      const double work = static_cast<double>(C) * static_cast<double>(4 * C);
      both([&](int64_t n, bool check) { return linear_gelu_forward(n, check); }, few(work),
           2 * work * static_cast<double>(rows));
    } else if (name == "linear_gelu_backward_input") {
      const double work = static_cast<double>(C) * static_cast<double>(4 * C);
      both([&](int64_t n, bool check) { return linear_gelu_backward_input(n, check); }, few(2 * work),
           2 * work * static_cast<double>(rows));
    } else if (name == "attention_forward" || name == "attention_backward") {
      const bool forward = name == "attention_forward";
      const auto make = [&](int64_t n, bool check) {
        return forward ? attention_forward(n, check) : attention_backward(n, check);
      };
      out.push_back(ModelShapes::both(make, 1, B_, attention_flops(forward)));
    } else if (name == "classifier") {
      both([&](int64_t n, bool check) { return classifier(n, check); }, std::min<int64_t>(rows, 512), 0);
    } else if (name == "adamw") {
      out.push_back(
          ModelShapes::both([&](int64_t n, bool check) { return adamw(n, check); }, 1, m_.layers, 0));
    } else {
      throw stepscope::InputError(
          fmt::format("kernels '{}': the mixed trainer has no such op; expected one of {}", name,
                      fmt::join(mixed_kernel_ops(), ", ")));
    }
    return out;
  }

 private:
  Floats halves(int64_t n, double deviation = 1) { return gate::to_bf16(normal(n, deviation)); }

  OpCase layernorm_forward(int64_t rows, bool check) {
    const int64_t C = m_.channels;
    const Floats x = normal(rows * C), w = halves(C), b = halves(C);
    const auto want = check ? oracle::layernorm_forward(x, w, b, rows, C) : oracle::Normed{};
    const Floats kept = gate::to_bf16(x);
    return {"layernorm_forward",
            fmt::format("rows={} C={}", rows, C),
            false,
            1,
            {output_tensor("out", rows, C, want.out, kBf16, kOnce), output_tensor("mean", 1, rows, want.mean),
             output_tensor("rstd", 1, rows, want.rstd),
             output_tensor("kept", rows, C, check ? Doubles(kept.begin(), kept.end()) : Doubles{}, kBf16),
             input_tensor("inp", rows, C, x), input_tensor("weight", 1, C, w, kBf16),
             input_tensor("bias", 1, C, b, kBf16)},
            {},
            [rows, C](op::Context& c, const std::string& v, Pointers p, void*) {
              op::layernorm_forward<float>(c, v, h(p[0]), f(p[1]), f(p[2]), f(p[4]), h(p[3]), h(p[5]),
                                           h(p[6]), rows, C);
            }};
  }

  OpCase residual(int64_t rows, bool check) {
    const int64_t C = m_.channels;
    const Floats a = normal(rows * C), branch = halves(rows * C), w = halves(C), b = halves(C);
    Floats sum(a.size());
    for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + branch[i];
    const Floats kept = gate::to_bf16(sum);
    const auto want = check ? oracle::layernorm_forward(sum, w, b, rows, C) : oracle::Normed{};
    const auto exactly = [&](const Floats& x) { return check ? Doubles(x.begin(), x.end()) : Doubles{}; };
    OpCase c{
        "residual",
        fmt::format("sum and layernorm rows={} C={}", rows, C),
        false,
        1,
        {output_tensor("sum", rows, C, exactly(sum)), output_tensor("out", rows, C, want.out, kBf16, kOnce),
         output_tensor("mean", 1, rows, want.mean), output_tensor("rstd", 1, rows, want.rstd),
         output_tensor("kept", rows, C, exactly(kept), kBf16), input_tensor("a", rows, C, a),
         input_tensor("branch", rows, C, branch, kBf16), input_tensor("weight", 1, C, w, kBf16),
         input_tensor("bias", 1, C, b, kBf16)},
        {},
        [rows, C](op::Context& context, const std::string& v, Pointers p, void*) {
          if (v == "fused_layernorm") {
            op::residual_layernorm_forward<float>(context, f(p[0]), h(p[4]), h(p[1]), f(p[2]), f(p[3]),
                                                  f(p[5]), h(p[6]), h(p[7]), h(p[8]), rows, C);
            return;
          }
          op::residual_forward<float>(context, f(p[0]), f(p[5]), h(p[6]), rows * C);
          op::layernorm_forward<float>(context, "warp_per_row", h(p[1]), f(p[2]), f(p[3]), f(p[0]), h(p[4]),
                                       h(p[7]), h(p[8]), rows, C);
        }};
    c.variants = {"separate", "fused_layernorm"};
    return c;
  }

  OpCase layernorm_backward(int64_t rows, bool check) {
    const int64_t C = m_.channels;
    const Floats x = halves(rows * C), w = halves(C), dout = halves(rows * C);
    Floats mean(static_cast<size_t>(rows), 0.0f), rstd(static_cast<size_t>(rows), 1.0f);
    oracle::NormGradients want;
    if (check) {
      const auto n = oracle::layernorm_forward(x, w, Floats(static_cast<size_t>(C)), rows, C);
      mean = gate::to_floats(n.mean);
      rstd = gate::to_floats(n.rstd);
      want = oracle::layernorm_backward(dout, x, mean, rstd, w, rows, C);
    }
    return {
        "layernorm_backward",
        fmt::format("rows={} C={}", rows, C),
        false,
        1,
        {output_tensor("dinp", rows, C, want.dx), output_tensor("dinp_copy", rows, C, want.dx, kBf16, kOnce),
         output_tensor("dweight", 1, C, want.dweight), output_tensor("dbias", 1, C, want.dbias),
         input_tensor("dout", rows, C, dout, kBf16), input_tensor("inp", rows, C, x, kBf16),
         input_tensor("mean", 1, rows, mean), input_tensor("rstd", 1, rows, rstd),
         input_tensor("weight", 1, C, w, kBf16)},
        [rows, C](const std::string& v) { return op::layernorm_backward_scratch_bytes(v, rows, C); },
        [rows, C](op::Context& c, const std::string& v, Pointers p, void* scratch) {
          op::layernorm_backward<float>(c, v, f(p[0]), h(p[1]), f(p[2]), f(p[3]), nullptr, h(p[4]), h(p[5]),
                                        f(p[6]), f(p[7]), h(p[8]), rows, C, false, false, scratch);
        }};
  }

  OpCase linear_forward(const char* place, int64_t rows, int64_t in, int64_t out, bool bias, bool check) {
    const Floats x = halves(rows * in), w = halves(out * in, 0.02), b = bias ? halves(out) : Floats{};
    OpCase c{
        "linear_forward",
        fmt::format("{} rows={} {}->{}", place, rows, in, out),
        true,
        1,
        {output_tensor("out", rows, out, check ? oracle::linear_forward(x, w, b, rows, in, out) : Doubles{},
                       kBf16, bias ? kFactorsRounded : kOnce),
         input_tensor("inp", rows, in, x, kBf16), input_tensor("weight", out, in, w, kBf16)},
        {},
        [=](op::Context& context, const std::string& v, Pointers p, void*) {
          op::linear_forward(context, v, h(p[0]), h(p[1]), h(p[2]), bias ? h(p[3]) : nullptr, rows, in, out);
        }};
    if (bias) c.tensors.push_back(input_tensor("bias", 1, out, b, kBf16));
    c.variants = {"bias_kernel", "bias_epilogue"};
    return c;
  }

  OpCase linear_gelu_forward(int64_t rows, bool check) {
    const int64_t in = m_.channels, out = 4 * m_.channels;
    const Floats x = halves(rows * in), w = halves(out * in, 0.02), b = halves(out);
    const Doubles before = check ? oracle::linear_forward(x, w, b, rows, in, out) : Doubles{};
    OpCase c{"linear_gelu_forward",
             fmt::format("mlp_up rows={} {}->{}", rows, in, out),
             true,
             1,
             {output_tensor("after", rows, out, oracle::gelu_forward_of(before), kBf16, kFactorsRounded),
              output_tensor("before", rows, out, before, kBf16, kFactorsRounded),
              input_tensor("inp", rows, in, x, kBf16), input_tensor("weight", out, in, w, kBf16),
              input_tensor("bias", 1, out, b, kBf16)},
             {},
             [=](op::Context& context, const std::string& v, Pointers p, void*) {
               op::linear_gelu_forward(context, v, h(p[0]), h(p[1]), h(p[2]), h(p[3]), h(p[4]), rows, in,
                                       out);
             }};
    c.slot = "gelu_forward";
    c.variants = {"kernel", "matmul_epilogue"};
    return c;
  }

  OpCase linear_gelu_backward_input(int64_t rows, bool check) {
    const int64_t in = 4 * m_.channels, out = m_.channels;
    const Floats w = halves(out * in, 0.02), dout = halves(rows * out), before = halves(rows * in);
    // The oracle also makes gradients of weights, which this op has none of: its input may be anything.
    Doubles want;
    if (check)
      want = oracle::gelu_backward_of(oracle::linear_backward(dout, before, w, rows, in, out).dx, before);
    OpCase c{"linear_gelu_backward_input",
             fmt::format("mlp_down rows={} {}->{}", rows, in, out),
             true,
             1,
             {output_tensor("dbefore", rows, in, want, kBf16, kFactorsRounded),
              input_tensor("dout", rows, out, dout, kBf16), input_tensor("weight", out, in, w, kBf16),
              input_tensor("before", rows, in, before, kBf16)},
             {},
             [=](op::Context& context, const std::string& v, Pointers p, void*) {
               op::linear_gelu_backward_input(context, v, h(p[0]), h(p[1]), h(p[2]), h(p[3]), rows, in, out);
             }};
    c.slot = "gelu_backward";
    c.variants = {"kernel", "matmul_epilogue"};
    return c;
  }

  OpCase linear_backward(const char* place, int64_t rows, int64_t in, int64_t out, bool bias, bool check) {
    const Floats x = halves(rows * in), w = halves(out * in, 0.02), dout = halves(rows * out);
    const auto want = check ? oracle::linear_backward(dout, x, w, rows, in, out) : oracle::LinearGradients{};
    OpCase c{"linear_backward",
             fmt::format("{} rows={} {}->{}", place, rows, in, out),
             true,
             1,
             {output_tensor("dinp", rows, in, want.dx, kBf16, kOnce),
              output_tensor("dweight", out, in, want.dweight, kF32, kFp32OfProduct),
              input_tensor("dout", rows, out, dout, kBf16), input_tensor("inp", rows, in, x, kBf16),
              input_tensor("weight", out, in, w, kBf16)},
             [=](const std::string&) { return op::linear_backward_scratch_bytes(rows, out); },
             [=](op::Context& context, const std::string& v, Pointers p, void* scratch) {
               op::linear_backward(context, v, h(p[0]), f(p[1]), bias ? f(p[5]) : nullptr, h(p[2]), h(p[3]),
                                   h(p[4]), rows, in, out, false, scratch);
             }};
    if (bias) c.tensors.push_back(output_tensor("dbias", 1, out, want.dbias, kF32, kFp32OfProduct));
    c.slot = "bias_gradient";
    c.variants = {"column_sums", "matmul_epilogue"};
    return c;
  }

  op::Shape shape(int64_t B) const {
    return {B, T_, m_.channels, m_.heads, m_.vocab_size, m_.padded_vocab, m_.max_seq_len};
  }

  OpCase attention_forward(int64_t B, bool check) {
    const op::Shape s = shape(B);
    const Floats qkv = halves(s.rows() * 3 * s.C);
    const auto want = check ? oracle::attention_forward(qkv, B, T_, s.C, s.NH) : oracle::Attended{};
    OpCase c{"attention_forward",
             fmt::format("B={} T={} NH={} HS={}", B, T_, s.NH, s.C / s.NH),
             true,
             1,
             {output_tensor("out", s.rows(), s.C, want.out, kBf16, kFactorsRounded),
              output_tensor("lse", B * s.NH, T_, want.lse, kF32, {.inside = 1e-5}),
              input_tensor("qkv", s.rows(), 3 * s.C, qkv, kBf16)},
             [s](const std::string& v) { return op::attention_forward_scratch_bytes(v, s); },
             [s](op::Context& context, const std::string& v, Pointers p, void* scratch) {
               op::attention_forward(context, v, h(p[0]), f(p[1]), h(p[2]), s, scratch);
             }};
    c.variants = {"unfused", "flash", "cudnn"};
    return c;
  }

  OpCase attention_backward(int64_t B, bool check) {
    const op::Shape s = shape(B);
    const Floats qkv = halves(s.rows() * 3 * s.C), dout = halves(s.rows() * s.C);
    // What is timed needs no consistent forward result, only one whose exponentials stay finite.
    Floats out = check ? Floats{} : halves(s.rows() * s.C, 0.1),
           lse(static_cast<size_t>(B * s.NH * T_), 8.0f);
    Doubles want;
    if (check) {
      const auto a = oracle::attention_forward(qkv, B, T_, s.C, s.NH);
      out = gate::to_bf16(gate::to_floats(a.out));
      lse = gate::to_floats(a.lse);
      want = oracle::attention_backward(dout, qkv, out, lse, B, T_, s.C, s.NH);
    }
    OpCase c{
        "attention_backward",
        fmt::format("B={} T={} NH={} HS={}", B, T_, s.NH, s.C / s.NH),
        true,
        1,
        {output_tensor("dqkv", s.rows(), 3 * s.C, want, kBf16, kFactorsRounded),
         input_tensor("dout", s.rows(), s.C, dout, kBf16), input_tensor("qkv", s.rows(), 3 * s.C, qkv, kBf16),
         input_tensor("out", s.rows(), s.C, out, kBf16), input_tensor("lse", B * s.NH, T_, lse)},
        [s](const std::string& v) { return op::attention_backward_scratch_bytes(v, s); },
        [s](op::Context& context, const std::string& v, Pointers p, void* scratch) {
          op::attention_backward(context, v, h(p[0]), h(p[1]), h(p[2]), h(p[3]), f(p[4]), s, scratch);
        }};
    c.variants = {"unfused", "flash", "cudnn", "cudnn_deterministic"};
    return c;
  }

  OpCase classifier(int64_t rows, bool check) {
    const int64_t V = m_.vocab_size, Vp = m_.padded_vocab;
    const Floats logits = halves(rows * Vp);
    std::vector<int32_t> targets(static_cast<size_t>(rows));
    for (int32_t& t : targets) t = static_cast<int32_t>(random_.below(V));
    const float scale = static_cast<float>(1.0 / static_cast<double>(rows));
    const auto want =
        check ? oracle::classifier(logits, targets, V, Vp, static_cast<double>(scale)) : oracle::Classified{};
    OpCase c{"classifier",
             fmt::format("rows={} V={} Vp={}", rows, V, Vp),
             false,
             1,
             {update_tensor("dlogits", rows, Vp, logits, want.dlogits, kBf16, kOnce),
              output_tensor("losses", 1, rows, want.losses, kF32, {.inside = 1e-5}),
              input_tensor("targets", targets)},
             {},
             [=](op::Context& context, const std::string& v, Pointers p, void*) {
               op::classifier(context, v, h(p[0]), f(p[1]), static_cast<int*>(p[2]), rows, V, Vp, scale,
                              true);
             }};
    c.variants = {"two_pass", "one_read"};
    return c;
  }

  OpCase adamw(int64_t layers, bool check) {
    gpt2::ModelConfig config = m_;
    config.layers = layers;
    const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
    const gpt2::AdamW settings{.learning_rate = 1e-2f, .weight_decay = 0.1f};
    const float clip_scale = 0.37f;
    constexpr int64_t kStep = 2;
    const int64_t n = layout.total;
    const Floats p = normal(n), g = normal(n, 0.01), m = normal(n, 0.01);
    Floats v = normal(n, 1e-4);
    for (float& x : v) x = std::abs(x);
    const auto want =
        check ? oracle::adamw(p, m, v, g, layout, settings, kStep, clip_scale) : oracle::Updated{};
    return {"adamw",
            fmt::format("{} parameters ({} layers)", n, layers),
            false,
            1,
            {output_tensor("parameters", 1, n, want.parameters, kBf16, kOnce),
             update_tensor("master", 1, n, p, want.parameters), update_tensor("m", 1, n, m, want.m),
             update_tensor("v", 1, n, v, want.v), input_tensor("gradients", 1, n, g),
             input_tensor("clip_scale", 1, 1, Floats{clip_scale})},
            {},
            [=](op::Context& c, const std::string& variant, Pointers q, void*) {
              op::adamw(c, variant, false, h(q[0]), f(q[1]), f(q[2]), f(q[3]), f(q[4]), layout, settings,
                        kStep, 1, f(q[5]));
            }};
  }
};

}  // namespace

std::vector<std::string> mixed_kernel_ops() {
  return {"layernorm_forward",
          "layernorm_backward",
          "residual",
          "linear_forward",
          "linear_backward",
          "linear_gelu_forward",
          "linear_gelu_backward_input",
          "attention_forward",
          "attention_backward",
          "classifier",
          "adamw"};
}

std::vector<KernelCase> mixed_kernel_cases(const std::string& op_name, const gpt2::ModelConfig& model,
                                           int64_t B, int64_t T, uint64_t seed) {
  return Shapes(model, B, T, seed).cases(op_name);
}

}  // namespace experiments
