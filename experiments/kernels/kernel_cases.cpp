#include "experiments/kernels/kernel_cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "experiments/gate/op_inputs.h"
#include "experiments/gate/op_oracle.h"
#include "experiments/kernels/model_shapes.h"
#include "fp32/op_api.h"
#include "gpt2/errors.h"
#include "gpt2/tensor_table.h"

namespace experiments {
namespace {

namespace op = fp32::op;
namespace oracle = gate::oracle;
using gate::input_tensor;
using gate::OpCase;
using gate::output_tensor;
using gate::update_tensor;
using Floats = std::vector<float>;
using oracle::Doubles;

float* f(void* p) { return static_cast<float*>(p); }

class Shapes : ModelShapes {
 public:
  Shapes(const gpt2::ModelConfig& model, int64_t B, int64_t T, uint64_t seed)
      : ModelShapes(model, B, T, seed, 5) {}

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
    } else if (name == "attention_forward" || name == "attention_backward") {
      const bool forward = name == "attention_forward";
      const auto make = [&](int64_t n, bool check) {
        return forward ? attention_forward(n, check) : attention_backward(n, check);
      };
      out.push_back(ModelShapes::both(make, 1, B_, attention_flops(forward)));
    } else if (name == "gelu_forward" || name == "gelu_backward") {
      both([&](int64_t n, bool check) { return gelu(name == "gelu_forward", n * 4 * C, check); }, rows, 0);
    } else if (name == "classifier") {
      both([&](int64_t n, bool check) { return classifier(n, check); }, std::min<int64_t>(rows, 512), 0);
    } else if (name == "adamw") {
      out.push_back(
          ModelShapes::both([&](int64_t n, bool check) { return adamw(n, check); }, 1, m_.layers, 0));
    } else {
      throw stepscope::InputError(
          fmt::format("kernels '{}': no such op; expected one of {}", name, fmt::join(kernel_ops(), ", ")));
    }
    return out;
  }

 private:
  OpCase layernorm_forward(int64_t rows, bool check) {
    const int64_t C = m_.channels;
    const Floats x = normal(rows * C), w = normal(C), b = normal(C);
    const auto want = check ? oracle::layernorm_forward(x, w, b, rows, C) : oracle::Normed{};
    return {"layernorm_forward",
            fmt::format("rows={} C={}", rows, C),
            false,
            1,
            {output_tensor("out", rows, C, want.out), output_tensor("mean", 1, rows, want.mean),
             output_tensor("rstd", 1, rows, want.rstd), input_tensor("inp", rows, C, x),
             input_tensor("weight", 1, C, w), input_tensor("bias", 1, C, b)},
            {},
            [rows, C](op::Context& c, const std::string& v, std::span<void* const> p, void*) {
              op::layernorm_forward(c, v, f(p[0]), f(p[1]), f(p[2]), f(p[3]), f(p[4]), f(p[5]), rows, C);
            }};
  }

  OpCase layernorm_backward(int64_t rows, bool check) {
    const int64_t C = m_.channels;
    const Floats x = normal(rows * C), w = normal(C), dout = normal(rows * C);
    Floats mean(static_cast<size_t>(rows), 0.0f), rstd(static_cast<size_t>(rows), 1.0f);
    oracle::NormGradients want;
    if (check) {
      const auto n = oracle::layernorm_forward(x, w, w, rows, C);
      mean = gate::to_floats(n.mean);
      rstd = gate::to_floats(n.rstd);
      want = oracle::layernorm_backward(dout, x, mean, rstd, w, rows, C);
    }
    return {"layernorm_backward",
            fmt::format("rows={} C={}", rows, C),
            false,
            1,
            {output_tensor("dinp", rows, C, want.dx), output_tensor("dweight", 1, C, want.dweight),
             output_tensor("dbias", 1, C, want.dbias), input_tensor("dout", rows, C, dout),
             input_tensor("inp", rows, C, x), input_tensor("mean", 1, rows, mean),
             input_tensor("rstd", 1, rows, rstd), input_tensor("weight", 1, C, w)},
            [rows, C](const std::string& v) { return op::layernorm_backward_scratch_bytes(v, rows, C); },
            [rows, C](op::Context& c, const std::string& v, std::span<void* const> p, void* scratch) {
              op::layernorm_backward(c, v, f(p[0]), f(p[1]), f(p[2]), f(p[3]), f(p[4]), f(p[5]), f(p[6]),
                                     f(p[7]), rows, C, false, false, scratch);
            }};
  }

