// Ops on rows of the residual stream: embedding, layernorm, and the sums between them.
#include "experiments/gate/op_cases.h"

namespace gate::op_cases {
namespace {

// The mean of C values of both signs is sqrt(C) times smaller than they are, and their sum is rounded at their size.
Rounding mean_of(int64_t C) { return {.inside = 4 * 0x1p-24 * std::sqrt(static_cast<double>(C))}; }

}  // namespace

// A second micro-batch adds, which a dwte in bf16 never sees.
std::vector<std::pair<bool, Element>> OpCases::ways_of_embedding(int64_t rows) const {
  std::vector<std::pair<bool, Element>> all;
  for (const bool adds : ways(rows)) all.emplace_back(adds, kF32);
  if (has_slot("wte_gradient")) all.emplace_back(false, kBf16);
  return all;
}

void OpCases::embedding(Element stream) {
  if (!wanted("embedding_forward") && !wanted("embedding_backward")) return;
  for (const auto& z : z_.embeddings) {
    const OpShape s{z.B, z.T, z.C, 1, z.V, z.Vp, z.max_seq_len};
    const OpTensor tokens = token_input("tokens", tokens_of(z.tokens, s.rows(), z.V, seed()));
    const char* kinds[] = {"", ", one token", ", no token twice", ", skewed tokens"};
    const std::string shape =
        fmt::format("B={} T={} C={} V={}{}{}", z.B, z.T, z.C, z.V, stream_text(stream), kinds[static_cast<int>(z.tokens)]);
    if (wanted("embedding_forward")) {
      const OpTensor wte = input("wte", z.Vp, z.C, storage_.weight, normal()),
                     wpe = input("wpe", z.max_seq_len, z.C, storage_.weight, normal());
      OpCase c{.op = "embedding_forward", .shape = shape, .tensors = {}};
      // One fp32 sum of two numbers, rounded: there is one right answer.
      c.tensors = {output("out", s.rows(), z.C, stream, answer_of([&] {
                            return rounded(rounded(answer::embedding_forward(o_.space, tokens.content.as<int32_t>(), view_of(wte),
                                                                             view_of(wpe), s.rows(), z.T, z.C),
                                                   kF32, s.rows() * z.C),
                                           stream, s.rows() * z.C);
                          })),
                   tokens, wte, wpe};
      c.launch = [&t = t_, s, stream](OpContext& x, const std::string&, Pointers p, void*) {
        t.embedding_forward(x, stream, p[0], ints(p[1]), p[2], p[3], s);
      };
      also(c, "residual_stream", name_of(stream));
      judge_upper_halves(c);
      use_(c);
    }
    if (!wanted("embedding_backward")) continue;
    const OpTensor dout = input("dout", s.rows(), z.C, stream, normal());
    for (const auto& [adds, wte] : ways_of_embedding(s.rows())) {
      const Memory before = made(z.Vp * z.C, wte, normal());
      answer::EmbeddingGradients g;
      if (o_.with_answers)
        g = answer::embedding_backward(o_.space, view(before, wte), view_of(dout), tokens.content, z.B, z.T, z.C, z.Vp, z.max_seq_len);
      OpCase c{.op = "embedding_backward", .shape = shape + adds_text(adds) + (wte == kBf16 ? ", dwte in bf16" : ""), .tensors = {}};
      // Thousands of rows of one token are joined chunk by chunk in fp32.
      if (s.rows() > 1000 && z.tokens != TokenKind::different) c.floor_factor = 4;
      c.tensors = {update("dwte", z.Vp, z.C, wte, before, g.dwte, once(wte)), gradient("dwpe", z.max_seq_len, z.C, kF32, g.dwpe, adds),
                   dout, tokens};
      c.scratch_bytes = [&t = t_, s](const std::string&) { return t.embedding_backward_scratch(s); };
      c.launch = [&t = t_, s, stream, adds, wte](OpContext& x, const std::string&, Pointers p, void* scratch) {
        t.embedding_backward(x, stream, wte, p[0], f(p[1]), p[2], ints(p[3]), adds, s, scratch);
      };
      also(c, "residual_gradient", name_of(stream));
      also(c, "wte_gradient", name_of(wte));
      also_zero_grad(c, adds);
      use_(c);
    }
  }
}

// Rows of the residual stream.
Values OpCases::stream_rows(const OpSizes::Rows& z, Element element, std::string& shape) {
  Values v = normal(1, 0.3);
  v.columns = z.C;
  if (z.values == OpSizes::Norm::far_means) {
    v.mean = 300;
    v.deviation = element == kBf16 ? 8 : 0.5;  // bf16 numbers near 300 are 2 apart
    shape += ", means of 300";
  } else if (z.rows > 20) {
    v.rows = {Values::Row{3, 1e4, 0}, {11, 1e-40, 0}, {17, 0, 0}, {z.rows - 2, 0, 0.5}};  // of the last two only eps keeps rstd finite
    shape += ", outlier, denormal, zero and constant row";
  }
  return v;
}

// A mean of 300 is rounded by up to half a unit in each of some 30 additions, against a deviation of 0.5.
Rounding OpCases::normed(const OpSizes::Rows& z) const {
  Rounding r = once(storage_.activation);
  if (z.values == OpSizes::Norm::far_means) r.inside = 1e-3;
  return r;
}

void OpCases::layernorm(Element stream) {
  if (!wanted("layernorm_forward") && !wanted("layernorm_backward")) return;
  for (const auto& z : z_.norms) {
    std::string shape = fmt::format("rows={} C={}{}", z.rows, z.C, stream_text(stream));
    const OpTensor weight = input("weight", 1, z.C, storage_.weight, normal(0.3, 1)),
                   bias = input("bias", 1, z.C, storage_.weight, normal(0.3));
    const Values values = stream_rows(z, stream, shape);
    if (wanted("layernorm_forward")) layernorm_forward(z, stream, shape, input("inp", z.rows, z.C, stream, values), weight, bias);
    if (!wanted("layernorm_backward")) continue;
    // The backward pass reads the rows as activations, whatever the stream is stored as.
    std::string ignored;
    const Values again = z.values == OpSizes::Norm::far_means ? stream_rows(z, storage_.activation, ignored) : values;
    layernorm_backward(z, stream, shape, input("inp", z.rows, z.C, storage_.activation, again), weight);
  }
}

void OpCases::layernorm_forward(const OpSizes::Rows& z, Element stream, const std::string& shape, const OpTensor& inp,
                                const OpTensor& weight, const OpTensor& bias) {
  const int64_t rows = z.rows, C = z.C;
  answer::Normed n;
  if (o_.with_answers) n = answer::layernorm_forward(o_.space, view_of(inp), view_of(weight), view_of(bias), rows, C);
  const bool kept = has_copy(stream);
  // Without statistics: as recompute does it.
  for (const bool statistics : fused_&& every_way() ? std::vector<bool>{true, false} : std::vector<bool>{true}) {
    OpCase c{.op = "layernorm_forward", .shape = shape + (statistics ? "" : ", no statistics"), .tensors = {}};
    c.tensors = {output("out", rows, C, storage_.activation, n.out, normed(z)), inp, weight, bias};
    if (statistics) {
      c.tensors.push_back(output("mean", 1, rows, kF32, n.mean, mean_of(C)));
      c.tensors.push_back(output("rstd", 1, rows, kF32, n.rstd));
      if (kept)
        c.tensors.push_back(output("kept", rows, C, storage_.activation,
                                   answer_of([&] { return answer::stored(o_.space, view_of(inp), storage_.activation, rows * C); })));
    }
    c.launch = [&t = t_, statistics, kept, stream, rows, C](OpContext& x, const std::string& v, Pointers p, void*) {
      t.layernorm_forward(x, v, stream,
                          {p[0], statistics ? f(p[4]) : nullptr, statistics ? f(p[5]) : nullptr, statistics && kept ? p[6] : nullptr}, p[1],
                          p[2], p[3], rows, C);
    };
    also(c, "residual_stream", name_of(stream));
    use_(c);
  }
}

void OpCases::layernorm_backward(const OpSizes::Rows& z, Element stream, const std::string& shape, const OpTensor& inp,
                                 const OpTensor& weight) {
  const int64_t rows = z.rows, C = z.C;
  const OpTensor dout = input("dout", rows, C, storage_.activation, normal());
  const Memory no_bias = made(C, kF32, Values{.deviation = 0});
  const auto n = answer::layernorm_forward(o_.space, view_of(inp), view_of(weight), view(no_bias, kF32), rows, C);
  const OpTensor mean = input_of("mean", 1, rows, kF32, content_of(n.mean, kF32)),
                 rstd = input_of("rstd", 1, rows, kF32, content_of(n.rstd, kF32));
  answer::NormGradients g;
  if (o_.with_answers)
    g = answer::layernorm_backward(o_.space, view_of(dout), view_of(inp), view_of(mean), view_of(rstd), view_of(weight), rows, C);
  struct Way {
    bool add, accumulate, sums;
  };
  std::vector<Way> all{{false, false, false}, {true, true, true}, {true, false, true}, {false, true, false}};
  if (!every_way()) all = {Way{ways(rows)[0], ways(rows)[0], true}};
  for (Way w : all) {
    w.sums = w.sums && fused_;
    const bool copies = has_copy(stream);
    OpTensor dinp = gradient("dinp", rows, C, stream, g.dx, w.add, once(stream));
    const Memory after = dinp.want;
    OpCase c{.op = "layernorm_backward",
             .shape = shape + (w.add ? ", adds dinp" : "") + adds_text(w.accumulate) + (w.sums ? ", column sums" : ""),
             .tensors = {}};
    c.tensors = {std::move(dinp),
                 gradient("dweight", 1, C, kF32, g.dweight, w.accumulate),
                 gradient("dbias", 1, C, kF32, g.dbias, w.accumulate),
                 dout,
                 inp,
                 mean,
                 rstd,
                 weight};
    if (copies) c.tensors.push_back(output("dinp_copy", rows, C, storage_.activation, after, once(storage_.activation)));
    if (w.sums) {
      // Each term may have been rounded before it was added.
      OpTensor sums =
          gradient("dinp_column_sums", 1, C, kF32, answer_of([&] { return answer::column_sums(o_.space, view(after), rows, C); }),
                   w.accumulate, {.inside = kBf16Unit});
      c.judge = sums_are_of_the_stored("dinp", copies ? 8 : 0, c.tensors.size(), rows, sums);
      c.tensors.push_back(std::move(sums));
      also(c, "bias_gradient", "layernorm_fold");
    }
    c.scratch_bytes = [&t = t_, rows, C](const std::string& v) { return t.layernorm_backward_scratch(v, rows, C); };
    c.launch = [&t = t_, w, copies, stream, rows, C](OpContext& x, const std::string& v, Pointers p, void* scratch) {
      void* copy = copies ? p[8] : nullptr;
      float* sums = w.sums ? f(p[copies ? 9 : 8]) : nullptr;
      t.layernorm_backward(x, v, stream, {p[0], copy, f(p[1]), f(p[2]), sums}, p[3], p[4], f(p[5]), f(p[6]), p[7], rows, C, w.add,
                           w.accumulate, scratch);
    };
    also(c, "residual_gradient", name_of(stream));
    also_zero_grad(c, w.accumulate);
    judge_upper_halves(c);
    use_(c);
  }
}

// Column sums against the rounded values of the same launch that they are said to be sums of: no rounding
// lies between the two.
decltype(OpCase::judge) OpCases::sums_are_of_the_stored(const char* terms, size_t terms_at, size_t sums_at, int64_t rows,
                                                        const OpTensor& sums) const {
  return [=, title = fmt::format("{} of stored {}", sums.name, terms), space = o_.space, element = storage_.activation](
             std::span<const Memory> after, const std::string& name, const std::string& detail, GateReport& report) {
    const int64_t columns = sums.count();
    Memory want = answer::column_sums(space, view(after[terms_at], element), rows, columns);
    if (sums.role == Role::update) want = answer::sum(space, view(want), view(sums.content, kF32), columns);
    report.add(from_metrics(name + " error", title, compare(space, view(after[sums_at], kF32), view(want), 1, columns),
                            rounding_limit({.inside = 1e-6}), detail));
  };
}

// The upper halves of a case's split result are read alone too: they are the value rounded to bf16, and not merely numbers that a lower
// byte makes right.
void OpCases::judge_upper_halves(OpCase& c) const {
  for (size_t at = 0; at < c.tensors.size(); ++at) {
    const OpTensor& t = c.tensors[at];
    if (t.element != kSplit || t.role == Role::input) continue;
    c.judge = [=, others = c.judge, space = o_.space, want = t.want, rows = t.rows, columns = t.columns, title = t.name + ", upper halves"](
                  std::span<const Memory> after, const std::string& name, const std::string& detail, GateReport& report) {
      if (others) others(after, name, detail, report);
      const View upper{after[at].data(), kBf16, rows * columns};
      constexpr Rounding kOnce{.count = 1};
      report.add(from_metrics(name + " error", title, compare(space, upper, view(want), rows, columns), rounding_limit(kOnce), detail));
      report.add(make_result(name + " element", title,
                             {{"worst element", worst_element(space, upper, view(want), rows * columns), element_limit(kOnce)}}, detail));
    };
    return;
  }
}

// The two ways of the slot that are no product: the sum with the layernorm that follows it in one kernel,
// and one after the other.
void OpCases::residual_layernorm(Element stream) {
  if (!wanted("residual") && !wanted("layernorm_forward")) return;
  for (const auto& z : z_.norms) {
    const int64_t rows = z.rows, C = z.C;
    std::string shape = fmt::format("sum and layernorm rows={} C={}{}", rows, C, stream_text(stream));
    const OpTensor a = input("a", rows, C, stream, stream_rows(z, stream, shape)),
                   weight = input("weight", 1, C, storage_.weight, normal(0.3, 1)),
                   bias = input("bias", 1, C, storage_.weight, normal(0.3));
    Values small = normal(z.values == OpSizes::Norm::far_means ? 0.5 : 1);
    small.columns = C;
    if (rows > 20) small.rows = {Values::Row{11, 0, 0}, {17, 0, 0}, {rows - 2, 0, 0}};  // rows of `a` that stay what they are
    const OpTensor branch = input("branch", rows, C, storage_.activation, small);
    const Memory exact = answer::sum(o_.space, view_of(a), view_of(branch), rows * C);
    const Memory sum = rounded(rounded(exact, kF32, rows * C), stream, rows * C);
    answer::Normed n;
    if (o_.with_answers) n = answer::layernorm_forward(o_.space, view(sum), view_of(weight), view_of(bias), rows, C);
    const bool kept = has_copy(stream);
    OpCase c{.op = "residual", .shape = shape, .tensors = {}};
    c.tensors = {output("sum", rows, C, stream, sum),
                 output("out", rows, C, storage_.activation, n.out, normed(z)),
                 output("mean", 1, rows, kF32, n.mean, mean_of(C)),
                 output("rstd", 1, rows, kF32, n.rstd),
                 a,
                 branch,
                 weight,
                 bias};
    if (kept) c.tensors.push_back(output("kept", rows, C, storage_.activation, rounded(sum, storage_.activation, rows * C)));
    c.launch = [&t = t_, stream, kept, rows, C](OpContext& x, const std::string& v, Pointers p, void*) {
      t.residual_layernorm(x, v, stream, p[0], {p[1], f(p[2]), f(p[3]), kept ? p[8] : nullptr}, p[4], p[5], p[6], p[7], rows, C);
    };
    c.baseline = "separate";
    c.other_forms = {"matmul_epilogue"};
    also(c, "residual_stream", name_of(stream));
    judge_upper_halves(c);
    if (wanted("residual")) use_(c);
    if (!wanted("layernorm_forward")) continue;
    // The fused kernel follows the slot of the plain one.
    c.op = "layernorm_forward";
    c.baseline.clear();
    c.other_forms.clear();
    c.launch = [&t = t_, stream, kept, rows, C](OpContext& x, const std::string& v, Pointers p, void*) {
      t.fused_residual_layernorm(x, v, stream, p[0], {p[1], f(p[2]), f(p[3]), kept ? p[8] : nullptr}, p[4], p[5], p[6], p[7], rows, C);
    };
    use_(c);
  }
}

void OpCases::residual_sum(Element stream) {
  if (!wanted("residual_forward")) return;
  for (const int64_t n : z_.elements)
    for (const bool in_place : fused_ ? ways(n) : std::vector<bool>{false}) {
      const OpTensor a = input("a", 1, n, stream, normal(2)), b = input("b", 1, n, storage_.activation, normal());
      const Memory sum = answer_of([&] { return rounded(rounded(answer::sum(o_.space, view_of(a), view_of(b), n), kF32, n), stream, n); });
      OpCase c{
          .op = "residual_forward", .shape = fmt::format("n={}{}{}", n, stream_text(stream), in_place ? ", in place" : ""), .tensors = {}};
      c.tensors = {in_place ? update("out", 1, n, stream, a.content, sum) : output("out", 1, n, stream, sum), b};
      if (!in_place) c.tensors.push_back(a);
      c.launch = [&t = t_, stream, in_place, n](OpContext& x, const std::string&, Pointers p, void*) {
        t.residual_forward(x, stream, p[0], p[in_place ? 0 : 2], p[1], n);
      };
      also(c, "residual_stream", name_of(stream));
      judge_upper_halves(c);
      use_(c);
    }
}

}  // namespace gate::op_cases
