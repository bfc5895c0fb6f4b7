// Ops that are matrix products, and attention.
#include <tuple>

#include "experiments/gate/op_cases.h"
#include "experiments/gate/random.h"

namespace gate::op_cases {
namespace {

// Which products of a step have which neighbour; a shape without a place stands for all.
bool at(const OpSizes::Product& z, std::initializer_list<std::string_view> places) {
  return z.place.empty() || std::find(places.begin(), places.end(), z.place) != places.end();
}

// Where GELU's input is rounded before GELU, it lies on few numbers, and above 2.8 GELU of such a number is rounded to this number itself: up
// by as much as half of a distance. gelu_forward and gelu_backward ask this kernel without a product before it, and linear_forward this
// product. The library's GELU is an approximation of its own.
bool gelu_is_another_ops(const std::string&, const std::string& variant) { return variant == "kernel" || variant == "matmul_epilogue"; }

// One row times a weight with a row for each element of it.
std::vector<double> times_weight(const std::vector<double>& row, const std::vector<double>& weights) {
  std::vector<double> out(row.size());
  for (size_t from = 0; from < row.size(); ++from)
    for (size_t c = 0; c < row.size(); ++c) out[c] += row[from] * weights[from * row.size() + c];
  return out;
}

}  // namespace

void OpCases::linear() {
  const bool forward =
      wanted("linear_forward") || wanted("linear_gelu_forward") || wanted("linear_gelu_slope_forward") || wanted("residual");
  const bool backward = wanted("linear_backward") || wanted("linear_backward_weight") || wanted("linear_gelu_backward_input") ||
                        wanted("linear_gelu_slope_backward");
  if (!forward && !backward) return;
  for (const auto& z : z_.products) {
    const LinearShape s{z.rows, z.in, z.out};
    const std::string shape =
        fmt::format("{}{}rows={} {}->{}{}", z.place, z.place.empty() ? "" : " ", z.rows, z.in, z.out, z.bias ? "" : ", no bias");
    const OpTensor inp = input("inp", z.rows, z.in, storage_.activation, normal()),
                   weight = input("weight", z.out, z.in, storage_.weight, normal(0.05));
    if (forward) linear_forward(z, s, shape, inp, weight);
    if (backward) linear_backward(z, s, shape, inp, weight);
  }
}

void OpCases::linear_forward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const OpTensor& inp,
                             const OpTensor& weight) {
  const OpTensor bias = input("bias", 1, z.out, storage_.weight, normal());
  const Memory product = answer_of([&] {
    return answer::linear_forward(o_.space, view_of(inp), view_of(weight), z.bias ? view_of(bias) : View{}, z.rows, z.in, z.out);
  });
  // With a bias, a variant may round the product before the bias is added.
  const Rounding sum = out_of_product({.count = 1, .inside = z.bias ? kBf16Unit / 2 : 0, .terms = static_cast<double>(z.in)});
  const auto product_case = [&](const char* op, std::vector<OpTensor> results) {
    OpCase c{.op = op, .shape = shape, .matmul = true, .terms = z.in, .tensors = std::move(results), .flops = flops(s)};
    c.tensors.push_back(inp);
    c.tensors.push_back(weight);
    if (z.bias) c.tensors.push_back(bias);
    return c;
  };
  if (wanted("linear_forward")) {
    OpCase c = product_case("linear_forward", {output("out", z.rows, z.out, storage_.activation, product, sum)});
    c.launch = [&t = t_, s, bias = z.bias](OpContext& x, const std::string& v, Pointers p, void*) {
      t.linear_forward(x, v, p[0], p[1], p[2], bias ? p[3] : nullptr, s);
    };
    c.baseline = "bias_kernel";
    use_(c);
  }
  if (!fused_ || !z.bias) return;
  if (wanted("linear_gelu_forward") && at(z, {"mlp_up"})) {
    const Memory after = answer_of([&] { return answer::gelu_forward(o_.space, view(product), z.rows * z.out); });
    OpCase c = product_case("linear_gelu_forward", {output("after", z.rows, z.out, storage_.activation, after, sum),
                                                    output("before", z.rows, z.out, storage_.activation, product, sum)});
    c.launch = [&t = t_, s](OpContext& x, const std::string& v, Pointers p, void*) {
      t.linear_gelu_forward(x, v, p[0], p[1], p[2], p[3], p[4], s);
    };
    c.slot = "gelu_forward";
    c.baseline = "kernel";
    c.other_forms = {"hopper"};  // linear_gelu_slope_forward
    c.may_lean = gelu_is_another_ops;
    use_(c);
  }
  if (wanted("linear_gelu_slope_forward") && at(z, {"mlp_up"})) linear_gelu_slope_forward(z, s, shape, product, sum, {inp, weight, bias});
  if (!wanted("residual") || !at(z, {"attproj", "mlp_down"})) return;
  for (const Element stream : storage_.streams) {
    if (stream == kSplit) continue;  // no product adds to it
    const OpTensor addend = input("addend", z.rows, z.out, stream, normal());
    const Memory want = answer_of([&] { return answer::sum(o_.space, view(product), view_of(addend), z.rows * z.out); });
    // "separate" rounds the product, and where the bias is no epilogue the product with its bias too,
    // before the sum.
    OpCase c = product_case(
        "residual", {output("out", z.rows, z.out, stream, want, {.count = stream == kBf16 ? 1.0 : 0.0, .inside = kBf16Unit}), addend});
    c.shape = fmt::format("product and sum {}{}", shape, stream_text(stream));
    c.scratch_bytes = [s](const std::string& v) { return v == "separate" ? s.rows * s.out * 2 : int64_t{0}; };
    c.launch = [&t = t_, s, stream](OpContext& x, const std::string& v, Pointers p, void* scratch) {
      t.linear_residual(x, v, stream, p[0], p[1], p[2], p[3], p[4], s, scratch);
    };
    c.baseline = "separate";
    c.other_forms = {"fused_layernorm"};
    also(c, "residual_stream", name_of(stream));
    use_(c);
  }
}

