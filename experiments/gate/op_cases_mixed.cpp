// The ops of the mixed-precision trainer. Inputs are drawn, rounded to bf16 where the trainer stores bf16,
// and the oracle computes in double from exactly these. What bf16 costs on the way out is said per tensor
// (Rounding), so an fp32 result is held to fp32 here too. Where the definition leaves one right answer in
// bf16 (a sum of two numbers rounded once), that answer is demanded.
//
// Variants that a library may refuse (cuDNN, product epilogues) are never first: the first is the baseline
// and may not refuse.
#include <fmt/format.h>

#include "experiments/gate/op_cases_mixed.h"
#include "gpt2/tensor_table.h"
#include "mixed/trainer.h"

namespace gate {
namespace mixed_cases {
namespace {

class Cases : Inputs {
 public:
  Cases(uint64_t seed, const Use& use) : Inputs(seed, 78, use) {}

  void all() {
    embedding<op::Bf16>();
    embedding<float>();
    layernorm<op::Bf16>();
    layernorm<float>();
    residual<op::Bf16>();
    residual<float>();
    elementwise();
    classifier();
    mean_loss();
    grad_norm();
    adamw();
  }

 private:
  template <class R>
  void embedding() {
    struct Size {
      int64_t B, T, C, V, Vp, max_T;
      bool one_token;
    };
    for (const Size& z : {Size{1, 1, 64, 509, 512, 64, false}, Size{3, 63, 208, 509, 512, 64, false},
                          Size{3, 65, 768, 1153, 1280, 128, false}, Size{3, 64, 96, 509, 512, 64, true},
                          Size{1, 65, 30, 257, 384, 301, false}}) {
      const op::Shape s{z.B, z.T, z.C, 1, z.V, z.Vp, z.max_T};
      std::vector<int32_t> tokens = below(s.rows(), z.V);
      tokens.back() = static_cast<int32_t>(z.V - 1);
      if (s.rows() > 2) tokens[0] = 0;
      for (size_t i = 0; i < tokens.size(); i += 3) tokens[i] = tokens[0];
      if (z.one_token) std::fill(tokens.begin(), tokens.end(), static_cast<int32_t>(z.V - 1));
      const std::string shape = fmt::format("B={} T={} C={} V={} {}{}", z.B, z.T, z.C, z.V, kStoredName<R>,
                                            z.one_token ? ", one token" : "");
      const Floats wte = halves(z.Vp * z.C), wpe = halves(z.max_T * z.C),
                   dout = stored<R>(normal(s.rows() * z.C));
      // One fp32 sum of two numbers, rounded once: there is one right answer.
      const Floats sum = stored<R>(to_floats(oracle::embedding_forward(tokens, wte, wpe, z.T, z.C)));
      OpCase forward{
          "embedding_forward",
          shape,
          false,
          1,
          {output_tensor("out", s.rows(), z.C, exactly(sum), kStored<R>), input_tensor("tokens", tokens),
           input_tensor("wte", z.Vp, z.C, wte, kBf16), input_tensor("wpe", z.max_T, z.C, wpe, kBf16)},
          {},
          [s](op::Context& c, const std::string&, Pointers p, void*) {
            op::embedding_forward<R>(c, static_cast<R*>(p[0]), i32(p[1]), h(p[2]), h(p[3]), s);
          }};
      forward.also = {{"residual_stream", kStoredName<R>}};
      use_(forward);
      for (bool accumulate : {false, true}) {
        const Floats dwte = normal(z.Vp * z.C), none(static_cast<size_t>(z.max_T * z.C));
        auto g = oracle::embedding_backward(dwte, none, dout, tokens, z.T, z.C);
        OpCase backward{
            "embedding_backward",
            shape + adds(accumulate),
            false,
            1,
            {update_tensor("dwte", z.Vp, z.C, dwte, g.dwte),
             gradient("dwpe", z.max_T, z.C, g.dwpe, accumulate),
             input_tensor("dout", s.rows(), z.C, dout, kStored<R>), input_tensor("tokens", tokens)},
            [s](const std::string&) { return op::embedding_backward_scratch_bytes(s); },
            [s, accumulate](op::Context& c, const std::string&, Pointers p, void* scratch) {
              op::embedding_backward<R>(c, f(p[0]), f(p[1]), static_cast<const R*>(p[2]), i32(p[3]),
                                        accumulate, s, scratch);
            }};
        backward.also = {{"residual_gradient", kStoredName<R>}, zero_grad(accumulate)};
        use_(backward);
      }
    }
  }