  OpCase linear_forward(const char* place, int64_t rows, int64_t in, int64_t out, bool bias, bool check) {
    const Floats x = normal(rows * in), w = normal(out * in, 0.02), b = bias ? normal(out) : Floats{};
    OpCase c{
        "linear_forward",
        fmt::format("{} rows={} {}->{}", place, rows, in, out),
        true,
        1,
        {output_tensor("out", rows, out, check ? oracle::linear_forward(x, w, b, rows, in, out) : Doubles{}),
         input_tensor("inp", rows, in, x), input_tensor("weight", out, in, w)},
        {},
        [=](op::Context& context, const std::string& v, std::span<void* const> p, void*) {
          op::linear_forward(context, v, f(p[0]), f(p[1]), f(p[2]), bias ? f(p[3]) : nullptr, rows, in, out);
        }};
    if (bias) c.tensors.push_back(input_tensor("bias", 1, out, b));
    return c;
  }

  OpCase linear_backward(const char* place, int64_t rows, int64_t in, int64_t out, bool bias, bool check) {
    const Floats x = normal(rows * in), w = normal(out * in, 0.02), dout = normal(rows * out);
    const auto want = check ? oracle::linear_backward(dout, x, w, rows, in, out) : oracle::LinearGradients{};
    OpCase c{"linear_backward",
             fmt::format("{} rows={} {}->{}", place, rows, in, out),
             true,
             1,
             {output_tensor("dinp", rows, in, want.dx), output_tensor("dweight", out, in, want.dweight),
              input_tensor("dout", rows, out, dout), input_tensor("inp", rows, in, x),
              input_tensor("weight", out, in, w)},
             [=](const std::string&) { return op::linear_backward_scratch_bytes(rows, in, out); },
             [=](op::Context& context, const std::string&, std::span<void* const> p, void* scratch) {
               op::linear_backward(context, f(p[0]), f(p[1]), bias ? f(p[5]) : nullptr, f(p[2]), f(p[3]),
                                   f(p[4]), rows, in, out, false, scratch);
             }};
    if (bias) c.tensors.push_back(output_tensor("dbias", 1, out, want.dbias));
    return c;
  }

  op::Shape shape(int64_t B) const {
    return {B, T_, m_.channels, m_.heads, m_.vocab_size, m_.padded_vocab, m_.max_seq_len};
  }

  OpCase attention_forward(int64_t B, bool check) {
    const op::Shape s = shape(B);
    const Floats qkv = normal(s.rows() * 3 * s.C);
    const auto want = check ? oracle::attention_forward(qkv, B, T_, s.C, s.NH) : oracle::Attended{};
    return {"attention_forward",
            fmt::format("B={} T={} NH={} HS={}", B, T_, s.NH, s.C / s.NH),
            true,
            1,
            {output_tensor("out", s.rows(), s.C, want.out), output_tensor("lse", B * s.NH, T_, want.lse),
             input_tensor("qkv", s.rows(), 3 * s.C, qkv)},
            [s](const std::string& v) { return op::attention_forward_scratch_bytes(v, s); },
            [s](op::Context& c, const std::string& v, std::span<void* const> p, void* scratch) {
              op::attention_forward(c, v, f(p[0]), f(p[1]), f(p[2]), s, scratch);
            }};
  }