void OpCases::linear_backward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const OpTensor& inp,
                              const OpTensor& weight) {
  const OpTensor dout = input("dout", z.rows, z.out, storage_.activation, normal());
  const Memory dx = answer_of([&] { return answer::linear_backward_input(o_.space, view_of(dout), view_of(weight), z.rows, z.in, z.out); });
  const bool alone = has_slot(z.bias ? "weight_gradients" : "wte_gradient") && wanted("linear_backward_weight");
  Memory dweight, dbias;
  if (wanted("linear_backward") || alone) {
    dweight = answer_of([&] { return answer::linear_backward_weight(o_.space, view_of(dout), view_of(inp), z.rows, z.in, z.out); });
    dbias = answer_of([&] { return answer::column_sums(o_.space, view_of(dout), z.rows, z.out); });
  }
  if (alone) linear_backward_weight(z, s, shape, dweight, z.bias ? &dbias : nullptr, dout, inp);
  if (wanted("linear_backward")) {
    const Rounding sums = out_of_product(fp32_of_product(z.rows));
    for (const bool adds : ways(z.rows)) {
      OpCase c{.op = "linear_backward", .shape = shape + adds_text(adds), .matmul = true, .terms = std::max(z.rows, z.out), .tensors = {}};
      c.tensors = {output("dinp", z.rows, z.in, storage_.activation, dx, out_of_product({.count = 1, .terms = static_cast<double>(z.out)})),
                   gradient("dweight", z.out, z.in, kF32, dweight, adds, sums), dout, inp, weight};
      if (z.bias) c.tensors.push_back(gradient("dbias", 1, z.out, kF32, dbias, adds, sums));
      c.flops = 2 * flops(s);
      c.scratch_bytes = [&t = t_, s](const std::string& v) { return t.linear_backward_scratch(v, s); };
      c.launch = [&t = t_, s, adds, bias = z.bias](OpContext& x, const std::string& v, Pointers p, void* scratch) {
        t.linear_backward(x, v, p[0], f(p[1]), bias ? f(p[5]) : nullptr, p[2], p[3], p[4], s, adds, scratch);
      };
      if (has_slot("linear_backward")) {
        c.baseline = "as_stored";
        if (!z.bias) c.other_forms = {"transposed_dout"};  // lm_head's gradient is as large as the logits: the trainer leaves it as it is
      }
      if (has_slot("bias_gradient")) {
        c.slot = "bias_gradient";
        c.baseline = "column_sums";
        // Work of layernorm_backward, and attention_bias_gradient.
        c.other_forms = {"layernorm_fold", "attention_fold", "softmax_identities"};
      }
      also_zero_grad(c, adds);
      use_(c);
    }
  }
  if (!fused_ || !at(z, {"mlp_down"})) return;
  if (wanted("linear_gelu_slope_backward")) linear_gelu_slope_backward(z, s, shape, dx, dout, weight);
  if (!wanted("linear_gelu_backward_input")) return;
  // The same product with the gradient of GELU on its way out; "kernel" rounds the product first.
  const OpTensor before = input("before", z.rows, z.in, storage_.activation, normal(2));
  OpCase c{.op = "linear_gelu_backward_input", .shape = shape, .matmul = true, .terms = z.out, .tensors = {}};
  c.tensors = {output("dbefore", z.rows, z.in, storage_.activation,
                      answer_of([&] { return answer::gelu_backward(o_.space, view(dx), view_of(before), z.rows * z.in); }),
                      {.count = 1, .inside = kBf16Unit / 2}),
               dout, weight, before};
  c.launch = [&t = t_, s](OpContext& x, const std::string& v, Pointers p, void*) {
    t.linear_gelu_backward_input(x, v, p[0], p[1], p[2], p[3], s);
  };
  c.flops = flops(s);
  c.slot = "gelu_backward";
  c.baseline = "kernel";
  c.other_forms = {"hopper"};  // linear_gelu_slope_backward
  c.may_lean = gelu_is_another_ops;
  use_(c);
}

