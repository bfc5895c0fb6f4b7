// Makes the op cases: what a case is put together from, and one function per op. Private to op_cases*.cpp; op_case.h is the interface.
//
// Inputs are drawn and rounded as the trainer stores them, and answers are computed in double from exactly
// these. What bf16 costs on the way out is said per tensor (Rounding), so an fp32 result is held to fp32
// everywhere. Where the definition leaves one right answer (a sum of two numbers, rounded), that answer is
// wanted. Every case draws its own inputs: a kernel cannot have been tuned to them, and a result that is
// cached by pointer or shape shows.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/gate/moment_bits.h"
#include "experiments/gate/op_answers.h"
#include "experiments/gate/op_case.h"
#include "experiments/gate/op_compare.h"
#include "experiments/gate/workload.h"

namespace gate::op_cases {

using Pointers = std::span<void* const>;

inline constexpr Element kF32 = Element::f32, kBf16 = Element::bf16, kSplit = Element::split;

inline float* f(void* p) { return static_cast<float*>(p); }
inline const int* ints(void* p) { return static_cast<const int*>(p); }
inline const char* name_of(Element e) { return e == kSplit ? "split" : e == kBf16 ? "bf16" : "fp32"; }

// Tensor cores cut off where other units round: at worst a unit of fp32 for each 16 terms that they add.
inline Rounding fp32_of_product(int64_t terms) { return {.inside = 1e-6 + 0x1p-24 * static_cast<double>(terms) / 16}; }
inline double flops(const LinearShape& s) {
  return 2 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out);
}

inline gpt2::AdamW update_settings(int64_t step) { return slower_if_late({.learning_rate = 1e-2f, .weight_decay = 0.1f}, step); }

// Of OpCase::may_lean.
inline bool always(const std::string&, const std::string&) { return true; }

// Gradients of a layout, those of the blocks' matrices rounded to bf16 numbers.
// wte_too: those of wte as well.
Memory bf16_in_blocks(Memory gradients, const gpt2::TensorLayout& layout, bool wte_too = false);

class OpCases {
 public:
  OpCases(const OpTrainer& trainer, const OpSizes& sizes, const CaseOptions& options, const UseCase& use)
      : t_(trainer), z_(sizes), o_(options), use_(use), storage_(trainer.storage()), fused_(!storage_.one_way_out()) {
    for (const gpt2::VariantInfo& info : t_.variants()) slots_.push_back(info.slot);
  }

  void all();

 private:
  // ---- what cases are made of
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
  Rounding once(Element e) const {
    if (e == kSplit) return {.inside = kSplitUnit};
    return e == kBf16 ? Rounding{.count = 1} : Rounding{};
  }
  // Of a stream that keeps more than an activation and has no rounded copy in itself.
  bool has_copy(Element stream) const { return stream == kF32 && storage_.activation != kF32; }
  Rounding out_of_product(Rounding of_bf16) const { return fused_ ? of_bf16 : Rounding{}; }
  std::vector<bool> ways(int64_t rows) const {
    if (z_.ways == OpSizes::Ways::every) return {false, true};
    return {z_.ways == OpSizes::Ways::by_rows && rows % 2 == 1};
  }
  bool every_way() const { return z_.ways == OpSizes::Ways::every; }
  // What is asked of the parameters of `z`: all of them where it says nothing.
  static Stretches stretches(const OpSizes::Update& z) {
    if (z.each == 0) return {};
    return stretches_of(gpt2::tensor_layout(z.config).total, z.each, z.places);
  }
  // The vectors of parameters in `c` are these of longer ones.
  static void stretch(OpCase& c, const Stretches& s) {
    if (!s) return;
    for (OpTensor& t : c.tensors) t.stretched = t.count() == s.count();
    c.shape += fmt::format(", {} parameters", s.whole);
    c.stretches = s;
  }
  static const char* adds_text(bool adds) { return adds ? ", adds" : ""; }
  bool has_slot(std::string_view slot) const { return std::find(slots_.begin(), slots_.end(), slot) != slots_.end(); }
  void also(OpCase& c, const char* slot, const std::string& variant) const {
    if (has_slot(slot)) c.also.emplace_back(slot, variant);
  }
  // Gradients are written over, or zeroed first and added to: what the slot zero_grad chooses.
  void also_zero_grad(OpCase& c, bool adds) const { also(c, "zero_grad", adds ? "memset" : "overwrite"); }
  std::string stream_text(Element stream) const { return storage_.streams.size() > 1 ? fmt::format(" {}", name_of(stream)) : ""; }