  // Rows of the residual stream: an outlier, a row of zeros and a constant one among them, where there is
  // room.
  template <class R>
  Floats stream_rows(int64_t rows, int64_t C, std::string& shape) {
    Floats x = normal(rows * C, 1, 0.3);
    if (rows > 20) {
      const auto each = [&](int64_t row, auto&& change) {
        for (int64_t c = 0; c < C; ++c) change(x[static_cast<size_t>(row * C + c)]);
      };
      each(3, [](float& v) { v *= 1e4f; });
      each(17, [](float& v) { v = 0; });
      each(rows - 1, [](float& v) { v = 0.5f; });  // constant: only eps keeps rstd finite
      shape += ", outlier, zero and constant row";
    }
    return stored<R>(std::move(x));
  }

  template <class R>
  void layernorm() {
    struct Size {
      int64_t rows, C;
    };
    for (const Size& z : {Size{1, 64}, Size{63, 768}, Size{195, 208}, Size{65, 1600}, Size{70, 30},
                          Size{1030, 128}, Size{64, 192}}) {
      const int64_t rows = z.rows, C = z.C;
      std::string shape = fmt::format("rows={} C={} {}", rows, C, kStoredName<R>);
      const Floats x = stream_rows<R>(rows, C, shape);
      const Floats weight = halves(C, 0.3, 1), bias = halves(C, 0.3);
      layernorm_forward<R>(shape, x, weight, bias, rows, C);
      // The backward pass reads the stream as bf16, whatever it is stored as.
      layernorm_backward<R>(shape, to_bf16(x), weight, rows, C);
    }
  }

  template <class R>
  void layernorm_forward(const std::string& shape, const Floats& x, const Floats& weight, const Floats& bias,
                         int64_t rows, int64_t C) {
    const auto n = oracle::layernorm_forward(x, weight, bias, rows, C);
    // As recompute does it: no statistics.
    for (bool statistics : {true, false}) {
      OpCase c{
          "layernorm_forward",
          shape + (statistics ? "" : ", no statistics"),
          false,
          1,
          {output_tensor("out", rows, C, n.out, kBf16, kOnce), input_tensor("inp", rows, C, x, kStored<R>),
           input_tensor("weight", 1, C, weight, kBf16), input_tensor("bias", 1, C, bias, kBf16)},
          {},
          [=](op::Context& context, const std::string& v, Pointers p, void*) {
            float* mean = statistics ? f(p[4]) : nullptr;
            float* rstd = statistics ? f(p[5]) : nullptr;
            op::Bf16* kept = statistics && kWide<R> ? h(p[6]) : nullptr;
            op::layernorm_forward<R>(context, v, h(p[0]), mean, rstd, static_cast<const R*>(p[1]), kept,
                                     h(p[2]), h(p[3]), rows, C);
          }};
      if (statistics) {
        c.tensors.push_back(output_tensor("mean", 1, rows, n.mean));
        c.tensors.push_back(output_tensor("rstd", 1, rows, n.rstd));
        if (kWide<R>) c.tensors.push_back(output_tensor("kept", rows, C, exactly(to_bf16(x)), kBf16));
      }
      c.also = {{"residual_stream", kStoredName<R>}};
      use_(c);
    }
  }