// The product of mlp_up with GELU and GELU's gradient, which "kernel" makes as the gradient of ones.
void OpCases::linear_gelu_slope_forward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const Memory& product,
                                        const Rounding& sum, const std::array<OpTensor, 3>& operands) {
  const int64_t n = z.rows * z.out;
  const OpTensor ones = input("ones", z.rows, z.out, storage_.activation, normal(0, 1));
  const Memory after = answer_of([&] { return answer::gelu_forward(o_.space, view(product), n); }),
               slope = answer_of([&] { return answer::gelu_backward(o_.space, view_of(ones), view(product), n); });
  OpCase c{.op = "linear_gelu_slope_forward", .shape = shape, .matmul = true, .terms = z.in, .tensors = {}, .flops = flops(s)};
  c.tensors = {output("after", z.rows, z.out, storage_.activation, after, sum),
               output("slope", z.rows, z.out, storage_.activation, slope, sum),
               operands[0],
               operands[1],
               operands[2],
               ones};
  c.scratch_bytes = [&t = t_, s](const std::string&) { return t.linear_gelu_slope_scratch(s); };
  c.launch = [&t = t_, s](OpContext& x, const std::string& v, Pointers p, void* scratch) {
    t.linear_gelu_slope_forward(x, v, p[0], p[1], p[2], p[3], p[4], p[5], s, scratch);
  };
  c.slot = "gelu_forward";
  c.baseline = "kernel";
  c.other_forms = {"matmul_epilogue"};  // linear_gelu_forward
  c.may_lean = gelu_is_another_ops;
  c.judge = no_input_leans(product, after, slope);
  use_(c);
}

// GELU and its gradient lean for no eighth of their input, where it comes in fp32. For "kernel" it does not.
decltype(OpCase::judge) OpCases::no_input_leans(const Memory& product, const Memory& after, const Memory& slope) const {
  return [=, space = o_.space, element = storage_.activation](std::span<const Memory> results, const std::string& name,
                                                              const std::string& detail, GateReport& report) {
    if (gelu_is_another_ops("", name.substr(name.find('/') + 1))) return;
    for (const auto& [at, tensor, want] : {std::tuple{size_t{0}, "after", &after}, {size_t{1}, "slope", &slope}}) {
      const WorstLean worst =
          worst_lean_along(space, view(results[at], element), view(*want), view(product), product.bytes() / 8, kBf16Bits);
      report.add(make_result(name + " lean", fmt::format("{}, by eighths of the input", tensor),
                             {{"worst eighth, of its limit", worst.of_limit, 1, worst.eighth}}, detail));
    }
  };
}

