// The one list of op cases: each op once, for both trainers. What differs is storage, which the trainer says,
// and the ops that only the mixed trainer has (what is fused into a product or into the residual sum).
//
// Inputs are drawn and rounded as the trainer stores them, and answers are computed in double from exactly
// these. What bf16 costs on the way out is said per tensor (Rounding), so an fp32 result is held to fp32
// everywhere. Where the definition leaves one right answer (a sum of two numbers, rounded), that answer is
// wanted. Every case draws its own inputs: a kernel cannot have been tuned to them, and a result that is
// cached by pointer or shape shows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "experiments/gate/op_answers.h"
#include "experiments/gate/op_case.h"
#include "experiments/gate/op_compare.h"

namespace gate {
namespace {

using Pointers = std::span<void* const>;

constexpr Element kF32 = Element::f32, kBf16 = Element::bf16;

float* f(void* p) { return static_cast<float*>(p); }
const int* ints(void* p) { return static_cast<const int*>(p); }
const char* name_of(Element e) { return e == kBf16 ? "bf16" : "fp32"; }

// Tensor cores cut off where other units round: at worst a unit of fp32 for each 16 terms that they add.
Rounding fp32_of_product(int64_t terms) { return {.inside = 1e-6 + 0x1p-24 * static_cast<double>(terms) / 16}; }

// The mean of C values of both signs is sqrt(C) times smaller than they are, and their sum is rounded at their size.
Rounding mean_of(int64_t C) { return {.inside = 4 * 0x1p-24 * std::sqrt(static_cast<double>(C))}; }

class Cases {
 public:
  Cases(const OpTrainer& trainer, const OpSizes& sizes, const CaseOptions& options, const UseCase& use)
      : t_(trainer), z_(sizes), o_(options), use_(use), storage_(trainer.storage()), fused_(!storage_.one_way_out()) {
    for (const gpt2::VariantInfo& info : t_.variants()) slots_.push_back(info.slot);
  }

  void all() {
    for (const Element stream : storage_.streams) {
      embedding(stream);
      layernorm(stream);
      if (fused_) residual_layernorm(stream);
      residual_sum(stream);
    }
    linear();
    attention();
    gelu();
    classifier();
    mean_loss();
    grad_norm();
    adamw();
    if (fused_) round_parameters();
  }

 private:
  // ---- what cases are made of
  // ---------------------------------------------------------------------------------------
  bool wanted(std::string_view op) const { return o_.only.empty() || o_.only == op; }
  uint64_t seed() { return o_.seed * 1'000'003 + ++drawn_; }
  Values normal(double deviation = 1, double mean = 0) { return {.seed = seed(), .deviation = deviation, .mean = mean}; }