  template <class R>
  void layernorm_backward(const std::string& shape, const Floats& x, const Floats& weight, int64_t rows,
                          int64_t C) {
    const Floats dout = halves(rows * C);
    const auto n = oracle::layernorm_forward(x, weight, Floats(static_cast<size_t>(C)), rows, C);
    const Floats mean = to_floats(n.mean), rstd = to_floats(n.rstd);
    const auto g = oracle::layernorm_backward(dout, x, mean, rstd, weight, rows, C);
    struct Way {
      bool add, accumulate, sums;
    };
    for (const Way& w :
         {Way{false, false, false}, Way{true, true, true}, Way{true, false, true}, Way{false, true, false}}) {
      OpTensor dinp = gradient("dinp", rows, C, g.dx, w.add, kStored<R>, once_if_bf16<R>());
      const Doubles after = dinp.want;
      OpCase c{"layernorm_backward",
               shape + (w.add ? ", adds dinp" : "") + adds(w.accumulate) + (w.sums ? ", column sums" : ""),
               false,
               1,
               {std::move(dinp), gradient("dweight", 1, C, g.dweight, w.accumulate),
                gradient("dbias", 1, C, g.dbias, w.accumulate), input_tensor("dout", rows, C, dout, kBf16),
                input_tensor("inp", rows, C, x, kBf16), input_tensor("mean", 1, rows, mean),
                input_tensor("rstd", 1, rows, rstd), input_tensor("weight", 1, C, weight, kBf16)},
               [rows, C](const std::string& v) { return op::layernorm_backward_scratch_bytes(v, rows, C); },
               [=](op::Context& context, const std::string& v, Pointers p, void* scratch) {
                 size_t next = 8;
                 op::Bf16* copy = kWide<R> ? h(p[next++]) : nullptr;
                 float* sums = w.sums ? f(p[next]) : nullptr;
                 op::layernorm_backward<R>(context, v, static_cast<R*>(p[0]), copy, f(p[1]), f(p[2]), sums,
                                           h(p[3]), h(p[4]), f(p[5]), f(p[6]), h(p[7]), rows, C, w.add,
                                           w.accumulate, scratch);
               }};
      if (kWide<R>) c.tensors.push_back(output_tensor("dinp_copy", rows, C, after, kBf16, kOnce));
      if (w.sums) {
        // Of dinp as one of its storages holds it: each term may have been rounded before it was added.
        Doubles sums(static_cast<size_t>(C));
        for (size_t i = 0; i < after.size(); ++i) sums[i % static_cast<size_t>(C)] += after[i];
        c.tensors.push_back(
            gradient("dinp_column_sums", 1, C, sums, w.accumulate, Element::f32, {.inside = kBf16Unit}));
        c.judge = sums_are_of_the_stored(kWide<R> ? 8 : 0, c.tensors.size() - 1, c.tensors.back());
        c.also.emplace_back("bias_gradient", "layernorm_fold");
      }
      c.also.emplace_back("residual_gradient", kStoredName<R>);
      c.also.push_back(zero_grad(w.accumulate));
      use_(c);
    }
  }

  // Column sums against the bf16 values of the same launch that they are said to be sums of: no rounding lies
  // between the two.
  static auto sums_are_of_the_stored(size_t terms_at, size_t sums_at, const OpTensor& before) {
    return [=, columns = before.columns,
            before = before.role == Role::update ? before.bytes : std::vector<std::byte>{}](
               std::span<const std::vector<std::byte>> after, const std::string& name,
               const std::string& detail, GateReport& report) {
      const Floats terms = floats_of(after[terms_at], kBf16), added_to = floats_of(before, Element::f32);
      Doubles want(static_cast<size_t>(columns));
      for (size_t i = 0; i < added_to.size(); ++i) want[i] = static_cast<double>(added_to[i]);
      for (size_t i = 0; i < terms.size(); ++i) want[i % want.size()] += static_cast<double>(terms[i]);
      const Doubles got = exactly(floats_of(after[sums_at], Element::f32));
      report.add(from_metrics(name + " error", "dinp_column_sums of stored dinp",
                              compare<double, double>(got, want, 1, columns),
                              rounding_limit({.inside = 1e-6}), detail));
    };
  }