// The product of mlp_down's input gradient with GELU's gradient, and the sums of its columns. "hopper" sums before it rounds.
void OpCases::linear_gelu_slope_backward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const Memory& dx,
                                         const OpTensor& dout, const OpTensor& weight) {
  const int64_t n = z.rows * z.in;
  const OpTensor before = input("before", z.rows, z.in, storage_.activation, normal(2)),
                 ones = input("ones", z.rows, z.in, storage_.activation, normal(0, 1));
  const Memory want = answer_of([&] { return answer::gelu_backward(o_.space, view(dx), view_of(before), n); }),
               sums = answer_of([&] { return answer::column_sums(o_.space, view(want), z.rows, z.in); });
  for (const bool adds : ways(z.rows)) {
    OpCase c{.op = "linear_gelu_slope_backward", .shape = shape + adds_text(adds), .matmul = true, .terms = z.out, .tensors = {}};
    const Rounding twice{.count = 1, .inside = kBf16Unit / 2};  // the product, or GELU's gradient, is rounded before they are multiplied
    c.tensors = {output("dbefore", z.rows, z.in, storage_.activation, want, twice),
                 gradient("dbias", 1, z.in, kF32, sums, adds, twice),
                 dout,
                 weight,
                 before,
                 ones};
    c.scratch_bytes = [&t = t_, s](const std::string&) { return t.linear_gelu_slope_scratch(s); };
    c.launch = [&t = t_, s, adds](OpContext& x, const std::string& v, Pointers p, void* scratch) {
      t.linear_gelu_slope_backward(x, v, p[0], f(p[1]), p[2], p[3], p[4], p[5], s, adds, scratch);
    };
    c.flops = flops(s);
    c.slot = "gelu_backward";
    c.baseline = "kernel";
    c.other_forms = {"matmul_epilogue"};  // linear_gelu_backward_input
    also_zero_grad(c, adds);
    use_(c);
  }
}

// A row of dx is rounded twice, as a product and with its factor. The target's element of dlogits makes most of it: rounded to bf16 it is
// off by up to a unit, and the row with it, unless the factor takes that back.
decltype(OpCase::judge) OpCases::rows_are_scaled_right(size_t at, int64_t rows, int64_t columns, const Memory& want) const {
  return [=, space = o_.space, element = storage_.activation](std::span<const Memory> after, const std::string& name,
                                                              const std::string& detail, GateReport& report) {
    RowScale limit{.deviation = std::sqrt(2.0) * kBf16Deviation};
    if (name.ends_with("/logits")) limit.shared += kBf16Unit;
    report.add(make_result(
        name + " scale", "dx",
        {{"worst row, of its limit", worst_row_scale(space, view(after[at], element), view(want), rows, columns, limit), 1}}, detail));
  };
}