  template <class What>
  Memory made(int64_t n, Element element, const What& what) const {
    Memory m(o_.space, n * bytes_of_element(element));
    fill(m, element, what);
    return m;
  }
  template <class What>
  OpTensor input(std::string name, int64_t rows, int64_t columns, Element element, const What& what) const {
    return input_of(std::move(name), rows, columns, element, made(rows * columns, element, what));
  }
  static OpTensor input_of(std::string name, int64_t rows, int64_t columns, Element element, Memory content) {
    return {std::move(name), Role::input, element, rows, columns, std::move(content), {}, {}};
  }
  OpTensor token_input(std::string name, const std::vector<int32_t>& tokens) const {
    return input_of(std::move(name), 1, static_cast<int64_t>(tokens.size()), Element::i32, memory_of(o_.space, tokens));
  }
  // `want()` is called where answers are wanted.
  template <class Want>
  Memory answer_of(const Want& want) const {
    return o_.with_answers ? want() : Memory();
  }
  static OpTensor output(std::string name, int64_t rows, int64_t columns, Element element, Memory want, Rounding rounding = {}) {
    return {std::move(name), Role::output, element, rows, columns, {}, std::move(want), rounding};
  }
  static OpTensor update(std::string name, int64_t rows, int64_t columns, Element element, Memory before, Memory want,
                         Rounding rounding = {}) {
    return {std::move(name), Role::update, element, rows, columns, std::move(before), std::move(want), rounding};
  }
  // A tensor written over, or added to random content.
  OpTensor gradient(std::string name, int64_t rows, int64_t columns, Element element, Memory want, bool adds, Rounding rounding = {}) {
    if (!adds) return output(std::move(name), rows, columns, element, std::move(want), rounding);
    Memory before = made(rows * columns, element, normal());
    if (o_.with_answers) want = answer::sum(o_.space, view(want), view(before, element), rows * columns);
    return update(std::move(name), rows, columns, element, std::move(before), std::move(want), rounding);
  }
  // A sum in double, written over or added to.
  OpTensor one_double(std::string name, double want, bool adds) const {
    constexpr double kBefore = 1.25;
    const auto one = [&](double x) { return memory_of(o_.space, std::vector<double>{x}); };
    return {std::move(name),
            adds ? Role::update : Role::output,
            Element::f64,
            1,
            1,
            adds ? one(kBefore) : Memory(),
            one(want + (adds ? kBefore : 0)),
            {}};
  }
  static View view_of(const OpTensor& t) { return view(t.content, t.element); }
  Memory rounded(const Memory& values, Element element, int64_t n) const { return answer::stored(o_.space, view(values), element, n); }
  // The same numbers in the storage of `element`.
  Memory content_of(const Memory& doubles, Element element) const {
    const int64_t n = doubles.bytes() / 8;
    Memory m(o_.space, n * bytes_of_element(element));
    convert(m, element, view(doubles), n);
    return m;
  }

  Rounding once(Element e) const { return e == kBf16 ? Rounding{.count = 1} : Rounding{}; }
  Rounding out_of_product(Rounding of_bf16) const { return fused_ ? of_bf16 : Rounding{}; }

  std::vector<bool> ways(int64_t rows) const {
    if (z_.ways == OpSizes::Ways::every) return {false, true};
    return {z_.ways == OpSizes::Ways::by_rows && rows % 2 == 1};
  }
  bool every_way() const { return z_.ways == OpSizes::Ways::every; }
  static const char* adds_text(bool adds) { return adds ? ", adds" : ""; }
  bool has_slot(std::string_view slot) const { return std::find(slots_.begin(), slots_.end(), slot) != slots_.end(); }
  void also(OpCase& c, const char* slot, const std::string& variant) const {
    if (has_slot(slot)) c.also.emplace_back(slot, variant);
  }
  // Gradients are written over, or zeroed first and added to: what the slot zero_grad chooses.
  void also_zero_grad(OpCase& c, bool adds) const { also(c, "zero_grad", adds ? "memset" : "overwrite"); }
  std::string stream_text(Element stream) const { return storage_.streams.size() > 1 ? fmt::format(" {}", name_of(stream)) : ""; }

  // ---- embedding
  // ----------------------------------------------------------------------------------------------------
  void embedding(Element stream) {
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
        use_(c);
      }
      if (!wanted("embedding_backward")) continue;
      const OpTensor dout = input("dout", s.rows(), z.C, stream, normal());
      for (const bool adds : ways(s.rows())) {
        const Memory before = made(z.Vp * z.C, kF32, normal());
        answer::EmbeddingGradients g;
        if (o_.with_answers)
          g = answer::embedding_backward(o_.space, view(before, kF32), view_of(dout), tokens.content, z.B, z.T, z.C, z.Vp, z.max_seq_len);
        OpCase c{.op = "embedding_backward", .shape = shape + adds_text(adds), .tensors = {}};
        // Thousands of rows of one token are joined chunk by chunk in fp32.
        if (s.rows() > 1000 && z.tokens != TokenKind::different) c.floor_factor = 4;
        c.tensors = {update("dwte", z.Vp, z.C, kF32, before, g.dwte), gradient("dwpe", z.max_seq_len, z.C, kF32, g.dwpe, adds), dout,
                     tokens};
        c.scratch_bytes = [&t = t_, s](const std::string&) { return t.embedding_backward_scratch(s); };
        c.launch = [&t = t_, s, stream, adds](OpContext& x, const std::string&, Pointers p, void* scratch) {
          t.embedding_backward(x, stream, f(p[0]), f(p[1]), p[2], ints(p[3]), adds, s, scratch);
        };
        also(c, "residual_gradient", name_of(stream));
        also_zero_grad(c, adds);
        use_(c);
      }
    }
  }

