// One NaN or one infinity among the inputs of what makes the loss and the norm of a step: the scalar that a run stops by may not be finite, and
// of rows no other one may be touched. Each place that a sum begins and ends at, and one in the middle.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "experiments/gate/op_cases.h"

namespace gate::op_cases {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

const char* kind_of(double value) { return std::isnan(value) ? "NaN" : "infinity"; }

// What is no finite number, and where it stands among n elements.
std::vector<std::pair<double, int64_t>> wrong_values(int64_t n) { return {{kNan, 0}, {kNan, n / 2}, {kNan, n - 1}, {kInfinity, n - 1}}; }

struct Broken {
  int64_t row, column;
  double value;
};
std::array<Broken, 4> broken_rows(int64_t rows, int64_t columns) {
  return {{{0, 0, kNan}, {3, columns / 2, kInfinity}, {rows / 2, columns / 2, kNan}, {rows - 1, columns - 1, kNan}}};
}
std::vector<int64_t> rows_of(const std::array<Broken, 4>& broken) {
  std::vector<int64_t> rows;
  for (const Broken& b : broken) rows.push_back(b.row);
  return rows;
}

}  // namespace

void OpCases::not_finite() {
  if (!every_way() || !o_.with_answers) return;
  norm_not_finite();
  norm_of_arenas_not_finite();
  mean_loss_not_finite();
  classifier_not_finite();
  if (has_slot("lm_head")) lm_head_not_finite();
}

void OpCases::use_not_finite(OpCase c) {
  c.not_finite = true;
  use_(c);
}

decltype(OpCase::judge) OpCases::broken_alone(size_t at, const OpTensor& result, std::vector<int64_t> rows) const {
  return [at, name = result.name, element = result.element, count = result.rows, columns = result.columns, rows = std::move(rows),
          space = o_.space](std::span<const Memory> after, const std::string& check, const std::string& detail, GateReport& report) {
    const std::vector<double> got = values_of<double>(answer::stored(space, view(after[at], element), Element::f64, count * columns));
    int64_t finite = 0, touched = 0;
    for (int64_t i = 0; i < count * columns; ++i) {
      const bool is_broken = std::ranges::find(rows, i / columns) != rows.end(), is_finite = std::isfinite(got[static_cast<size_t>(i)]);
      finite += is_broken && is_finite;
      touched += !is_broken && !is_finite;
    }
    report.add(must_be_zero(check + " not finite", name, finite, "elements", detail + ": finite numbers made of what is none"));
    if (rows.size() < static_cast<size_t>(count))
      report.add(must_be_zero(check + " not finite", name + " of other rows", touched, "elements", detail));
  };
}