// The head of a step from x to losses and gradients. Where it hurts, logits are not near zero, and what rounds them to bf16 loses more than
// can be asked for: only what keeps them in fp32 is judged there, by fp32's own limits.
void OpCases::lm_head() {
  if (!wanted("lm_head")) return;
  for (const auto& z : z_.heads) {
    const HeadShape s{z.rows, z.C, z.V, z.Vp};
    // The token whose logit is 4 times channel 1 of x. Of a real vocabulary the last one, which stands in the last tile of a product, alone in its
    // row: what looks at as many tiles as a block has threads does not see it.
    const int64_t special = z.V > 2000 ? z.V - 1 : z.V / 2;
    std::vector<int32_t> words = tokens_of(TokenKind::repeated, z.rows, z.V, seed());
    // Logits of a deviation of 0.55 at most, however many channels: a logit of 4 that makes most of a row of dweight is rounded to bf16 by up to
    // 1.6e-2, which is all that such a row is allowed.
    const double w_deviation = 0.02 * std::min(1.0, std::sqrt(768 / static_cast<double>(z.C)));
    Values x_values = normal(), w_values = normal(w_deviation, z.hurt ? -0.02 : 0);
    w_values.hidden_from = z.V * z.C;  // the padded rows, whose logits would be the largest of half of the rows
    w_values.hidden = 100;
    if (z.hurt) {
      x_values.columns = z.C;
      // Logits all near -120; all equal; all near -180; of 64 in one channel alone: the target at 256 is exact, and so is 256 log2(e), by which
      // exponentials may be taken, so that the loss is 0 to the last bit.
      x_values.rows = {Values::Row{1, 0.1, 8}, {2, 0, 0}, {4, 0.1, 12}, {0, 0, 0}};
      // One logit far above the others: of 60 and (in a late row) of 300, with another target, so exp(loss) is beyond what the product
      // grants, or beyond bf16 and fp32; of 300 with this target, and of 256; of 30, which it grants; of -110 where the target's is -180, so that no
      // logit may be taken from 0.
      x_values.spikes = {
          Values::Spike{3 * z.C + 1, 15}, {(z.rows - 2) * z.C + 1, 75}, {5 * z.C + 1, 75}, {6 * z.C + 1, 7.5}, {4 * z.C + 1, 18}, {1, 64}};
      w_values.spikes[0] = {special * z.C + 1, 4};
      for (const int64_t row : {int64_t{3}, int64_t{4}, z.rows - 2, int64_t{6}}) words[static_cast<size_t>(row)] = 0;
      words[5] = words[0] = static_cast<int32_t>(special);
    }
    const Memory x = made(z.rows * z.C, storage_.activation, x_values);
    const OpTensor weight = input("weight", z.Vp, z.C, storage_.weight, w_values), targets = token_input("targets", words);
    const float scale = 0.5f;  // what dweight is added to has deviation 1
    answer::Classified classified;
    Memory dx, dweight;
    if (o_.with_answers) {
      const Memory x64 = answer::stored(o_.space, view(x, storage_.activation), storage_.activation, z.rows * z.C),
                   w64 = answer::stored(o_.space, view_of(weight), storage_.weight, z.Vp * z.C),
                   logits = answer::linear_forward(o_.space, view(x64), view(w64), View{}, z.rows, z.C, z.Vp);
      classified = answer::classifier(o_.space, view(logits), targets.content.as<int32_t>(), z.rows, z.V, z.Vp, static_cast<double>(scale));
      dx = answer::linear_backward_input(o_.space, view(classified.dlogits), view(w64), z.rows, z.C, z.Vp);
      dweight = answer::linear_backward_weight(o_.space, view(classified.dlogits), view(x64), z.rows, z.C, z.Vp);
    }
    const std::string shape = fmt::format("rows={} C={} V={} Vp={}{}", z.rows, z.C, z.V, z.Vp,
                                          z.hurt ? ", logits all low, equal, of -110, 30, 60, 256 and 300" : "");
    for (const bool adds : ways(z.rows)) {
      OpCase c{.op = "lm_head", .shape = shape + adds_text(adds), .matmul = true, .terms = std::max(z.rows, z.Vp), .tensors = {}};
      // Rounded on the way: gradients of logits, or exponentials; x with its row's factor; logits, which moves losses.
      c.tensors = {output("losses", 1, z.rows, kF32, classified.losses, {.inside = z.hurt ? 1e-5 : 1e-3}),
                   update("dx", z.rows, z.C, storage_.activation, x, dx, {.count = 1, .inside = kBf16Unit / 2}),
                   gradient("dweight", z.Vp, z.C, kF32, dweight, adds, {.inside = kBf16Unit}), weight, targets};
      if (!z.hurt) c.judge = rows_are_scaled_right(1, z.rows, z.C, dx);
      c.scratch_bytes = [&t = t_, s](const std::string&) { return t.lm_head_scratch(s); };
      c.launch = [&t = t_, s, scale, adds](OpContext& context, const std::string& v, Pointers p, void* scratch) {
        t.lm_head(context, v, f(p[0]), p[1], f(p[2]), p[3], ints(p[4]), s, scale, adds, scratch);
      };
      c.flops = 6 * static_cast<double>(z.rows) * static_cast<double>(z.C) * static_cast<double>(z.Vp);
      c.baseline = z.hurt ? "hopper" : "logits";
      if (z.hurt) c.other_forms = {"logits"};
      // dx: its scale is asked. dweight: every token's row reads the same rows of x, rounded with their factors, and these errors do not average
      // out over tokens. The target's gradient, p - 1, is nearly the same number in all rows, and is rounded to -1.
      c.may_lean = always;
      also_zero_grad(c, adds);
      use_(c);
    }
  }
}