  // ---- ops on the residual stream (op_cases_stream.cpp)
  // Whether gradients add, and how dwte is stored.
  std::vector<std::pair<bool, Element>> ways_of_embedding(int64_t rows) const;
  void embedding(Element stream);
  Values stream_rows(const OpSizes::Rows& z, Element element, std::string& shape);
  Rounding normed(const OpSizes::Rows& z) const;
  void layernorm(Element stream);
  void layernorm_forward(const OpSizes::Rows& z, Element stream, const std::string& shape, const OpTensor& inp, const OpTensor& weight,
                         const OpTensor& bias);
  void layernorm_backward(const OpSizes::Rows& z, Element stream, const std::string& shape, const OpTensor& inp, const OpTensor& weight);
  decltype(OpCase::judge) sums_are_of_the_stored(const char* terms, size_t terms_at, size_t sums_at, int64_t rows,
                                                 const OpTensor& sums) const;
  void judge_upper_halves(OpCase& c) const;
  void residual_layernorm(Element stream);
  void residual_sum(Element stream);

  // ---- products and attention (op_cases_products.cpp)
  void linear();
  void linear_forward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const OpTensor& inp,
                      const OpTensor& weight);
  void linear_backward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const OpTensor& inp,
                       const OpTensor& weight);
  // dbias null: lm_head's product, which slot wte_gradient is about.
  void linear_backward_weight(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const Memory& dweight,
                              const Memory* dbias, const OpTensor& dout, const OpTensor& inp);
  void linear_gelu_slope_forward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const Memory& product,
                                 const Rounding& sum, const std::array<OpTensor, 3>& operands);
  decltype(OpCase::judge) no_input_leans(const Memory& product, const Memory& after, const Memory& slope) const;
  void linear_gelu_slope_backward(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const Memory& dx,
                                  const OpTensor& dout, const OpTensor& weight);
  void lm_head();
  decltype(OpCase::judge) rows_are_scaled_right(size_t at, int64_t rows, int64_t columns, const Memory& want) const;
  void attention();
  struct Behind;
  Behind behind_attention(int64_t rows, int64_t C);
  Rounding of_sums(const OpTensor& terms, const OpTensor& sums) const;
  void attention_bias_gradient(const OpCase& backward, const OpShape& s, const Behind& behind);
  decltype(OpCase::judge) bias_is_of_the_stored(size_t bias_at, const OpShape& s, const Behind& behind, const OpTensor& dbias) const;
  static OpCase planned(OpCase c, const char* op);

  // ---- inputs that are no finite numbers (op_cases_not_finite.cpp)
  void not_finite();
  void norm_not_finite();
  void norm_of_arenas_not_finite();
  void mean_loss_not_finite();
  void classifier_not_finite();
  void lm_head_not_finite();
  // That of the rows of result `at` all elements of these are no finite numbers, and all of the others are.
  decltype(OpCase::judge) broken_alone(size_t at, const OpTensor& result, std::vector<int64_t> rows) const;
  void use_not_finite(OpCase c);

  // ---- all others (op_cases.cpp)
  void gelu();
  void classifier();
  void mean_loss();
  void grad_norm();
  void grad_norm(int64_t gradient_count, const Stretches& s);
  void round_parameters();
  void round_parameters(int64_t parameter_count, const Stretches& s);
  static decltype(OpCase::judge) weights_are_rounded(bool stochastic, size_t weights_at, size_t masters_at);
  void adamw();
  void adamw(const OpSizes::Update& z, int64_t step, bool stochastic);
  struct UpdateInputs {
    bool bf16_gradients = false;  // those of the blocks' matrices are bf16 numbers
    bool bf16_wte = false;        // and wte's
    MomentBits moments{};         // which are numbers of so many bits
  };
  OpCase update_case(const OpSizes::Update& z, int64_t step, bool stochastic, const UpdateInputs& inputs);
  // ---- gradients in two arenas (op_cases_arenas.cpp)
  void grad_norm_arenas();
  void adamw_arenas(const OpSizes::Update& z, int64_t step, bool stochastic);
  // ---- moments that are not in fp32 (op_cases_moments.cpp)
  void adamw_moments(const OpSizes::Update& z, int64_t step, bool stochastic);
  void adamw_moments(const OpSizes::Update& z, int64_t step, bool stochastic, const char* variant, const MomentBits& bits,
                     const char* other);

  const OpTrainer& t_;
  const OpSizes& z_;
  const CaseOptions& o_;
  const UseCase& use_;
  const OpStorage storage_;
  const bool fused_;  // what is fused into products and sums, and weights apart from their masters
  std::vector<std::string> slots_;
  uint64_t drawn_ = 0;
};

}  // namespace gate::op_cases
