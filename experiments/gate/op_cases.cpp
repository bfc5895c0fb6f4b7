// The shapes are odd on purpose: rows that fill no block, channels that no power of two divides, a last tile
// that is nearly empty. Every case draws its own inputs: a kernel cannot have been tuned to them, and caching
// a result by pointer or shape shows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/gate/op_inputs.h"
#include "fp32/op_api.h"
#include "fp32/trainer.h"
#include "gpt2/tensor_table.h"

namespace gate {

namespace op = fp32::op;
using Floats = std::vector<float>;
using oracle::Doubles;

namespace {

class Cases : OpInputs {
 public:
  Cases(uint64_t seed, const Use& use) : OpInputs(seed, 77, use) {}

  void all() {
    embedding();
    layernorm();
    linear();
    attention();
    elementwise();
    classifier();
    mean_loss();
    grad_norm();
    adamw();
  }

 private:
  static void scale_row(Floats& x, int64_t row, int64_t columns, float factor) {
    for (int64_t c = 0; c < columns; ++c) x[static_cast<size_t>(row * columns + c)] *= factor;
  }
  static float* f(void* p) { return static_cast<float*>(p); }

  void embedding() {
    struct Size {
      int64_t B, T, C, V, Vp, max_T;
      bool one_token;
    };
    for (const Size& z : {Size{1, 1, 64, 509, 512, 64, false}, Size{3, 63, 208, 509, 512, 64, false},
                          Size{4, 65, 768, 1153, 1280, 128, false}, Size{4, 64, 96, 509, 512, 64, true},
                          Size{2, 300, 30, 257, 384, 301, false}}) {
      const op::Shape s{z.B, z.T, z.C, 1, z.V, z.Vp, z.max_T};
      std::vector<int32_t> tokens = below(s.rows(), z.V);
      tokens.back() = static_cast<int32_t>(z.V - 1);
      if (s.rows() > 2) tokens[0] = 0;
      for (size_t i = 0; i < tokens.size(); i += 3) tokens[i] = tokens[0];
      if (z.one_token) std::fill(tokens.begin(), tokens.end(), static_cast<int32_t>(z.V - 1));
      const std::string shape =
          fmt::format("B={} T={} C={} V={}{}", z.B, z.T, z.C, z.V, z.one_token ? ", one token" : "");
      const Floats wte = normal(z.Vp * z.C), wpe = normal(z.max_T * z.C), dout = normal(s.rows() * z.C);
      use_({"embedding_forward",
            shape,
            false,
            1,
            {output_tensor("out", s.rows(), z.C, oracle::embedding_forward(tokens, wte, wpe, z.T, z.C)),
             input_tensor("tokens", tokens), input_tensor("wte", z.Vp, z.C, wte),
             input_tensor("wpe", z.max_T, z.C, wpe)},
            {},
            [s](op::Context& c, const std::string&, std::span<void* const> p, void*) {
              op::embedding_forward(c, f(p[0]), static_cast<int*>(p[1]), f(p[2]), f(p[3]), s);
            }});
      for (bool accumulate : {false, true}) {
        const Floats dwte = normal(z.Vp * z.C), none(static_cast<size_t>(z.max_T * z.C));
        auto g = oracle::embedding_backward(dwte, none, dout, tokens, z.T, z.C);
        use_({"embedding_backward",
              shape + adds(accumulate),
              false,
              1,
              {update_tensor("dwte", z.Vp, z.C, dwte, g.dwte),
               gradient("dwpe", z.max_T, z.C, g.dwpe, accumulate), input_tensor("dout", s.rows(), z.C, dout),
               input_tensor("tokens", tokens)},
              [s](const std::string&) { return op::embedding_backward_scratch_bytes(s); },
              [s, accumulate](op::Context& c, const std::string&, std::span<void* const> p, void* scratch) {
                op::embedding_backward(c, f(p[0]), f(p[1]), f(p[2]), static_cast<int*>(p[3]), accumulate, s,
                                       scratch);
              }});
      }
    }
  }