// The layer behind attention: its weight, the column sums of its output's gradient, and what that gradient is for attention's output. Numbers
// of few bits, of which a product is exact in bf16: dout then has the same column sums as the product before it was rounded, and one answer is
// right for variants that sum what is stored and for those that do not.
struct OpCases::Behind {
  OpTensor dout, weight;
  std::vector<double> weights, sums;  // (C,C), (C)
};
OpCases::Behind OpCases::behind_attention(int64_t rows, int64_t C) {
  constexpr size_t kTerms = 8;  // of each product, of up to 7 steps: 56, and bf16 counts to 256
  Random random(seed());
  const auto n = static_cast<size_t>(C);
  std::vector<double> weights(n * n), sums(n), dout(static_cast<size_t>(rows) * n), row(n);
  std::vector<std::pair<size_t, double>> terms(n * kTerms);
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto from = static_cast<size_t>(random.below(C));
    double& weight = weights[from * n + i / kTerms];
    const double step = random.bits() % 2 == 0 ? 0.25 : -0.25;
    terms[i] = {from, weight == 0 ? step : 0};  // each place once
    weight += terms[i].second;
  }
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    for (size_t c = 0; c < n; ++c) {
      row[c] = 0.5 * static_cast<double>(std::clamp(std::lround(2 * random.normal()), -7L, 7L));
      sums[c] += row[c];
    }
    for (size_t i = 0; i < terms.size(); ++i) dout[r * n + i / kTerms] += terms[i].second * row[terms[i].first];
  }
  return {input_of("dout", rows, C, storage_.activation, content_of(memory_of(o_.space, dout), storage_.activation)),
          input_of("weight behind", C, C, storage_.weight, content_of(memory_of(o_.space, weights), storage_.weight)), std::move(weights),
          std::move(sums)};
}