  // The two ways of the slot that are no product: the sum with the layernorm that follows it, and the sum
  // alone.
  template <class R>
  void residual() {
    struct Size {
      int64_t rows, C;
    };
    for (const auto& [rows, C] : {Size{1, 64}, Size{63, 768}, Size{195, 208}, Size{65, 1600}, Size{70, 30}}) {
      std::string shape = fmt::format("sum and layernorm rows={} C={} {}", rows, C, kStoredName<R>);
      Floats a = stream_rows<R>(rows, C, shape);
      Floats branch = halves(rows * C);
      if (rows > 20)  // the zero and the constant row stay what they are
        for (const int64_t row : {int64_t{17}, rows - 1}) std::fill_n(branch.begin() + row * C, C, 0.0f);
      const Floats weight = halves(C, 0.3, 1), bias = halves(C, 0.3);
      Floats sum(a.size());
      for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + branch[i];
      sum = stored<R>(std::move(sum));
      const auto n = oracle::layernorm_forward(sum, weight, bias, rows, C);
      OpCase c{"residual",
               shape,
               false,
               1,
               {output_tensor("sum", rows, C, exactly(sum), kStored<R>),
                output_tensor("out", rows, C, n.out, kBf16, kOnce), output_tensor("mean", 1, rows, n.mean),
                output_tensor("rstd", 1, rows, n.rstd), input_tensor("a", rows, C, a, kStored<R>),
                input_tensor("branch", rows, C, branch, kBf16), input_tensor("weight", 1, C, weight, kBf16),
                input_tensor("bias", 1, C, bias, kBf16)},
               {},
               [rows = rows, C = C](op::Context& context, const std::string& v, Pointers p, void*) {
                 op::Bf16* kept = kWide<R> ? h(p[8]) : nullptr;
                 R* to = static_cast<R*>(p[0]);
                 if (v == "fused_layernorm") {
                   op::residual_layernorm_forward<R>(context, to, kept, h(p[1]), f(p[2]), f(p[3]),
                                                     static_cast<const R*>(p[4]), h(p[5]), h(p[6]), h(p[7]),
                                                     rows, C);
                   return;
                 }
                 op::residual_forward<R>(context, to, static_cast<const R*>(p[4]), h(p[5]), rows * C);
                 op::layernorm_forward<R>(context, "warp_per_row", h(p[1]), f(p[2]), f(p[3]), to, kept,
                                          h(p[6]), h(p[7]), rows, C);
               }};
      if (kWide<R>) c.tensors.push_back(output_tensor("kept", rows, C, exactly(to_bf16(sum)), kBf16));
      c.variants = {"separate", "fused_layernorm"};
      c.also = {{"residual_stream", kStoredName<R>}};
      use_(c);
    }
    for (int64_t n : {1, 1000, 12'345, 262'147}) {
      const Floats a = stored<R>(normal(n, 2)), b = halves(n);
      Floats sum(a.size());
      for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
      sum = stored<R>(std::move(sum));
      for (bool in_place : {false, true}) {
        OpCase c{"residual_forward",
                 fmt::format("n={} {}{}", n, kStoredName<R>, in_place ? ", in place" : ""),
                 false,
                 1,
                 {in_place ? update_tensor("out", 1, n, a, exactly(sum), kStored<R>)
                           : output_tensor("out", 1, n, exactly(sum), kStored<R>),
                  input_tensor("b", 1, n, b, kBf16)},
                 {},
                 [n, in_place](op::Context& context, const std::string&, Pointers p, void*) {
                   op::residual_forward<R>(context, static_cast<R*>(p[0]),
                                           static_cast<const R*>(p[in_place ? 0 : 2]), h(p[1]), n);
                 }};
        if (!in_place) c.tensors.push_back(input_tensor("a", 1, n, a, kStored<R>));
        c.also = {{"residual_stream", kStoredName<R>}};
        use_(c);
      }
    }
  }