  void layernorm() {
    struct Size {
      int64_t rows, C;
    };
    for (const Size& z :
         {Size{1, 64}, Size{189, 768}, Size{195, 208}, Size{33, 1600}, Size{70, 30}, Size{1030, 128}}) {
      const int64_t rows = z.rows, C = z.C;
      Floats x = normal(rows * C, 1, 0.3);
      std::string shape = fmt::format("rows={} C={}", rows, C);
      if (rows > 20) {
        scale_row(x, 3, C, 1e4f);
        scale_row(x, 17, C, 0.0f);  // constant: only eps keeps rstd finite
        shape += ", outlier and zero row";
      }
      const Floats weight = normal(C, 0.3, 1), bias = normal(C, 0.3), dout = normal(rows * C);
      auto n = oracle::layernorm_forward(x, weight, bias, rows, C);
      use_({"layernorm_forward",
            shape,
            false,
            1,
            {output_tensor("out", rows, C, n.out), output_tensor("mean", 1, rows, n.mean),
             output_tensor("rstd", 1, rows, n.rstd), input_tensor("inp", rows, C, x),
             input_tensor("weight", 1, C, weight), input_tensor("bias", 1, C, bias)},
            {},
            [=](op::Context& c, const std::string& v, std::span<void* const> p, void*) {
              op::layernorm_forward(c, v, f(p[0]), f(p[1]), f(p[2]), f(p[3]), f(p[4]), f(p[5]), rows, C);
            }});
      const Floats mean = to_floats(n.mean), rstd = to_floats(n.rstd);
      const auto g = oracle::layernorm_backward(dout, x, mean, rstd, weight, rows, C);
      for (const auto& [add, accumulate] : {std::pair{false, false}, {true, true}, {true, false}})
        use_({"layernorm_backward",
              shape + (add ? ", adds dinp" : "") + adds(accumulate),
              false,
              1,
              {gradient("dinp", rows, C, g.dx, add), gradient("dweight", 1, C, g.dweight, accumulate),
               gradient("dbias", 1, C, g.dbias, accumulate), input_tensor("dout", rows, C, dout),
               input_tensor("inp", rows, C, x), input_tensor("mean", 1, rows, mean),
               input_tensor("rstd", 1, rows, rstd), input_tensor("weight", 1, C, weight)},
              [rows, C](const std::string& v) { return op::layernorm_backward_scratch_bytes(v, rows, C); },
              [rows, C, add = add, accumulate = accumulate](op::Context& c, const std::string& v,
                                                            std::span<void* const> p, void* scratch) {
                op::layernorm_backward(c, v, f(p[0]), f(p[1]), f(p[2]), f(p[3]), f(p[4]), f(p[5]), f(p[6]),
                                       f(p[7]), rows, C, add, accumulate, scratch);
              }});
    }
  }

  void linear() {
    struct Size {
      int64_t rows, in, out;
      bool bias;
    };
    for (const Size& z : {Size{1, 64, 192, true}, Size{189, 768, 768, true}, Size{65, 208, 624, true},
                          Size{130, 3072, 96, true}, Size{63, 64, 512, false}, Size{37, 200, 1160, true}}) {
      const int64_t rows = z.rows, in = z.in, out = z.out;
      const std::string shape =
          fmt::format("rows={} in={} out={}{}", rows, in, out, z.bias ? "" : ", no bias");
      const Floats x = normal(rows * in), weight = normal(out * in, 0.05), dout = normal(rows * out);
      const Floats bias = z.bias ? normal(out, 1) : Floats{};
      OpCase forward{
          "linear_forward",
          shape,
          true,
          1,
          {output_tensor("out", rows, out, oracle::linear_forward(x, weight, bias, rows, in, out)),
           input_tensor("inp", rows, in, x), input_tensor("weight", out, in, weight)},
          {},
          [=, has_bias = z.bias](op::Context& c, const std::string& v, std::span<void* const> p, void*) {
            op::linear_forward(c, v, f(p[0]), f(p[1]), f(p[2]), has_bias ? f(p[3]) : nullptr, rows, in, out);
          }};
      if (z.bias) forward.tensors.push_back(input_tensor("bias", 1, out, bias));
      use_(forward);
      const auto g = oracle::linear_backward(dout, x, weight, rows, in, out);
      for (bool accumulate : {false, true}) {
        OpCase backward{
            "linear_backward",
            shape + adds(accumulate),
            true,
            1,
            {output_tensor("dinp", rows, in, g.dx), gradient("dweight", out, in, g.dweight, accumulate),
             input_tensor("dout", rows, out, dout), input_tensor("inp", rows, in, x),
             input_tensor("weight", out, in, weight)},
            [=](const std::string&) { return op::linear_backward_scratch_bytes(rows, in, out); },
            [=, has_bias = z.bias](op::Context& c, const std::string&, std::span<void* const> p,
                                   void* scratch) {
              op::linear_backward(c, f(p[0]), f(p[1]), has_bias ? f(p[5]) : nullptr, f(p[2]), f(p[3]),
                                  f(p[4]), rows, in, out, accumulate, scratch);
            }};
        if (z.bias) backward.tensors.push_back(gradient("dbias", 1, out, g.dbias, accumulate));
        use_(backward);
      }
    }
  }