void OpCases::attention() {
  const bool forward = wanted("attention_forward"), planned_forward = wanted("planned_attention_forward");
  const bool backward = wanted("attention_backward"), planned_backward = wanted("planned_attention_backward");
  const bool bias = has_slot("bias_gradient") && wanted("attention_bias_gradient");
  if (!forward && !backward && !planned_forward && !planned_backward && !bias) return;
  for (const auto& z : z_.attentions) {
    const int64_t C = z.NH * z.HS;
    const OpShape s{z.B, z.T, C, z.NH, 1, 1, z.T};
    const char* scores = z.hurt ? ", scores from -200 to 200" : z.low ? ", scores near -1,344" : "";
    const std::string shape = fmt::format("B={} T={} NH={} HS={}{}", z.B, z.T, z.NH, z.HS, scores);
    const OpTensor qkv = input("qkv", s.rows(), 3 * C, storage_.activation, Qkv{seed(), z.T, C, z.HS, z.hurt, z.low});
    const auto a = answer::attention_forward(o_.space, view_of(qkv), z.B, z.T, C, z.NH);
    // Probabilities, in the backward also ds, are rounded as factors of products; where a few keys have all
    // of the probability nothing averages that.
    const Rounding inside = out_of_product({.count = 1, .inside = z.hurt ? kBf16Unit : kBf16Unit / 2});
    // Causal: half of the T x T products.
    const double half = static_cast<double>(z.B) * static_cast<double>(z.T) * static_cast<double>(z.T) * static_cast<double>(C);
    const auto attention_case = [&](const char* op, double products) {
      OpCase c{.op = op, .shape = shape, .matmul = true, .tensors = {}, .flops = products * half};
      c.floor_factor = z.hurt ? 100 : 1;
      if (z.low) c.floor_added = 100 * op_floor("fp32", true);  // a score of -1,344 in fp32, whatever its product loses
      c.baseline = "unfused";
      // Scores that hurt and low ones give few probabilities, of which each is rounded one way wherever it stands; the library may round as it
      // likes.
      c.may_lean = [few = z.hurt || z.low](const std::string& tensor, const std::string& variant) {
        return few || variant.starts_with("cudnn") || tensor == "lse";  // which no one rounds
      };
      if (!fused_) c.rounds_to_tf32 = {"flash"};
      if (fused_) {
        if (!z.with_cudnn)
          for (const gpt2::VariantInfo& info : t_.variants())
            if (info.slot == op)
              for (const std::string& name : info.names)
                if (name.starts_with("cudnn")) c.other_forms.push_back(name);
      }
      return c;
    };
    const bool has_plans = z.with_cudnn && z.every_plan && has_slot("attention_plan");
    if (forward || planned_forward) {
      OpCase c = attention_case("attention_forward", 2);
      c.tensors = {output("out", s.rows(), C, storage_.activation, a.out, inside),
                   output("lse", z.B * z.NH, z.T, kF32, a.lse, out_of_product({.inside = 1e-5})), qkv};
      c.scratch_bytes = [&t = t_, s](const std::string& v) { return t.attention_forward_scratch(v, s); };
      c.launch = [&t = t_, s](OpContext& x, const std::string& v, Pointers p, void* scratch) {
        t.attention_forward(x, v, p[0], f(p[1]), p[2], s, scratch);
      };
      if (forward) use_(c);
      if (has_plans && planned_forward) {
        c = planned(std::move(c), "planned_attention_forward");
        c.scratch_bytes = [&t = t_, s](const std::string& v) { return t.planned_attention_forward_scratch(v, s); };
        c.launch = [&t = t_, s](OpContext& x, const std::string& v, Pointers p, void* scratch) {
          t.planned_attention_forward(x, v, p[0], f(p[1]), p[2], s, scratch);
        };
        use_(c);
      }
    }
    if ((!backward && !planned_backward && !bias) || z.low) continue;
    const OpTensor out = input_of("out", s.rows(), C, storage_.activation, content_of(a.out, storage_.activation)),
                   lse = input_of("lse", z.B * z.NH, z.T, kF32, content_of(a.lse, kF32));
    const bool with_bias = bias && !z.hurt;  // where scores are large all of it is what the cancellation of dk's sums leaves
    const Behind behind = with_bias ? behind_attention(s.rows(), C) : Behind{};
    const OpTensor dout = with_bias ? behind.dout : input("dout", s.rows(), C, storage_.activation, normal());
    OpCase c = attention_case("attention_backward", 5);
    c.tensors = {output("dqkv", s.rows(), 3 * C, storage_.activation, answer_of([&] {
                          return answer::attention_backward(o_.space, view_of(dout), view_of(qkv), view_of(out), view_of(lse), z.B, z.T, C,
                                                            z.NH);
                        }),
                        inside),
                 dout, qkv, out, lse};
    c.scratch_bytes = [&t = t_, s](const std::string& v) { return t.attention_backward_scratch(v, s); };
    c.launch = [&t = t_, s](OpContext& x, const std::string& v, Pointers p, void* scratch) {
      t.attention_backward(x, v, p[0], p[1], p[2], p[3], f(p[4]), s, scratch);
    };
    if (backward) use_(c);
    if (with_bias) attention_bias_gradient(c, s, behind);
    if (!has_plans || !planned_backward) continue;
    c = planned(std::move(c), "planned_attention_backward");
    c.scratch_bytes = [&t = t_, s](const std::string& v) { return t.planned_attention_backward_scratch(v, s); };
    c.launch = [&t = t_, s](OpContext& x, const std::string& v, Pointers p, void* scratch) {
      t.planned_attention_backward(x, v, p[0], p[1], p[2], p[3], f(p[4]), s, scratch);
    };
    use_(c);
  }
}

// Rounded terms are each off by their own chance, so their sums together are off by as much as the terms together, however much of those
// cancels: dk's sums are zero in exact arithmetic. Loops that round as the mixed trainer does lose 1.2 halves of a unit of what the terms are
// together, and 1.5 at worst (33 rows of 180, 1,000 seeds).
Rounding OpCases::of_sums(const OpTensor& terms, const OpTensor& sums) const {
  if (!o_.with_answers) return {.inside = kBf16Unit / 2};
  const double all = answer::norm(o_.space, view(terms.want), terms.count()), left = answer::norm(o_.space, view(sums.want), sums.count());
  return {.inside = kBf16Unit * std::max(0.5, left > 0 ? all / left : 0)};
}