  void elementwise() {
    for (int64_t n : {1, 1000, 12'345, 262'147}) {
      const std::string shape = fmt::format("n={}", n);
      const Floats x = halves(n, 2), y = halves(n);
      OpCase forward{"gelu_forward",
                     shape,
                     false,
                     1,
                     {output_tensor("out", 1, n, oracle::gelu_forward(x), kBf16, kOnce),
                      input_tensor("inp", 1, n, x, kBf16)},
                     {},
                     [n](op::Context& c, const std::string&, Pointers p, void*) {
                       op::gelu_forward(c, h(p[0]), h(p[1]), n);
                     }};
      forward.variants = {"kernel"};
      use_(forward);
      for (bool in_place : {false, true}) {
        const Doubles want = oracle::gelu_backward(y, x);
        OpCase c{"gelu_backward",
                 shape + (in_place ? ", in place" : ""),
                 false,
                 1,
                 {in_place ? update_tensor("dinp", 1, n, y, want, kBf16, kOnce)
                           : output_tensor("dinp", 1, n, want, kBf16, kOnce),
                  input_tensor("inp", 1, n, x, kBf16)},
                 {},
                 [n, in_place](op::Context& context, const std::string&, Pointers p, void*) {
                   op::gelu_backward(context, h(p[0]), h(p[in_place ? 0 : 2]), h(p[1]), n);
                 }};
        if (!in_place) c.tensors.push_back(input_tensor("dout", 1, n, y, kBf16));
        c.variants = {"kernel"};
        use_(c);
      }
    }
  }

  void classifier() {
    struct Size {
      int64_t rows, V, Vp;
      bool large;
    };
    for (const Size& z : {Size{1, 509, 512, false}, Size{63, 509, 512, false}, Size{5, 50257, 50304, false},
                          Size{40, 1153, 1280, true}, Size{9, 130, 131, false}}) {
      Floats logits = normal(z.rows * z.Vp, 2);
      if (z.large)  // up to 80 either way: exp(160) overflows
        for (float& x : logits) x = static_cast<float>(160 * random_.uniform() - 80);
      for (int64_t r = 0; r < z.rows; ++r) {
        float* row = &logits[static_cast<size_t>(r * z.Vp)];
        if (z.large) row[r % z.V] = 80, row[(r + 1) % z.V] = -80;
        std::fill(row + z.V, row + z.Vp, 1e4f);  // may not take part
      }
      logits = to_bf16(std::move(logits));
      std::vector<int32_t> targets = below(z.rows, z.V);
      targets[0] = static_cast<int32_t>(z.V - 1);
      if (z.rows > 1) targets[1] = 0;
      const auto scale = static_cast<float>(1.0 / static_cast<double>(2 * z.rows));
      const auto want = oracle::classifier(logits, targets, z.V, z.Vp, static_cast<double>(scale));
      const std::string shape =
          fmt::format("rows={} V={} Vp={}{}", z.rows, z.V, z.Vp, z.large ? ", logits up to 80" : "");
      for (bool write : {true, false}) {
        OpTensor in_place = write ? update_tensor("dlogits", z.rows, z.Vp, logits, want.dlogits, kBf16, kOnce)
                                  : input_tensor("logits", z.rows, z.Vp, logits, kBf16);
        OpCase c{"classifier",
                 shape + (write ? "" : ", loss only"),
                 false,
                 1,
                 {std::move(in_place),
                  output_tensor("losses", 1, z.rows, want.losses, Element::f32, {.inside = 1e-5}),
                  input_tensor("targets", targets)},
                 {},
                 [z, scale, write](op::Context& context, const std::string& v, Pointers p, void*) {
                   op::classifier(context, v, h(p[0]), f(p[1]), i32(p[2]), z.rows, z.V, z.Vp, scale, write);
                 }};
        c.variants = {"two_pass", "one_read"};
        use_(c);
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
              [=](op::Context& c, const std::string&, Pointers p, void*) {
                op::mean_loss(c, d(p[0]), f(p[1]), rows, scale, add);
              }});
      }
  }

  void grad_norm() {
    for (int64_t n : {1, 31, 1000, 1025, 65'537, 1'048'577})
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
              [=](op::Context& c, const std::string&, Pointers p, void* scratch) {
                op::grad_norm(c, d(p[0]), f(p[1]), f(p[2]), n, clip, scratch);
              }});
      }
  }