  void attention() {
    struct Size {
      int64_t B, T, NH, HS;
      double deviation;
    };
    for (const Size& z : {Size{1, 1, 2, 64, 1}, Size{3, 63, 3, 64, 1}, Size{2, 65, 4, 16, 1},
                          Size{1, 200, 2, 64, 1}, Size{2, 129, 1, 128, 1}, Size{1, 130, 2, 64, 3.5}}) {
      const int64_t C = z.NH * z.HS;
      const op::Shape s{z.B, z.T, C, z.NH, 1, 1, z.T};
      // Scores are q.k / sqrt(HS), of deviation deviation^2; 3.5 makes the largest of thousands about 50.
      Floats qkv = normal(s.rows() * 3 * C);
      for (size_t i = 0; i < qkv.size(); ++i)
        if (static_cast<int64_t>(i) % (3 * C) < 2 * C) qkv[i] *= static_cast<float>(z.deviation);
      const bool sharp = z.deviation > 1;
      std::string shape =
          fmt::format("B={} T={} NH={} HS={}{}", z.B, z.T, z.NH, z.HS, sharp ? ", sharp" : "");
      Floats pushed = qkv;
      if (sharp)  // the last key of each sequence meets every query with a score near 150: exp overflows
                  // without the maximum
        for (int64_t t = 0; t < z.T; ++t)
          for (int64_t i = 0; i < z.HS; ++i) {
            pushed[static_cast<size_t>(t * 3 * C + i)] = 4.33f;
            pushed[static_cast<size_t>(t * 3 * C + C + i)] = 4.33f + 0.02f * random_.normal();
          }
      const auto a = oracle::attention_forward(pushed, z.B, z.T, C, z.NH);
      use_({"attention_forward",
            shape,
            true,
            sharp ? 50.0 : 1.0,
            {output_tensor("out", s.rows(), C, a.out), output_tensor("lse", z.B * z.NH, z.T, a.lse),
             input_tensor("qkv", s.rows(), 3 * C, pushed)},
            [s](const std::string& v) { return op::attention_forward_scratch_bytes(v, s); },
            [s](op::Context& c, const std::string& v, std::span<void* const> p, void* scratch) {
              op::attention_forward(c, v, f(p[0]), f(p[1]), f(p[2]), s, scratch);
            }});
      const auto plain = oracle::attention_forward(qkv, z.B, z.T, C, z.NH);
      const Floats out = to_floats(plain.out), lse = to_floats(plain.lse), dout = normal(s.rows() * C);
      use_({"attention_backward",
            shape,
            true,
            sharp ? 50.0 : 1.0,
            {output_tensor("dqkv", s.rows(), 3 * C,
                           oracle::attention_backward(dout, qkv, out, lse, z.B, z.T, C, z.NH)),
             input_tensor("dout", s.rows(), C, dout), input_tensor("qkv", s.rows(), 3 * C, qkv),
             input_tensor("out", s.rows(), C, out), input_tensor("lse", z.B * z.NH, z.T, lse)},
            [s](const std::string& v) { return op::attention_backward_scratch_bytes(v, s); },
            [s](op::Context& c, const std::string& v, std::span<void* const> p, void* scratch) {
              op::attention_backward(c, v, f(p[0]), f(p[1]), f(p[2]), f(p[3]), f(p[4]), s, scratch);
            }});
    }
  }