  OpCase attention_backward(int64_t B, bool check) {
    const op::Shape s = shape(B);
    const Floats qkv = normal(s.rows() * 3 * s.C), dout = normal(s.rows() * s.C);
    // What is timed needs no consistent forward result, only one whose exponentials stay finite.
    Floats out = check ? Floats{} : normal(s.rows() * s.C, 0.1),
           lse(static_cast<size_t>(B * s.NH * T_), 8.0f);
    Doubles want;
    if (check) {
      const auto a = oracle::attention_forward(qkv, B, T_, s.C, s.NH);
      out = gate::to_floats(a.out);
      lse = gate::to_floats(a.lse);
      want = oracle::attention_backward(dout, qkv, out, lse, B, T_, s.C, s.NH);
    }
    return {"attention_backward",
            fmt::format("B={} T={} NH={} HS={}", B, T_, s.NH, s.C / s.NH),
            true,
            1,
            {output_tensor("dqkv", s.rows(), 3 * s.C, want), input_tensor("dout", s.rows(), s.C, dout),
             input_tensor("qkv", s.rows(), 3 * s.C, qkv), input_tensor("out", s.rows(), s.C, out),
             input_tensor("lse", B * s.NH, T_, lse)},
            [s](const std::string& v) { return op::attention_backward_scratch_bytes(v, s); },
            [s](op::Context& c, const std::string& v, std::span<void* const> p, void* scratch) {
              op::attention_backward(c, v, f(p[0]), f(p[1]), f(p[2]), f(p[3]), f(p[4]), s, scratch);
            }};
  }

  OpCase gelu(bool forward, int64_t n, bool check) {
    const Floats x = normal(n, 2), y = forward ? Floats{} : normal(n);
    if (forward)
      return {"gelu_forward",
              fmt::format("n={}", n),
              false,
              1,
              {output_tensor("out", 1, n, check ? oracle::gelu_forward(x) : Doubles{}),
               input_tensor("inp", 1, n, x)},
              {},
              [n](op::Context& c, const std::string&, std::span<void* const> p, void*) {
                op::gelu_forward(c, f(p[0]), f(p[1]), n);
              }};
    return {"gelu_backward",
            fmt::format("n={}", n),
            false,
            1,
            {output_tensor("dinp", 1, n, check ? oracle::gelu_backward(y, x) : Doubles{}),
             input_tensor("dout", 1, n, y), input_tensor("inp", 1, n, x)},
            {},
            [n](op::Context& c, const std::string&, std::span<void* const> p, void*) {
              op::gelu_backward(c, f(p[0]), f(p[1]), f(p[2]), n);
            }};
  }

  OpCase classifier(int64_t rows, bool check) {
    const int64_t V = m_.vocab_size, Vp = m_.padded_vocab;
    const Floats logits = normal(rows * Vp);
    std::vector<int32_t> targets(static_cast<size_t>(rows));
    for (int32_t& t : targets) t = static_cast<int32_t>(random_.below(V));
    const float scale = static_cast<float>(1.0 / static_cast<double>(rows));
    const auto want =
        check ? oracle::classifier(logits, targets, V, Vp, static_cast<double>(scale)) : oracle::Classified{};
    return {"classifier",
            fmt::format("rows={} V={} Vp={}", rows, V, Vp),
            false,
            1,
            {update_tensor("dlogits", rows, Vp, logits, want.dlogits),
             output_tensor("losses", 1, rows, want.losses), input_tensor("targets", targets)},
            {},
            [=](op::Context& c, const std::string& v, std::span<void* const> p, void*) {
              op::classifier(c, v, f(p[0]), f(p[1]), static_cast<int*>(p[2]), rows, V, Vp, scale, true);
            }};
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
            {update_tensor("parameters", 1, n, p, want.parameters), update_tensor("m", 1, n, m, want.m),
             update_tensor("v", 1, n, v, want.v), input_tensor("gradients", 1, n, g),
             input_tensor("clip_scale", 1, 1, Floats{clip_scale})},
            {},
            [=](op::Context& c, const std::string& variant, std::span<void* const> q, void*) {
              op::adamw(c, variant, f(q[0]), f(q[3]), f(q[1]), f(q[2]), layout, settings, kStep, f(q[4]));
            }};
  }
};

}  // namespace

double KernelCase::min_bytes() const {
  double bytes = 0;
  for (const gate::OpTensor& t : timed.tensors)
    bytes += static_cast<double>(t.byte_count()) * (t.role == gate::Role::update ? 2 : 1);
  return bytes;
}

std::vector<std::string> kernel_ops() {
  return {
      "layernorm_forward",  "layernorm_backward", "linear_forward", "linear_backward", "attention_forward",
      "attention_backward", "gelu_forward",       "gelu_backward",  "classifier",      "adamw"};
}

std::vector<KernelCase> kernel_cases(const std::string& op_name, const gpt2::ModelConfig& model, int64_t B,
                                     int64_t T, uint64_t seed) {
  return Shapes(model, B, T, seed).cases(op_name);
}

}  // namespace experiments