  // ---- layernorm
  // ---------------------------------------------------------------------------------------------------- Rows
  // of the residual stream.
  Values stream_rows(const OpSizes::Rows& z, Element element, std::string& shape) {
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
  Rounding normed(const OpSizes::Rows& z) const {
    Rounding r = once(storage_.activation);
    if (z.values == OpSizes::Norm::far_means) r.inside = 1e-3;
    return r;
  }

  void layernorm(Element stream) {
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

  void layernorm_forward(const OpSizes::Rows& z, Element stream, const std::string& shape, const OpTensor& inp, const OpTensor& weight,
                         const OpTensor& bias) {
    const int64_t rows = z.rows, C = z.C;
    answer::Normed n;
    if (o_.with_answers) n = answer::layernorm_forward(o_.space, view_of(inp), view_of(weight), view_of(bias), rows, C);
    const bool kept = stream != storage_.activation;
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
                            {p[0], statistics ? f(p[4]) : nullptr, statistics ? f(p[5]) : nullptr, statistics && kept ? p[6] : nullptr},
                            p[1], p[2], p[3], rows, C);
      };
      also(c, "residual_stream", name_of(stream));
      use_(c);
    }
  }

  void layernorm_backward(const OpSizes::Rows& z, Element stream, const std::string& shape, const OpTensor& inp, const OpTensor& weight) {
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
      const bool copies = stream != storage_.activation;
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
        c.judge = sums_are_of_the_stored(copies ? 8 : 0, c.tensors.size(), rows, sums);
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
      use_(c);
    }
  }

  // Column sums against the rounded values of the same launch that they are said to be sums of: no rounding
  // lies between the two.
  decltype(OpCase::judge) sums_are_of_the_stored(size_t terms_at, size_t sums_at, int64_t rows, const OpTensor& sums) const {
    return [=, space = o_.space, element = storage_.activation](std::span<const Memory> after, const std::string& name,
                                                                const std::string& detail, GateReport& report) {
      const int64_t columns = sums.columns;
      Memory want = answer::column_sums(space, view(after[terms_at], element), rows, columns);
      if (sums.role == Role::update) want = answer::sum(space, view(want), view(sums.content, kF32), columns);
      report.add(from_metrics(name + " error", "dinp_column_sums of stored dinp",
                              compare(space, view(after[sums_at], kF32), view(want), 1, columns), rounding_limit({.inside = 1e-6}),
                              detail));
    };
  }

  // The two ways of the slot that are no product: the sum with the layernorm that follows it in one kernel,
  // and one after the other.
  void residual_layernorm(Element stream) {
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
      const bool kept = stream != storage_.activation;
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

  void residual_sum(Element stream) {
    if (!wanted("residual_forward")) return;
    for (const int64_t n : z_.elements)
      for (const bool in_place : fused_ ? ways(n) : std::vector<bool>{false}) {
        const OpTensor a = input("a", 1, n, stream, normal(2)), b = input("b", 1, n, storage_.activation, normal());
        const Memory sum =
            answer_of([&] { return rounded(rounded(answer::sum(o_.space, view_of(a), view_of(b), n), kF32, n), stream, n); });
        OpCase c{.op = "residual_forward",
                 .shape = fmt::format("n={}{}{}", n, stream_text(stream), in_place ? ", in place" : ""),
                 .tensors = {}};
        c.tensors = {in_place ? update("out", 1, n, stream, a.content, sum) : output("out", 1, n, stream, sum), b};
        if (!in_place) c.tensors.push_back(a);
        c.launch = [&t = t_, stream, in_place, n](OpContext& x, const std::string&, Pointers p, void*) {
          t.residual_forward(x, stream, p[0], p[in_place ? 0 : 2], p[1], n);
        };
        also(c, "residual_stream", name_of(stream));
        use_(c);
      }
  }

  // ---- products
  // -----------------------------------------------------------------------------------------------------
  void linear() {
    const bool forward =
        wanted("linear_forward") || wanted("linear_gelu_forward") || wanted("linear_gelu_slope_forward") || wanted("residual");
    const bool backward = wanted("linear_backward") || wanted("linear_gelu_backward_input") || wanted("linear_gelu_slope_backward");
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
  static double flops(const LinearShape& s) {
    return 2 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out);
  }
  // Which products of a step have which neighbour; a shape without a place stands for all.
  static bool at(const OpSizes::Product& z, std::initializer_list<std::string_view> places) {
    return z.place.empty() || std::find(places.begin(), places.end(), z.place) != places.end();
  }

  void linear_forward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const OpTensor& inp,
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
      use_(c);
    }
    if (wanted("linear_gelu_slope_forward") && at(z, {"mlp_up"})) linear_gelu_slope_forward(z, s, shape, product, sum, {inp, weight, bias});
    if (!wanted("residual") || !at(z, {"attproj", "mlp_down"})) return;
    for (const Element stream : storage_.streams) {
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

  void linear_backward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const OpTensor& inp,
                       const OpTensor& weight) {
    const OpTensor dout = input("dout", z.rows, z.out, storage_.activation, normal());
    const Memory dx =
        answer_of([&] { return answer::linear_backward_input(o_.space, view_of(dout), view_of(weight), z.rows, z.in, z.out); });
    if (wanted("linear_backward")) {
      const Memory dweight =
          answer_of([&] { return answer::linear_backward_weight(o_.space, view_of(dout), view_of(inp), z.rows, z.in, z.out); });
      const Memory dbias = answer_of([&] { return answer::column_sums(o_.space, view_of(dout), z.rows, z.out); });
      const Rounding sums = out_of_product(fp32_of_product(z.rows));
      for (const bool adds : ways(z.rows)) {
        OpCase c{
            .op = "linear_backward", .shape = shape + adds_text(adds), .matmul = true, .terms = std::max(z.rows, z.out), .tensors = {}};
        c.tensors = {
            output("dinp", z.rows, z.in, storage_.activation, dx, out_of_product({.count = 1, .terms = static_cast<double>(z.out)})),
            gradient("dweight", z.out, z.in, kF32, dweight, adds, sums), dout, inp, weight};
        if (z.bias) c.tensors.push_back(gradient("dbias", 1, z.out, kF32, dbias, adds, sums));
        c.flops = 2 * flops(s);
        c.scratch_bytes = [&t = t_, s](const std::string&) { return t.linear_backward_scratch(s); };
        c.launch = [&t = t_, s, adds, bias = z.bias](OpContext& x, const std::string& v, Pointers p, void* scratch) {
          t.linear_backward(x, v, p[0], f(p[1]), bias ? f(p[5]) : nullptr, p[2], p[3], p[4], s, adds, scratch);
        };
        if (has_slot("bias_gradient")) {
          c.slot = "bias_gradient";
          c.baseline = "column_sums";
          c.other_forms = {"layernorm_fold"};  // work of layernorm_backward
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
    use_(c);
  }

  // The product of mlp_up with GELU and GELU's gradient, which "kernel" makes as the gradient of ones.
  void linear_gelu_slope_forward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const Memory& product,
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
    use_(c);
  }

  // The product of mlp_down's input gradient with GELU's gradient, and the sums of its columns. "hopper" sums before it rounds.
  void linear_gelu_slope_backward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const Memory& dx,
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

  // ---- attention
  // ----------------------------------------------------------------------------------------------------
  void attention() {
    const bool forward = wanted("attention_forward"), planned_forward = wanted("planned_attention_forward");
    const bool backward = wanted("attention_backward"), planned_backward = wanted("planned_attention_backward");
    if (!forward && !backward && !planned_forward && !planned_backward) return;
    for (const auto& z : z_.attentions) {
      const int64_t C = z.NH * z.HS;
      const OpShape s{z.B, z.T, C, z.NH, 1, 1, z.T};
      const std::string shape = fmt::format("B={} T={} NH={} HS={}{}", z.B, z.T, z.NH, z.HS, z.hurt ? ", scores from -200 to 200" : "");
      const OpTensor qkv = input("qkv", s.rows(), 3 * C, storage_.activation, Qkv{seed(), z.T, C, z.HS, z.hurt});
      const auto a = answer::attention_forward(o_.space, view_of(qkv), z.B, z.T, C, z.NH);
      // Probabilities, in the backward also ds, are rounded as factors of products; where a few keys have all
      // of the probability nothing averages that.
      const Rounding inside = out_of_product({.count = 1, .inside = z.hurt ? kBf16Unit : kBf16Unit / 2});
      // Causal: half of the T x T products.
      const double half = static_cast<double>(z.B) * static_cast<double>(z.T) * static_cast<double>(z.T) * static_cast<double>(C);
      const auto attention_case = [&](const char* op, double products) {
        OpCase c{.op = op, .shape = shape, .matmul = true, .tensors = {}, .flops = products * half};
        c.floor_factor = z.hurt ? 100 : 1;
        if (fused_) {
          c.baseline = "unfused";
          if (!z.with_cudnn)
            for (const gpt2::VariantInfo& info : t_.variants())
              if (info.slot == op)
                for (const std::string& name : info.names)
                  if (name.starts_with("cudnn")) c.other_forms.push_back(name);
        }
        return c;
      };
      const bool has_plans = z.with_cudnn && has_slot("attention_plan");
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
      if (!backward && !planned_backward) continue;
      const OpTensor out = input_of("out", s.rows(), C, storage_.activation, content_of(a.out, storage_.activation)),
                     lse = input_of("lse", z.B * z.NH, z.T, kF32, content_of(a.lse, kF32)),
                     dout = input("dout", s.rows(), C, storage_.activation, normal());
      OpCase c = attention_case("attention_backward", 5);
      c.tensors = {output("dqkv", s.rows(), 3 * C, storage_.activation, answer_of([&] {
                            return answer::attention_backward(o_.space, view_of(dout), view_of(qkv), view_of(out), view_of(lse), z.B, z.T,
                                                              C, z.NH);
                          }),
                          inside),
                   dout, qkv, out, lse};
      c.scratch_bytes = [&t = t_, s](const std::string& v) { return t.attention_backward_scratch(v, s); };
      c.launch = [&t = t_, s](OpContext& x, const std::string& v, Pointers p, void* scratch) {
        t.attention_backward(x, v, p[0], p[1], p[2], p[3], f(p[4]), s, scratch);
      };
      if (backward) use_(c);
      if (!has_plans || !planned_backward) continue;
      c = planned(std::move(c), "planned_attention_backward");
      c.scratch_bytes = [&t = t_, s](const std::string& v) { return t.planned_attention_backward_scratch(v, s); };
      c.launch = [&t = t_, s](OpContext& x, const std::string& v, Pointers p, void* scratch) {
        t.planned_attention_backward(x, v, p[0], p[1], p[2], p[3], f(p[4]), s, scratch);
      };
      use_(c);
    }
  }
  // The same case by the library alone, once with each way to choose its plan.
  static OpCase planned(OpCase c, const char* op) {
    c.op = op;
    c.slot = "attention_plan";
    c.baseline = "heuristic";
    c.other_forms.clear();
    return c;
  }

  // ---- gelu
  // ---------------------------------------------------------------------------------------------------------
  void gelu() {
    for (const int64_t n : z_.elements) {
      Values values = normal(2);
      if (n > 100) values.spikes = {Values::Spike{1, 1e-40}, {2, -60}, {3, 60}, {4, -1e-39}};
      const OpTensor inp = input("inp", 1, n, storage_.activation, values);
      const std::string shape = fmt::format("n={}", n);
      const auto gelu_case = [&](const char* op, const std::string& text) {
        OpCase c{.op = op, .shape = text, .tensors = {}};
        if (has_slot(op)) {
          c.baseline = "kernel";
          c.other_forms = {"matmul_epilogue", "hopper"};  // products: linear_gelu_forward, linear_gelu_backward_input, …_slope_…
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

  // ---- classifier, loss, norm
  // ---------------------------------------------------------------------------------------
  void classifier() {
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
      const std::string shape =
          fmt::format("rows={} V={} Vp={}{}", z.rows, z.V, z.Vp, z.hurt ? ", logits all low, of 80, equal, wide" : "");
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
        use_(c);
      }
    }
  }

  void mean_loss() {
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

  void grad_norm() {
    if (!wanted("grad_norm")) return;
    for (const int64_t n : z_.gradients) {
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
        for (const float clip : every_way() && *text == 0 ? std::vector<float>{0.0f, 0.5f, 1e9f} : std::vector<float>{0.5f}) {
          // A factor below what fp32 can tell from zero has no relative error to judge.
          const double scale = clip > 0 ? std::min(1.0, static_cast<double>(clip) / norm) : 1;
          OpCase c{.op = "grad_norm", .shape = fmt::format("n={} clip={}{}", n, clip, text), .tensors = {}};
          c.tensors = {one_double("norm", norm, false), output("clip_scale", 1, 1, kF32, memory_of(o_.space, std::vector<double>{scale})),
                       gradients};
          c.scratch_bytes = [&t = t_, n](const std::string& v) { return t.grad_norm_scratch(v, n); };
          c.launch = [&t = t_, n, clip = clip](OpContext& x, const std::string& v, Pointers p, void* scratch) {
            t.grad_norm(x, v, static_cast<double*>(p[0]), f(p[1]), f(p[2]), n, clip, scratch);
          };
          use_(c);
        }
      }
    }
  }

  // ---- update
  // -------------------------------------------------------------------------------------------------------
  // The weights must be the masters of the same launch, rounded: bit for bit, or each to a neighbour and
  // without a bias.
  static decltype(OpCase::judge) weights_are_rounded(bool stochastic, size_t weights_at, size_t masters_at) {
    return [=](std::span<const Memory> after, const std::string& name, const std::string& detail, GateReport& report) {
      if (!stochastic) {
        report.add(
            must_be_zero(name + " rounding", "parameters", count_not_rounded(after[masters_at], after[weights_at]), "elements", detail));
        return;
      }
      const StochasticJudgement j = judge_stochastic(after[masters_at], after[weights_at]);
      report.add(must_be_zero(name + " rounding", "parameters", j.not_a_neighbour, "elements", detail));
      report.add(make_result(name + " rounding", "parameters", {{"standard deviations of bias", j.bias_sigmas, 6}}, detail));
    };
  }

  void adamw() {
    if (!wanted("adamw") && !wanted("adamw_masters")) return;
    for (const auto& z : z_.updates)
      for (const int64_t step : z.steps)
        for (const bool stochastic : fused_&& every_way() ? std::vector<bool>{false, true} : std::vector<bool>{fused_ && step > 100})
          adamw(z.config, step, stochastic);
  }

  void adamw(const gpt2::ModelConfig& config, int64_t step, bool stochastic) {
    const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
    const gpt2::AdamW settings{.learning_rate = 1e-2f, .weight_decay = 0.1f};
    const float clip_scale = 0.37f;
    const int64_t n = layout.total;
    Values small = normal(0.01), moment = normal(step == 1 ? 0 : 0.01), square = normal(step == 1 ? 0 : 1e-4);
    small.every_fifth = moment.every_fifth = 1e-6;  // where eps matters
    square.every_fifth = 1e-12;
    square.positive = true;
    const OpTensor gradients = input("gradients", 1, n, kF32, small),
                   clip = input_of("clip_scale", 1, 1, kF32, memory_of(o_.space, std::vector<float>{clip_scale}));
    const Memory p = made(n, kF32, normal()), m = made(n, kF32, moment), v = made(n, kF32, square);
    answer::Updated want;
    if (o_.with_answers)
      want = answer::adamw(o_.space, view(p, kF32), view(m, kF32), view(v, kF32), view_of(gradients), layout, settings, step,
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
    }
    c.launch = [&t = t_, layout, settings, step, stochastic, rounds = fused_](OpContext& x, const std::string& variant, Pointers q, void*) {
      t.adamw(x, variant, stochastic, {rounds ? q[5] : nullptr, f(q[0]), f(q[1]), f(q[2]), f(q[3]), f(q[4])}, layout, settings, step);
    };
    if (wanted("adamw")) use_(c);
    if (!has_slot("masters") || !wanted("adamw_masters")) return;
    c.op = "adamw_masters";
    c.slot = "masters";
    c.scratch_bytes = [&t = t_, n](const std::string& masters) { return t.adamw_masters_scratch(masters, n); };
    c.launch = [&t = t_, layout, settings, step, stochastic](OpContext& x, const std::string& masters, Pointers q, void* scratch) {
      t.adamw_masters(x, masters, stochastic, {q[5], f(q[0]), f(q[1]), f(q[2]), f(q[3]), f(q[4])}, layout, settings, step, scratch);
    };
    use_(c);
  }

  void round_parameters() {
    if (!wanted("round_parameters") || !every_way()) return;  // a start's, no step's
    for (const bool stochastic : {false, true})
      for (const int64_t n : {1000, 12'345}) {
        const OpTensor masters = input("master", 1, n, kF32, normal());
        OpCase c{.op = "round_parameters", .shape = fmt::format("n={}{}", n, stochastic ? ", stochastic" : ""), .tensors = {}};
        c.tensors = {output("parameters", 1, n, storage_.weight, answer::stored(o_.space, view_of(masters), kF32, n),
                            {.count = 1, .stochastic = stochastic}),
                     masters};
        c.launch = [&t = t_, n, stochastic](OpContext& x, const std::string&, Pointers p, void*) {
          t.round_parameters(x, stochastic, p[0], f(p[1]), n);
        };
        c.judge = weights_are_rounded(stochastic, 0, 1);
        use_(c);
      }
  }

  const OpTrainer& t_;
  const OpSizes& z_;
  const CaseOptions& o_;
  const UseCase& use_;
  const OpStorage storage_;
  const bool fused_;  // what is fused into products and sums, and weights apart from their masters
  std::vector<std::string> slots_;
  uint64_t drawn_ = 0;
};

}  // namespace

void for_each_case(const OpTrainer& trainer, const OpSizes& sizes, const CaseOptions& options, const UseCase& use) {
  Cases(trainer, sizes, options, use).all();
}

std::vector<std::string> op_names(const OpTrainer& trainer) {
  const gpt2::ModelConfig smallest{8, 61, 64, 1, 1, 8};
  std::vector<std::string> names;
  for_each_case(trainer, model_sizes(smallest, 1, 8), {.space = Space::host, .with_answers = false}, [&](const OpCase& c) {
    if (std::find(names.begin(), names.end(), c.op) == names.end()) names.push_back(c.op);
  });
  return names;
}

}  // namespace gate