  // The weights must be the masters of the same launch, rounded: bit for bit, or each to a neighbour and
  // without a bias.
  static auto weights_are_rounded(bool stochastic, size_t weights_at, size_t master_at) {
    return [=](std::span<const std::vector<std::byte>> after, const std::string& name,
               const std::string& detail, GateReport& report) {
      const Floats weights = floats_of(after[weights_at], kBf16),
                   masters = floats_of(after[master_at], Element::f32);
      if (!stochastic) {
        report.add(must_be_zero(name + " rounding", "parameters", count_different(weights, to_bf16(masters)),
                                "elements", detail));
        return;
      }
      const StochasticJudgement j = judge_stochastic(masters, weights);
      report.add(must_be_zero(name + " rounding", "parameters", j.not_a_neighbour, "elements", detail));
      report.add(make_result(name + " rounding", "parameters",
                             {{"standard deviations of bias", j.bias_sigmas, 6}}, detail));
    };
  }

  void adamw() {
    struct Size {
      int64_t Vp, C, L;
    };
    for (const Size& z : {Size{512, 64, 2}, Size{256, 33, 1}})
      for (bool stochastic : {false, true})
        for (int64_t step : {1, 2, 1000}) adamw(z.Vp, z.C, z.L, stochastic, step);
    for (bool stochastic : {false, true})
      for (int64_t n : {1000, 12'345}) {
        const Floats master = normal(n);
        OpCase c{"round_parameters",
                 fmt::format("n={}{}", n, stochastic ? ", stochastic" : ""),
                 false,
                 1,
                 {output_tensor("parameters", 1, n, exactly(master), kBf16,
                                {.count = 1, .stochastic = stochastic}),
                  input_tensor("master", 1, n, master)},
                 {},
                 [n, stochastic](op::Context& context, const std::string&, Pointers p, void*) {
                   op::round_parameters(context, stochastic, h(p[0]), f(p[1]), n, 12345);
                 }};
        c.judge = weights_are_rounded(stochastic, 0, 1);
        use_(c);
      }
  }

  void adamw(int64_t Vp, int64_t C, int64_t L, bool stochastic, int64_t step) {
    const gpt2::ModelConfig config{17, Vp, Vp, L, 1, C};
    const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
    const gpt2::AdamW settings{.learning_rate = 1e-2f, .weight_decay = 0.1f};
    const float clip_scale = 0.37f;
    const int64_t n = layout.total;
    Floats master = normal(n), g = normal(n, 0.01), m = normal(n, 0.01), v = normal(n, 1e-4);
    for (size_t i = 0; i < g.size(); ++i) {
      if (i % 5 == 0) g[i] *= 1e-6f, m[i] *= 1e-6f, v[i] *= 1e-12f;  // where eps matters
      v[i] = std::abs(v[i]);
      if (step == 1) m[i] = v[i] = 0;
    }
    const auto want = oracle::adamw(master, m, v, g, layout, settings, step, clip_scale);
    OpCase c{
        "adamw",
        fmt::format("Vp={} C={} L={} t={}{}", Vp, C, L, step, stochastic ? ", stochastic rounding" : ""),
        false,
        1,
        {output_tensor("parameters", 1, n, want.parameters, kBf16, {.count = 1, .stochastic = stochastic}),
         update_tensor("master", 1, n, master, want.parameters), update_tensor("m", 1, n, m, want.m),
         update_tensor("v", 1, n, v, want.v), input_tensor("gradients", 1, n, g),
         input_tensor("clip_scale", 1, 1, Floats{clip_scale})},
        {},
        [=](op::Context& context, const std::string& variant, Pointers q, void*) {
          op::adamw(context, variant, stochastic, h(q[0]), f(q[1]), f(q[2]), f(q[3]), f(q[4]), layout,
                    settings, step, static_cast<uint32_t>(977 * step), f(q[5]));
        }};
    c.judge = weights_are_rounded(stochastic, 0, 1);
    use_(c);
  }
};

}  // namespace
}  // namespace mixed_cases

OpSuite mixed_ops() {
  return {"mixed",
          {"bf16"},
          mixed::mixed_variants(),
          [](const std::string&, void* stream) {
            return ContextRef(std::make_shared<mixed::op::Context>(stream));
          },
          [](uint64_t seed, const std::function<void(const OpCase&)>& use) {
            mixed_cases::Cases(seed, use).all();
            mixed_cases::for_each_product(seed, use);
          },
          [](std::string_view slot, std::string_view variant) {
            return !(slot == "attention_backward" && variant == "cudnn");
          }};
}

}  // namespace gate