  void elementwise() {
    for (int64_t n : {1, 1000, 12'345, 262'147}) {
      const std::string shape = fmt::format("n={}", n);
      const Floats x = normal(n, 2), y = normal(n);
      use_({"gelu_forward",
            shape,
            false,
            1,
            {output_tensor("out", 1, n, oracle::gelu_forward(x)), input_tensor("inp", 1, n, x)},
            {},
            [n](op::Context& c, const std::string&, std::span<void* const> p, void*) {
              op::gelu_forward(c, f(p[0]), f(p[1]), n);
            }});
      use_({"gelu_backward",
            shape,
            false,
            1,
            {output_tensor("dinp", 1, n, oracle::gelu_backward(y, x)), input_tensor("dout", 1, n, y),
             input_tensor("inp", 1, n, x)},
            {},
            [n](op::Context& c, const std::string&, std::span<void* const> p, void*) {
              op::gelu_backward(c, f(p[0]), f(p[1]), f(p[2]), n);
            }});
      use_({"gelu_backward",
            shape + ", in place",
            false,
            1,
            {update_tensor("dinp", 1, n, y, oracle::gelu_backward(y, x)), input_tensor("inp", 1, n, x)},
            {},
            [n](op::Context& c, const std::string&, std::span<void* const> p, void*) {
              op::gelu_backward(c, f(p[0]), f(p[0]), f(p[1]), n);
            }});
      Doubles sum(x.begin(), x.end());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(y[i]);
      use_({"residual_forward",
            shape,
            false,
            1,
            {output_tensor("out", 1, n, sum), input_tensor("a", 1, n, x), input_tensor("b", 1, n, y)},
            {},
            [n](op::Context& c, const std::string&, std::span<void* const> p, void*) {
              op::residual_forward(c, f(p[0]), f(p[1]), f(p[2]), n);
            }});
    }
  }

  void classifier() {
    struct Size {
      int64_t rows, V, Vp;
      double deviation;
    };
    for (const Size& z : {Size{1, 509, 512, 1}, Size{63, 509, 512, 3}, Size{5, 50257, 50304, 2},
                          Size{40, 1153, 1280, 30}, Size{9, 130, 256, 1}}) {
      Floats logits = normal(z.rows * z.Vp, z.deviation);
      for (int64_t r = 0; r < z.rows; ++r)
        for (int64_t v = z.V; v < z.Vp; ++v)
          logits[static_cast<size_t>(r * z.Vp + v)] = 1e4f;  // may not take part
      const bool large = z.deviation >= 30;                  // logits beyond 88.7, where exp overflows
      std::vector<int32_t> targets = below(z.rows, z.V);
      targets[0] = static_cast<int32_t>(z.V - 1);
      if (z.rows > 1) targets[1] = 0;
      const double scale = 1.0 / static_cast<double>(2 * z.rows);
      const auto want =
          oracle::classifier(logits, targets, z.V, z.Vp, static_cast<double>(static_cast<float>(scale)));
      const std::string shape =
          fmt::format("rows={} V={} Vp={}{}", z.rows, z.V, z.Vp, large ? ", large logits" : "");
      for (bool write : {true, false}) {
        OpTensor in_place = write ? update_tensor("dlogits", z.rows, z.Vp, logits, want.dlogits)
                                  : input_tensor("logits", z.rows, z.Vp, logits);
        use_({"classifier",
              shape + (write ? "" : ", loss only"),
              false,
              large ? 20.0 : 1.0,
              {std::move(in_place), output_tensor("losses", 1, z.rows, want.losses),
               input_tensor("targets", targets)},
              {},
              [z, scale, write](op::Context& c, const std::string& v, std::span<void* const> p, void*) {
                op::classifier(c, v, f(p[0]), f(p[1]), static_cast<int*>(p[2]), z.rows, z.V, z.Vp,
                               static_cast<float>(scale), write);
              }});
      }
    }
  }

