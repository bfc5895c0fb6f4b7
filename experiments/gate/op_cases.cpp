// The one list of op cases: each op once, for both trainers. What differs is storage, which the trainer says,
// and the ops that only the mixed trainer has (what is fused into a product or into the residual sum).
#include "experiments/gate/op_cases.h"

namespace gate::op_cases {

void OpCases::all() {
  for (const Element stream : storage_.streams) {
    embedding(stream);
    layernorm(stream);
    if (fused_) residual_layernorm(stream);
    residual_sum(stream);
  }
  linear();
  if (has_slot("lm_head")) lm_head();
  attention();
  gelu();
  classifier();
  mean_loss();
  grad_norm();
  grad_norm_arenas();
  adamw();
  if (fused_) round_parameters();
  not_finite();
}

void OpCases::gelu() {
  for (const int64_t n : z_.elements) {
    Values values = normal(2);
    if (n > 100) values.spikes = {Values::Spike{1, 1e-40}, {2, -60}, {3, 60}, {4, -1e-39}};
    const OpTensor inp = input("inp", 1, n, storage_.activation, values);
    const std::string shape = fmt::format("n={}", n);
    const auto gelu_case = [&](const char* op, const std::string& text) {
      OpCase c{.op = op, .shape = text, .tensors = {}};
      if (has_slot(op)) {
        c.baseline = "kernel";
        c.other_forms = {"matmul_epilogue", "hopper"};  // products: linear_gelu_forward, linear_gelu_backward_input
      }
      return c;
    };
    if (wanted("gelu_forward")) {
      OpCase c = gelu_case("gelu_forward", shape);
      c.tensors = {output("out", 1, n, storage_.activation, answer_of([&] { return answer::gelu_forward(o_.space, view_of(inp), n); }),
                          once(storage_.activation)),
                   inp};
      c.launch = [&t = t_, n](OpContext& x, const std::string&, Pointers p, void*) { t.gelu_forward(x, p[0], p[1], n); };
      use_(c);
    }
    if (!wanted("gelu_backward")) continue;
    const OpTensor dout = input("dout", 1, n, storage_.activation, normal());
    const Memory want = answer_of([&] { return answer::gelu_backward(o_.space, view_of(dout), view_of(inp), n); });
    for (const bool in_place : ways(n)) {
      OpCase c = gelu_case("gelu_backward", shape + (in_place ? ", in place" : ""));
      c.tensors = {in_place ? update("dinp", 1, n, storage_.activation, dout.content, want, once(storage_.activation))
                            : output("dinp", 1, n, storage_.activation, want, once(storage_.activation)),
                   inp};
      if (!in_place) c.tensors.push_back(dout);
      c.launch = [&t = t_, n, in_place](OpContext& x, const std::string&, Pointers p, void*) {
        t.gelu_backward(x, p[0], p[in_place ? 0 : 2], p[1], n);
      };
      use_(c);
    }
  }
}

void OpCases::classifier() {
  if (!wanted("classifier")) return;
  for (const auto& z : z_.classifiers) {
    const Memory logits = made(z.rows * z.Vp, storage_.activation, Logits{seed(), z.V, z.Vp, z.hurt});
    std::vector<int32_t> words = tokens_of(TokenKind::repeated, z.rows, z.V, seed());
    if (z.rows > 1) {
      words[0] = static_cast<int32_t>(z.V - 1);
      words[1] = 0;
    }
    if (z.hurt && z.rows > 6) words[6] = static_cast<int32_t>(6 * 7919 % z.V);  // the target is the one logit of 80
    const OpTensor targets = token_input("targets", words);
    const auto scale = static_cast<float>(1.0 / static_cast<double>(2 * z.rows));
    answer::Classified want;
    if (o_.with_answers)
      want = answer::classifier(o_.space, view(logits, storage_.activation), targets.content.as<int32_t>(), z.rows, z.V, z.Vp,
                                static_cast<double>(scale));
    const std::string shape = fmt::format("rows={} V={} Vp={}{}", z.rows, z.V, z.Vp, z.hurt ? ", logits all low, of 80, equal, wide" : "");
    for (const bool write : every_way() ? std::vector<bool>{true, false} : std::vector<bool>{true}) {
      OpCase c{.op = "classifier", .shape = shape + (write ? "" : ", loss only"), .tensors = {}};
      c.floor_factor = z.hurt ? 20 : 1;
      c.tensors = {write ? update("dlogits", z.rows, z.Vp, storage_.activation, logits, want.dlogits, once(storage_.activation))
                         : input_of("logits", z.rows, z.Vp, storage_.activation, logits),
                   output("losses", 1, z.rows, kF32, want.losses, out_of_product({.inside = 1e-5})), targets};
      c.launch = [&t = t_, z, scale, write](OpContext& x, const std::string& v, Pointers p, void*) {
        t.classifier(x, v, p[0], f(p[1]), ints(p[2]), z.rows, z.V, z.Vp, scale, write);
      };
      c.baseline = "two_pass";
      // Rows of equal logits hold one number, and what fp32 loses of it decides for all of them.
      if (z.hurt) c.may_lean = always;
      use_(c);
    }
  }
}

void OpCases::mean_loss() {
  if (!wanted("mean_loss")) return;
  for (const int64_t rows : z_.losses)
    for (const bool adds : ways(rows)) {
      Values values = normal(1, 5);
      values.spikes[0] = {rows - 1, 5 * static_cast<double>(rows)};  // the last one matters
      const OpTensor losses = input("losses", 1, rows, kF32, values);
      const double scale = 1.0 / static_cast<double>(3 * rows);
      OpCase c{.op = "mean_loss", .shape = fmt::format("rows={}{}", rows, adds_text(adds)), .tensors = {}};
      c.tensors = {one_double("loss", answer::total(o_.space, view_of(losses), rows) * scale, adds), losses};
      c.launch = [&t = t_, rows, scale, adds](OpContext& x, const std::string&, Pointers p, void*) {
        t.mean_loss(x, static_cast<double*>(p[0]), f(p[1]), rows, scale, adds);
      };
      use_(c);
    }
}

void OpCases::grad_norm() {
  if (!wanted("grad_norm")) return;
  for (const int64_t n : z_.gradients) grad_norm(n, {});
  for (const auto& z : z_.updates)
    if (const Stretches s = stretches(z)) grad_norm(s.whole, s);
}

void OpCases::grad_norm(int64_t gradient_count, const Stretches& s) {
  const int64_t n = s ? s.count() : gradient_count;  // of those that are not zero
  std::vector<std::pair<const char*, Values>> kinds;
  Values ends = normal(0.1);
  const double matters = 0.05 * std::sqrt(static_cast<double>(n));
  ends.spikes = {Values::Spike{0, matters}, {n - 1, matters}, {n / 2, -matters}, {n * 3 / 4, matters}};
  kinds.emplace_back("", ends);
  if (every_way() || n % 2 == 1) {
    // Squares of these are beyond fp32, either way.
    Values huge = normal(1e25), tiny = normal(1e-30);
    huge.spikes[0] = {n - 1, 1e30};
    kinds.emplace_back(", huge", huge);
    kinds.emplace_back(", tiny", tiny);
  }
  for (const auto& [text, values] : kinds) {
    const OpTensor gradients = input("gradients", 1, n, kF32, values);
    const double norm = answer::norm(o_.space, view_of(gradients), n);
    for (const float clip : every_way() && *text == 0 ? std::vector<float>{0.0f, -1.0f, 0.5f, 1e9f} : std::vector<float>{0.5f}) {
      // A factor below what fp32 can tell from zero has no relative error to judge.
      const double scale = clip > 0 ? std::min(1.0, static_cast<double>(clip) / norm) : 1;
      OpCase c{.op = "grad_norm", .shape = fmt::format("n={} clip={}{}", n, clip, text), .tensors = {}};
      c.tensors = {one_double("norm", norm, false), output("clip_scale", 1, 1, kF32, memory_of(o_.space, std::vector<double>{scale})),
                   gradients};
      c.scratch_bytes = [&t = t_, gradient_count](const std::string& v) { return t.grad_norm_scratch(v, gradient_count); };
      c.launch = [&t = t_, gradient_count, clip = clip](OpContext& x, const std::string& v, Pointers p, void* scratch) {
        t.grad_norm(x, v, static_cast<double*>(p[0]), f(p[1]), f(p[2]), gradient_count, clip, scratch);
      };
      stretch(c, s);
      use_(c);
    }
  }
}

// The weights must be the masters of the same launch, rounded: bit for bit, or each to a neighbour and
// without a bias.
decltype(OpCase::judge) OpCases::weights_are_rounded(bool stochastic, size_t weights_at, size_t masters_at) {
  return [=](std::span<const Memory> after, const std::string& name, const std::string& detail, GateReport& report) {
    if (!stochastic) {
      report.add(
          must_be_zero(name + " rounding", "parameters", count_not_rounded(after[masters_at], after[weights_at]), "elements", detail));
      return;
    }
    const StochasticJudgement j = judge_stochastic(after[masters_at], after[weights_at]);
    report.add(must_be_zero(name + " rounding", "parameters", j.not_a_neighbour, "elements", detail));
    report.add(make_result(name + " rounding", "parameters",
                           {{"standard deviations of bias", j.bias_sigmas, 6},
                            {"eight together, of independent squares", j.together.excess(), j.together.limit(kWeightsTogether)}},
                           detail));
  };
}

void OpCases::adamw() {
  if (!wanted("adamw") && !wanted("adamw_masters") && !wanted("adamw_arenas") && !wanted("adamw_moments")) return;
  for (const auto& z : z_.updates)
    for (const int64_t step : z.steps)
      for (const bool stochastic : fused_&& every_way() ? std::vector<bool>{false, true} : std::vector<bool>{fused_ && step > 100})
        adamw(z, step, stochastic);
}

OpCase OpCases::update_case(const OpSizes::Update& z, int64_t step, bool stochastic, const UpdateInputs& inputs) {
  const gpt2::ModelConfig& config = z.config;
  const Stretches s = stretches(z);
  const gpt2::TensorLayout layout = s ? cut(gpt2::tensor_layout(config), s) : gpt2::tensor_layout(config);
  const float clip_scale = 0.37f;
  const int64_t n = layout.total;
  Values small = normal(0.01), moment = normal(step == 1 ? 0 : 0.01), square = normal(step == 1 ? 0 : 1e-4);
  small.every_fifth = moment.every_fifth = 1e-6;  // where eps matters
  square.every_fifth = 1e-12;
  square.positive = true;
  const Memory drawn = made(n, kF32, small);
  const OpTensor gradients =
                     input_of("gradients", 1, n, kF32, inputs.bf16_gradients ? bf16_in_blocks(drawn, layout, inputs.bf16_wte) : drawn),
                 clip = input_of("clip_scale", 1, 1, kF32, memory_of(o_.space, std::vector<float>{clip_scale}));
  const auto moments = [&](const Values& values, int bits) {
    const Memory drawn_moments = made(n, kF32, values);
    return bits < kFp32Bits ? content_of(answer::of_bits(o_.space, view(drawn_moments, kF32), bits, n), kF32) : drawn_moments;
  };
  const Memory p = made(n, kF32, normal()), m = moments(moment, inputs.moments.m), v = moments(square, inputs.moments.v);
  answer::Updated want;
  if (o_.with_answers)
    want = answer::adamw(o_.space, view(p, kF32), view(m, kF32), view(v, kF32), view_of(gradients), layout, update_settings(step), step,
                         static_cast<double>(clip_scale));
  OpCase c{.op = "adamw",
           .shape = fmt::format("Vp={} C={} L={} t={}{}", config.padded_vocab, config.channels, config.layers, step,
                                stochastic ? ", stochastic rounding" : ""),
           .tensors = {}};
  c.tensors = {update(fused_ ? "master" : "parameters", 1, n, kF32, p, want.parameters), update("m", 1, n, kF32, m, want.m),
               update("v", 1, n, kF32, v, want.v), gradients, clip};
  if (fused_) {
    c.tensors.push_back(output("parameters", 1, n, storage_.weight, want.parameters, {.count = 1, .stochastic = stochastic}));
    c.judge = weights_are_rounded(stochastic, 5, 0);
    c.may_lean = always;  // asked bit by bit
  }
  stretch(c, s);
  return c;
}

void OpCases::adamw(const OpSizes::Update& z, int64_t step, bool stochastic) {
  // Long vectors are left to adamw_moments, whose moments=fp32 is the same launch.
  if (has_slot("weight_gradients") && wanted("adamw_arenas") && z.each == 0) adamw_arenas(z, step, stochastic);
  if (has_slot("moments") && wanted("adamw_moments")) adamw_moments(z, step, stochastic);
  if (!wanted("adamw") && !wanted("adamw_masters")) return;
  const gpt2::TensorLayout layout = gpt2::tensor_layout(z.config);
  const int64_t n = layout.total;
  OpCase c = update_case(z, step, stochastic, {});
  c.launch = [&t = t_, layout, step, stochastic, rounds = fused_](OpContext& x, const std::string& variant, Pointers q, void*) {
    t.adamw(x, variant, stochastic, {rounds ? q[5] : nullptr, f(q[0]), f(q[1]), f(q[2]), f(q[3]), f(q[4])}, layout, update_settings(step),
            step);
  };
  if (wanted("adamw")) use_(c);
  if (!has_slot("masters") || !wanted("adamw_masters")) return;
  c.op = "adamw_masters";
  c.slot = "masters";
  c.baseline = "fp32";
  c.scratch_bytes = [&t = t_, n](const std::string& masters) { return t.adamw_masters_scratch(masters, n); };
  c.launch = [&t = t_, layout, step, stochastic](OpContext& x, const std::string& masters, Pointers q, void* scratch) {
    t.adamw_masters(x, masters, stochastic, {q[5], f(q[0]), f(q[1]), f(q[2]), f(q[3]), f(q[4])}, layout, update_settings(step), step,
                    scratch);
  };
  use_(c);
}

void OpCases::round_parameters() {
  if (!wanted("round_parameters")) return;
  if (every_way())  // a start's, no step's
    for (const int64_t n : {1000, 12'345}) round_parameters(n, {});
  for (const auto& z : z_.updates)
    if (const Stretches s = stretches(z)) round_parameters(s.whole, s);
}

void OpCases::round_parameters(int64_t parameter_count, const Stretches& s) {
  const int64_t n = s ? s.count() : parameter_count;
  for (const bool stochastic : {false, true}) {
    const OpTensor masters = input("master", 1, n, kF32, normal());
    OpCase c{.op = "round_parameters", .shape = fmt::format("n={}{}", n, stochastic ? ", stochastic" : ""), .tensors = {}};
    c.tensors = {output("parameters", 1, n, storage_.weight, answer::stored(o_.space, view_of(masters), kF32, n),
                        {.count = 1, .stochastic = stochastic}),
                 masters};
    c.launch = [&t = t_, parameter_count, stochastic](OpContext& x, const std::string&, Pointers p, void*) {
      t.round_parameters(x, stochastic, p[0], f(p[1]), parameter_count);
    };
    c.judge = weights_are_rounded(stochastic, 0, 1);
    c.may_lean = always;  // asked bit by bit
    stretch(c, s);
    use_(c);
  }
}

}  // namespace gate::op_cases

namespace gate {

void for_each_case(const OpTrainer& trainer, const OpSizes& sizes, const CaseOptions& options, const UseCase& use) {
  op_cases::OpCases(trainer, sizes, options, use).all();
}

std::vector<std::string> op_names(const OpTrainer& trainer, OpSizes::Ways ways) {
  const gpt2::ModelConfig smallest{8, 61, 64, 1, 1, 8};
  OpSizes sizes = model_sizes(smallest, 1, 8);
  sizes.ways = ways;
  std::vector<std::string> names;
  for_each_case(trainer, sizes, {.space = Space::host, .with_answers = false}, [&](const OpCase& c) {
    if (std::find(names.begin(), names.end(), c.op) == names.end()) names.push_back(c.op);
  });
  return names;
}

}  // namespace gate