void OpCases::norm_not_finite() {
  if (!wanted("grad_norm")) return;
  for (const int64_t n : z_.gradients) {
    if (n < 1000 || n > 100'000) continue;  // one block and several, with packs and without
    for (const auto& [value, place] : wrong_values(n)) {
      Values values = normal(0.1);
      values.spikes[0] = {place, value};
      OpCase c{.op = "grad_norm", .shape = fmt::format("n={} clip=0.5, {} at {}", n, kind_of(value), place), .tensors = {}};
      c.tensors = {one_double("norm", 0, false), output("clip_scale", 1, 1, kF32, {}), input("gradients", 1, n, kF32, values)};
      c.judge = broken_alone(0, c.tensors[0], {0});
      c.scratch_bytes = [&t = t_, n](const std::string& v) { return t.grad_norm_scratch(v, n); };
      c.launch = [&t = t_, n](OpContext& x, const std::string& v, Pointers p, void* scratch) {
        t.grad_norm(x, v, static_cast<double*>(p[0]), f(p[1]), f(p[2]), n, 0.5f, scratch);
      };
      use_not_finite(std::move(c));
    }
  }
}

void OpCases::norm_of_arenas_not_finite() {
  if (!has_slot("weight_gradients") || !wanted("grad_norm_arenas") || z_.updates.empty()) return;
  const gpt2::ModelConfig& config = z_.updates.front().config;
  const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
  const gpt2::TensorSpan& last = layout[gpt2::Tensor::fcprojw];  // in the other arena
  auto places = wrong_values(layout.total);
  places.emplace_back(kNan, last.offset + last.size - 1);
  for (const auto& [value, place] : places) {
    Values values = normal(0.1);
    values.spikes[0] = {place, value};
    const OpTensor gradients = input_of("gradients", 1, layout.total, kF32, bf16_in_blocks(made(layout.total, kF32, values), layout, true));
    for (const std::string way : {"whole", "beside_backward"}) {
      OpCase c{.op = "grad_norm_arenas",
               .shape = fmt::format("Vp={} C={} L={}, wte_gradient=bf16, grad_norm={}, {} at {}", config.padded_vocab, config.channels,
                                    config.layers, way, kind_of(value), place),
               .tensors = {}};
      c.tensors = {one_double("norm", 0, false), output("clip_scale", 1, 1, kF32, {}), gradients};
      c.judge = broken_alone(0, c.tensors[0], {0});
      c.slot = "weight_gradients";
      c.baseline = "fp32";
      c.scratch_bytes = [&t = t_, layout, way](const std::string& v) { return t.grad_norm_arenas_scratch(v, "bf16", way, layout); };
      c.launch = [&t = t_, layout, way](OpContext& x, const std::string& v, Pointers p, void* scratch) {
        t.grad_norm_arenas(x, v, "bf16", way, static_cast<double*>(p[0]), f(p[1]), f(p[2]), layout, 0.5f, scratch);
      };
      use_not_finite(std::move(c));
    }
  }
}

void OpCases::mean_loss_not_finite() {
  if (!wanted("mean_loss") || z_.losses.empty()) return;
  const int64_t rows = z_.losses.back();
  for (const auto& [value, place] : wrong_values(rows)) {
    Values values = normal(1, 5);
    values.spikes[0] = {place, value};
    OpCase c{.op = "mean_loss", .shape = fmt::format("rows={}, {} at {}", rows, kind_of(value), place), .tensors = {}};
    c.tensors = {one_double("loss", 0, false), input("losses", 1, rows, kF32, values)};
    c.judge = broken_alone(0, c.tensors[0], {0});
    c.launch = [&t = t_, rows](OpContext& x, const std::string&, Pointers p, void*) {
      t.mean_loss(x, static_cast<double*>(p[0]), f(p[1]), rows, 1.0 / static_cast<double>(rows), false);
    };
    use_not_finite(std::move(c));
  }
}

// One logit of each of four rows, the target's and others.
void OpCases::classifier_not_finite() {
  if (!wanted("classifier")) return;
  for (const auto& z : z_.classifiers) {
    if (z.hurt || z.rows < 9 || z.V > 2000) continue;
    const auto broken = broken_rows(z.rows, z.V);
    std::vector<int32_t> words = tokens_of(TokenKind::repeated, z.rows, z.V, seed());
    Values values = normal(2);
    for (size_t i = 0; i < broken.size(); ++i) {
      values.spikes[i] = {broken[i].row * z.Vp + broken[i].column, broken[i].value};
      words[static_cast<size_t>(broken[i].row)] = static_cast<int32_t>(i == 2 ? broken[i].column : 1);
    }
    OpCase c{.op = "classifier", .shape = fmt::format("rows={} V={} Vp={}, NaN and infinity in 4 rows", z.rows, z.V, z.Vp), .tensors = {}};
    c.tensors = {update("dlogits", z.rows, z.Vp, storage_.activation, made(z.rows * z.Vp, storage_.activation, values), {}),
                 output("losses", z.rows, 1, kF32, {}), token_input("targets", words)};
    c.judge = broken_alone(1, c.tensors[1], rows_of(broken));
    c.launch = [&t = t_, z](OpContext& x, const std::string& v, Pointers p, void*) {
      t.classifier(x, v, p[0], f(p[1]), ints(p[2]), z.rows, z.V, z.Vp, 0.5f, true);
    };
    c.baseline = "two_pass";
    use_not_finite(std::move(c));
  }
}

// One value of x in each of four rows: their losses and all that is handed down from them.
void OpCases::lm_head_not_finite() {
  if (!wanted("lm_head")) return;
  for (const auto& z : z_.heads) {
    if (z.hurt || z.rows < 9 || z.V > 600) continue;
    const HeadShape s{z.rows, z.C, z.V, z.Vp};
    const auto broken = broken_rows(z.rows, z.C);
    Values x_values = normal();
    for (size_t i = 0; i < broken.size(); ++i) x_values.spikes[i] = {broken[i].row * z.C + broken[i].column, broken[i].value};
    OpCase c{.op = "lm_head",
             .shape = fmt::format("rows={} C={} V={} Vp={}, NaN and infinity in 4 rows", z.rows, z.C, z.V, z.Vp),
             .matmul = true,
             .terms = std::max(z.rows, z.Vp),
             .tensors = {}};
    c.tensors = {output("losses", z.rows, 1, kF32, {}),
                 update("dx", z.rows, z.C, storage_.activation, made(z.rows * z.C, storage_.activation, x_values), {}),
                 output("dweight", z.Vp, z.C, kF32, {}), input("weight", z.Vp, z.C, storage_.weight, normal(0.02)),
                 token_input("targets", tokens_of(TokenKind::repeated, z.rows, z.V, seed()))};
    c.judge = [losses = broken_alone(0, c.tensors[0], rows_of(broken)), dx = broken_alone(1, c.tensors[1], rows_of(broken))](
                  std::span<const Memory> after, const std::string& check, const std::string& detail, GateReport& report) {
      losses(after, check, detail, report);
      dx(after, check, detail, report);
    };
    c.scratch_bytes = [&t = t_, s](const std::string&) { return t.lm_head_scratch(s); };
    c.launch = [&t = t_, s](OpContext& context, const std::string& v, Pointers p, void* scratch) {
      t.lm_head(context, v, f(p[0]), p[1], f(p[2]), p[3], ints(p[4]), s, 0.5f, false, scratch);
    };
    c.baseline = "logits";
    use_not_finite(std::move(c));
  }
}

}  // namespace gate::op_cases