// The case of attention's backward with the sums of dqkv's columns, which are sums of what is stored.
//
// What is added to is what earlier micro-batches can have left: zero for k, and for v what the weight makes of the sums behind.
void OpCases::attention_bias_gradient(const OpCase& backward, const OpShape& s, const Behind& behind) {
  const OpTensor& dqkv = backward.tensors.front();
  const Memory sums = answer_of([&] { return answer::column_sums(o_.space, view(dqkv.want), s.rows(), 3 * s.C); });
  for (const bool adds : ways(s.rows())) {
    OpCase c = backward;
    c.op = "attention_bias_gradient";
    c.shape += adds_text(adds);
    c.slot = "bias_gradient";
    c.baseline = "column_sums";
    c.other_forms = {"layernorm_fold", "matmul_epilogue"};  // as column_sums; an epilogue of a product
    OpTensor dbias = output("dbias", 1, 3 * s.C, kF32, sums);
    std::vector<double> sums_behind = behind.sums;
    if (adds) {
      Random random(seed());
      const size_t n = sums_behind.size();
      std::vector<double> earlier(n), before(3 * n);
      for (double& x : earlier) x = static_cast<double>(random.normal());
      const std::vector<double> of_values = times_weight(earlier, behind.weights);
      for (size_t k = 0; k < n; ++k) {
        before[k] = static_cast<double>(random.normal());
        before[2 * n + k] = of_values[k];
        sums_behind[k] += earlier[k];
      }
      const Memory content = content_of(memory_of(o_.space, before), kF32);
      dbias = update("dbias", 1, 3 * s.C, kF32, content,
                     answer_of([&] { return answer::sum(o_.space, view(sums), view(content, kF32), 3 * s.C); }));
    }
    dbias.rounding = of_sums(dqkv, dbias);
    c.tensors.push_back(input_of("dbias behind", 1, s.C, kF32, content_of(memory_of(o_.space, sums_behind), kF32)));
    c.tensors.push_back(behind.weight);
    c.judge = bias_is_of_the_stored(c.tensors.size(), s, behind, dbias);
    c.tensors.push_back(std::move(dbias));
    c.scratch_bytes = [&t = t_, s](const std::string& v) { return t.attention_bias_gradient_scratch(v, s); };
    c.launch = [&t = t_, s, adds](OpContext& x, const std::string& v, Pointers p, void* scratch) {
      t.attention_bias_gradient(x, v, p[0], f(p[7]), p[1], p[2], p[3], f(p[4]), {f(p[5]), p[6]}, s, adds, scratch);
    };
    also_zero_grad(c, adds);
    use_(c);
  }
}

// Sums of the stored; of q alone with bias_gradient=softmax_identities, where k's are zero and v's follow from the layer behind, exactly.
decltype(OpCase::judge) OpCases::bias_is_of_the_stored(size_t bias_at, const OpShape& s, const Behind& behind,
                                                       const OpTensor& dbias) const {
  return [=, stored = sums_are_of_the_stored("dqkv", 0, bias_at, s.rows(), dbias), space = o_.space, element = storage_.activation,
          before = dbias.content,
          weights = behind.weights](std::span<const Memory> after, const std::string& name, const std::string& detail, GateReport& report) {
    if (!name.ends_with("/softmax_identities")) return stored(after, name, detail, report);
    const auto n = static_cast<size_t>(s.C);
    const std::vector<float> got = values_of<float>(after[bias_at]), earlier = values_of<float>(before),
                             behind_bias = values_of<float>(after[bias_at - 2]);
    std::vector<double> want = values_of<double>(answer::column_sums(space, view(after[0], element), s.rows(), 3 * s.C));
    const std::vector<double> of_values = times_weight({behind_bias.begin(), behind_bias.end()}, weights);
    int64_t not_zero = 0;
    for (size_t k = 0; k < n; ++k) {
      if (!earlier.empty()) want[k] += static_cast<double>(earlier[k]);
      want[n + k] = 0;
      want[2 * n + k] = of_values[k];
      not_zero += got[n + k] == 0 ? 0 : 1;
    }
    report.add(must_be_zero(name + " error", "dbias of k", not_zero, "elements", detail));
    report.add(from_metrics(name + " error", "dbias of stored dq and of the layer behind", compare<float, double>(got, want, 3, s.C),
                            rounding_limit({.inside = 1e-6}), detail));
  };
}

// The same case by the library alone, once with each way to choose its plan.
OpCase OpCases::planned(OpCase c, const char* op) {
  c.op = op;
  c.slot = "attention_plan";
  c.baseline = "heuristic";
  c.other_forms.clear();
  c.may_lean = always;
  return c;
}

}  // namespace gate::op_cases