  void mean_loss() {
    for (int64_t rows : {1, 63, 1000, 4099})
      for (bool add : {false, true}) {
        Floats losses = normal(rows, 1, 5);
        losses.back() *= static_cast<float>(rows);  // the last one matters
        const double scale = 1.0 / static_cast<double>(3 * rows);
        double sum = 0;
        for (float x : losses) sum += static_cast<double>(x) * scale;
        use_({"mean_loss",
              fmt::format("rows={}{}", rows, adds(add)),
              false,
              1,
              {one_double("loss", sum, add, 1.25), input_tensor("losses", 1, rows, losses)},
              {},
              [=](op::Context& c, const std::string&, std::span<void* const> p, void*) {
                op::mean_loss(c, static_cast<double*>(p[0]), f(p[1]), rows, scale, add);
              }});
      }
  }

  void grad_norm() {
    for (int64_t n : {1, 31, 1000, 1024, 1025, 65'537, 262'143, 1'048'577})
      for (float clip : {0.0f, 0.5f, 1e9f}) {
        Floats g = normal(n, 0.1);
        g.back() = static_cast<float>(0.05 * std::sqrt(static_cast<double>(n)));  // the last one matters
        double sum = 0;
        for (float x : g) sum += static_cast<double>(x) * static_cast<double>(x);
        const double norm = std::sqrt(sum);
        const double scale = clip > 0 ? std::min(1.0, static_cast<double>(clip) / norm) : 1;
        use_({"grad_norm",
              fmt::format("n={} clip={}", n, clip),
              false,
              1,
              {one_double("norm", norm, false, 0), output_tensor("clip_scale", 1, 1, {scale}),
               input_tensor("gradients", 1, n, g)},
              [n](const std::string&) { return op::grad_norm_scratch_bytes(n); },
              [=](op::Context& c, const std::string&, std::span<void* const> p, void* scratch) {
                op::grad_norm(c, static_cast<double*>(p[0]), f(p[1]), f(p[2]), n, clip, scratch);
              }});
      }
  }

  void adamw() {
    struct Size {
      int64_t V, Vp, C, L;
    };
    for (const Size& z : {Size{509, 512, 64, 2}, Size{130, 256, 33, 1}})
      for (int64_t step : {1, 2, 1000}) {
        const gpt2::ModelConfig config{17, z.Vp, z.Vp, z.L, 1, z.C};
        const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
        const gpt2::AdamW settings{.learning_rate = 1e-2f, .weight_decay = 0.1f};
        const float clip_scale = 0.37f;
        Floats p = normal(layout.total), g = normal(layout.total, 0.01), m = normal(layout.total, 0.01),
               v = normal(layout.total, 1e-4);
        for (size_t i = 0; i < g.size(); ++i) {
          if (i % 5 == 0) g[i] *= 1e-6f, m[i] *= 1e-6f, v[i] *= 1e-12f;  // where eps matters
          v[i] = std::abs(v[i]);
          if (step == 1) m[i] = v[i] = 0;
        }
        const auto want = oracle::adamw(p, m, v, g, layout, settings, step, clip_scale);
        const int64_t n = layout.total;
        use_({"adamw",
              fmt::format("Vp={} C={} L={} t={}", z.Vp, z.C, z.L, step),
              false,
              1,
              {update_tensor("parameters", 1, n, p, want.parameters), update_tensor("m", 1, n, m, want.m),
               update_tensor("v", 1, n, v, want.v), input_tensor("gradients", 1, n, g),
               input_tensor("clip_scale", 1, 1, Floats{clip_scale})},
              {},
              [=](op::Context& c, const std::string& variant, std::span<void* const> q, void*) {
                op::adamw(c, variant, f(q[0]), f(q[3]), f(q[1]), f(q[2]), layout, settings, step, f(q[4]));
              }});
      }
  }
};

}  // namespace

OpSuite fp32_ops() {
  return {"fp32",
          {"fp32", "tf32"},
          fp32::fp32_variants(),
          [](const std::string& rate, void* stream) {
            return ContextRef(std::make_shared<op::Context>(rate, stream));
          },
          [](uint64_t seed, const std::function<void(const OpCase&)>& use) { Cases(seed, use).all(); },
          [](std::string_view, std::string_view) { return true; }};
}

}  // namespace gate
