// The one list of op cases: whether every variant of a trainer has one, and whether what is wanted of each is
// right. Cases are made on the host, none is launched: no device needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "experiments/gate/op_answers.h"
#include "experiments/gate/op_candidates.h"
#include "experiments/gate/op_case.h"
#include "experiments/gate/op_cases.h"
#include "experiments/gate/op_compare.h"
#include "gpt2/ops/random_bits.cuh"

namespace gate {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

void for_odd_cases(const OpTrainer& trainer, uint64_t seed, bool with_answers, const UseCase& use) {
  OpSizes sizes = odd_sizes();
  // Their answers would take a minute of one core, and their inputs seconds; smaller vocabularies go through the same lines.
  std::erase_if(sizes.heads, [](const OpSizes::Head& z) { return z.V > 2000; });
  if (!with_answers) {  // names are asked: inputs are drawn for nothing
    std::erase_if(sizes.classifiers, [](const OpSizes::Classifier& z) { return z.V > 2000; });
    std::erase_if(sizes.embeddings, [](const OpSizes::Embedding& z) { return z.V > 2000 || z.C > 500; });
    std::erase_if(sizes.products, [](const OpSizes::Product& z) { return z.in * z.out > 100'000; });
    std::erase_if(sizes.gradients, [](int64_t n) { return n > 100'000; });
    std::erase_if(sizes.elements, [](int64_t n) { return n > 100'000; });
    for (OpSizes::Update& z : sizes.updates) z.steps = {1, 100'000};
  }
  for_each_case(trainer, sizes, {.space = Space::host, .seed = seed, .with_answers = with_answers}, use);
}

using Covered = std::map<std::string, std::set<std::string>>;  // slot -> variants

Covered covered_by(const OpTrainer& trainer) {
  Covered covered;
  const auto table = trainer.variants();
  for_odd_cases(trainer, 1, false, [&](const OpCase& c) {
    for (const std::string& variant : variants_of(table, c)) covered[c.slot.empty() ? c.op : c.slot].insert(variant);
    for (const auto& [slot, variant] : c.also) covered[slot].insert(variant);
  });
  return covered;
}

void expect_every_variant(const OpTrainer& trainer, const std::set<std::string>& whole_step_slots) {
  Covered covered = covered_by(trainer);
  for (const gpt2::VariantInfo& info : trainer.variants())
    for (const std::string& name : info.names)
      if (!whole_step_slots.contains(info.slot)) {
        EXPECT_TRUE(covered[info.slot].contains(name)) << info.slot << "=" << name << " has no op case";
      }
}

// How a step is launched, with which edges between its kernels, which of the library's algorithms runs and what ranks exchange are no ops;
// the whole-model checks and tests/ranks run them.
TEST(OpSuite, EveryVariantOfTheMixedTrainerHasACase) {
  expect_every_variant(mixed_ops(), {"step_launch", "graph_edges", "matmul_algorithm", "communication", "embedding_exchange",
                                     "exchange_start", "gradient_reduction"});
}
TEST(OpSuite, EveryVariantOfTheFp32TrainerHasACase) {
  expect_every_variant(fp32_ops(), {"zero_grad", "communication", "gradient_reduction"});
}

TEST(OpSuite, AVariantThatJoinsTheTableIsJudgedAndTimedWithoutACaseOfItsOwn) {
  const OpCase c{.op = "layernorm_forward", .shape = "", .tensors = {}};
  EXPECT_THAT(variants_of({{"layernorm_forward", {"a", "b", "brand_new"}}}, c), ::testing::ElementsAre("a", "b", "brand_new"));
  OpCase based = c;
  based.baseline = "b";
  based.other_forms = {"a"};
  EXPECT_THAT(variants_of({{"layernorm_forward", {"a", "b", "brand_new"}}}, based), ::testing::ElementsAre("b", "brand_new"));
}

TEST(OpSuite, ACaseThatNamesWhatTheTrainerDoesNotHaveIsRefused) {
  const std::vector<gpt2::VariantInfo> table{{"classifier", {"two_pass"}}};
  OpCase c{.op = "classifier", .shape = "", .tensors = {}};
  c.baseline = "three_pass";
  EXPECT_THROW(variants_of(table, c), std::logic_error);
  c.baseline = "two_pass";
  c.other_forms = {"two_pass"};
  EXPECT_THROW(variants_of(table, c), std::logic_error) << "the baseline is no other form";
  c = OpCase{.op = "x", .shape = "", .tensors = {}, .slot = "y"};
  EXPECT_THROW(variants_of(table, c), std::logic_error);
}

// The gate's real shapes leave no op out that its odd ones have; `kernels` has every op of a step.
TEST(OpSuite, EveryOpOfAStepHasACaseInEachList) {
  for (const OpTrainer* trainer : {&fp32_ops(), &mixed_ops()}) {
    std::set<std::string> odd, model;
    for_odd_cases(*trainer, 1, false, [&](const OpCase& c) { odd.insert(c.op); });
    for (const std::string& op : op_names(*trainer)) model.insert(op);
    EXPECT_TRUE(model.contains("attention_backward"));
    odd.erase("round_parameters");  // of the start
    EXPECT_EQ(odd, model) << trainer->name();
  }
}

// Every result has an answer of its size, and finite values. A kernel that computes exactly and only rounds what it stores is right; zeros, a
// shuffle and 1% of noise are wrong.
TEST(OpSuite, ExactResultsStoredInTheirTypePassAndFakesDoNot) {
  for (const OpTrainer* trainer : {&fp32_ops(), &mixed_ops()})
    for_odd_cases(*trainer, 3, true, [&](const OpCase& c) {
      if (c.not_finite) return;
      const double floor = c.least_budget(trainer->rates().front());
      for (const OpTensor& t : c.tensors) {
        SCOPED_TRACE(trainer->name() + " " + c.op + " " + c.shape + " " + t.name);
        EXPECT_EQ(t.content.bytes(), t.role == Role::output ? 0 : t.byte_count());
        EXPECT_EQ(t.want.bytes(), t.role == Role::input ? 0 : t.count() * 8);
        for (double x : values_of<double>(t.want)) ASSERT_TRUE(std::isfinite(x));
        for (int64_t i = 0; i < (t.role == Role::output ? 0 : t.count()); ++i) ASSERT_TRUE(std::isfinite(view(t.content, t.element)[i]));
        if (t.role == Role::input) continue;
        Memory got(Space::host, t.byte_count());
        convert(got, t.element, view(t.want), t.count());
        const Tolerance limit = t.rounding ? rounding_limit(t.rounding) : op_limit(floor, nullptr);
        const CheckResult r = from_metrics("", "", compare(Space::host, view(got, t.element), view(t.want), t.rows, t.columns), limit);
        EXPECT_TRUE(r.passed) << r.unit << " " << r.error << " > " << r.budget;
        if (t.rounding.count > 0 && t.rounding.inside == 0) {
          EXPECT_LE(worst_element(Space::host, view(got, t.element), view(t.want), t.count()), element_limit(t.rounding));
        }
        EXPECT_TRUE(accepted_fakes(Space::host, view(t.want), t.rows, t.columns, limit).empty());
      }
    });
}

// What `lean` asks, and that it tells a result that is cut off from one that is rounded: there and nowhere else.
TEST(OpSuite, ResultsThatAreCutOffLean) {
  OpSizes z;
  z.embeddings = {{6, 63, 208, 101, 104, 64, TokenKind::repeated}};
  z.norms = {{189, 192, OpSizes::Norm::ordinary}};
  z.products = {{"", 195, 64, 192, true}, {"", 65, 96, 64, false}};
  z.attentions = {{3, 65, 3, 16, false, true}, {1, 130, 5, 20, true, true}};
  z.elements = {30'000};
  z.classifiers = {{130, 509, 512, false}, {130, 509, 512, true}};
  z.heads = {{130, 64, 509, 512, false}};
  z.updates = {{{17, 130, 256, 1, 1, 33}, {1000}}};
  const auto cut = [](double x, int bits) { return std::trunc(x / spacing(x, bits)) * spacing(x, bits); };
  for (const OpTrainer* trainer : {&fp32_ops(), &mixed_ops()}) {
    std::map<std::string, std::set<std::string>> asked;  // op -> tensor/variant
    const std::string rate = trainer->rates().back();
    for_each_case(*trainer, z, {.space = Space::host, .seed = 7}, [&](const OpCase& c) {
      if (c.not_finite) return;
      for (const std::string& variant : variants_of(trainer->variants(), c))
        for (const OpTensor& t : c.tensors) {
          if (t.role == Role::input) continue;
          Memory right(Space::host, t.byte_count()), wrong(Space::host, t.byte_count());
          convert(right, t.element, view(t.want), t.count());
          const auto ask = [&](const Memory& got) {
            return check_lean(c, t, view(got, t.element), variant, rate, c.op + "/" + variant, c.shape);
          };
          const std::optional<CheckResult> of_right = ask(right);
          if (!of_right) continue;
          asked[c.op].insert(t.name + "/" + variant);
          EXPECT_EQ(c.shape.find("scores"), std::string::npos) << "few probabilities";
          EXPECT_EQ(c.shape.find("logits all low"), std::string::npos) << "rows of one number";
          const int bits = t.rounding ? bits_of(t.rounding) : kTf32Bits;
          for (int64_t i = 0; i < t.count(); ++i) store_value(wrong.data(), t.element, i, cut(view(t.want)[i], bits), t.count());
          EXPECT_TRUE(of_right->passed) << c.op << " " << c.shape << " " << t.name << " " << of_right->error;
          const CheckResult of_wrong = ask(wrong).value();
          EXPECT_EQ(of_wrong.name, c.op + "/" + variant + " lean");
          EXPECT_FALSE(of_wrong.passed) << c.op << " " << c.shape << " " << t.name << " " << of_wrong.error << " of " << of_wrong.budget;
        }
    });
    std::set<std::string> ops;
    for (const auto& [op, tensors] : asked) ops.insert(op);
    if (trainer == &fp32_ops()) {
      EXPECT_EQ(rate, "tf32");
      EXPECT_EQ(asked["attention_forward"], std::set<std::string>{"out/flash"}) << "the library may cut off";
      EXPECT_EQ(asked["attention_backward"], std::set<std::string>{"dqkv/flash"});
      EXPECT_EQ(ops, (std::set<std::string>{"attention_backward", "attention_forward"}));
      continue;
    }
    EXPECT_EQ(ops, (std::set<std::string>{"attention_backward", "attention_bias_gradient", "attention_forward", "classifier",
                                          "embedding_backward", "gelu_backward", "gelu_forward", "layernorm_backward", "layernorm_forward",
                                          "linear_backward", "linear_backward_weight", "linear_forward", "linear_gelu_slope_backward",
                                          "linear_gelu_slope_forward", "residual"}));
    EXPECT_EQ(asked["linear_gelu_slope_forward"], (std::set<std::string>{"after/hopper", "slope/hopper"}));
    EXPECT_TRUE(asked["attention_forward"].contains("out/hopper"));
    EXPECT_FALSE(asked["attention_forward"].contains("out/cudnn")) << "the library may round as it likes";
  }
}

// GELU as a product's tail makes it, in fp32 and rounded once. Digits of the coefficient that change places are 2e-4 of the norm.
TEST(OpSuite, AWrongConstantOfGeluLeansForSomeInputs) {
  OpSizes z;
  z.products = {{"", 260, 48, 512, true}};
  int64_t cases = 0;
  for_each_case(mixed_ops(), z, {.space = Space::host, .seed = 9, .only = "linear_gelu_slope_forward"}, [&](const OpCase& c) {
    ++cases;
    const OpTensor &t = c.tensors.front(), &inp = c.tensors[2], &weight = c.tensors[3], &bias = c.tensors[4];
    std::vector<float> input(static_cast<size_t>(t.count()));
    for (int64_t i = 0; i < t.count(); ++i) {
      const int64_t row = i / t.columns, column = i % t.columns;
      double sum = view(bias.content, bias.element)[column];
      for (int64_t k = 0; k < inp.columns; ++k)
        sum += view(inp.content, inp.element)[row * inp.columns + k] * view(weight.content, weight.element)[column * inp.columns + k];
      input[static_cast<size_t>(i)] = static_cast<float>(sum);
    }
    const auto results = [&](float cubic, const auto& before, const auto& stored) {
      constexpr float kTwoU = 2 * 0.7978845608028654f;
      std::vector<Memory> after(c.tensors.size());
      after[0] = Memory(Space::host, t.byte_count());
      after[1] = Memory(Space::host, t.byte_count());
      for (size_t i = 0; i < input.size(); ++i) {
        const float x = before(input[i]), gate = 1 / (1 + std::exp(-kTwoU * (x + cubic * x * x * x)));
        const float slope = gate + x * gate * (1 - gate) * kTwoU * (1 + 3 * cubic * x * x);
        after[0].as<uint16_t>()[i] = stored(x * gate);
        after[1].as<uint16_t>()[i] = stored(slope);
      }
      return after;
    };
    const auto same = [](float x) { return x; };
    const auto failing = [&](const std::vector<Memory>& after, const std::string& variant) {
      GateReport report;
      c.judge(after, c.op + "/" + variant, c.shape, report);
      std::set<std::string> names;
      for (const CheckResult& r : report.results)
        if (!r.passed) names.insert(r.name + " " + r.tensor);
      return names;
    };
    const std::set<std::string> none,
        both{c.op + "/hopper lean after, by eighths of the input", c.op + "/hopper lean slope, by eighths of the input"};
    EXPECT_EQ(failing(results(0.044715f, same, bf16_bits), "hopper"), none);
    const std::vector<Memory> wrong = results(0.044175f, same, bf16_bits);
    EXPECT_EQ(failing(wrong, "hopper"), both);
    for (const size_t at : {size_t{0}, size_t{1}}) {
      const OpTensor& of = c.tensors[at];
      EXPECT_TRUE(from_metrics("", "", compare(Space::host, view(wrong[at], of.element), view(of.want), of.rows, of.columns),
                               rounding_limit(of.rounding))
                      .passed)
          << "seen by norm already";
    }
    EXPECT_EQ(failing(results(0.044715f, same, [](float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }), "hopper"),
              both);
    EXPECT_EQ(failing(results(0.044715f, to_bf16, bf16_bits), "kernel"), none) << "rounds the product before GELU, and may lean";
  });
  EXPECT_EQ(cases, 1);
}

// Moments made of the answers as a right kernel rounds them, and as wrong ones do. The norms of m and v see none of these but the last.
TEST(OpSuite, NarrowMomentsAreHeldToRoundingAtRandom) {
  using gpt2::ops::MomentHalfWords;
  OpSizes z;
  z.updates = {{{17, 130, 256, 1, 1, 33}, {1, 1000}}};
  std::map<std::string, int64_t> cases;
  for_each_case(mixed_ops(), z, {.space = Space::host, .seed = 6, .only = "adamw_moments"}, [&](const OpCase& c) {
    const std::string form = c.other_forms.front() == "split" ? "16_bits" : "split";
    ++cases[form];
    // What lies below the significant bits of m and of v.
    const std::array<uint32_t, 3> below = form == "split" ? std::array{0u, 0xffu, 0xffu} : std::array{0u, 0xffffu, 0x7fffu};
    for (const size_t moment : {size_t{1}, size_t{2}}) {
      const View before = view(c.tensors[moment].content, Element::f32);
      for (int64_t i = 0; i < before.count; ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(before[i])) & below[moment], 0u) << "a number that " << form << " holds";
    }
    const auto stored = [&](size_t tensor, const auto& store) {
      const View want = view(c.tensors[tensor].want);
      std::vector<float> values(static_cast<size_t>(want.count));
      for (size_t i = 0; i < values.size(); ++i) values[i] = store(static_cast<float>(want[static_cast<int64_t>(i)]), i, below[tensor]);
      return memory_of(Space::host, values);
    };
    const auto cut = [](float x, uint32_t random, uint32_t rest) {
      return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + (random & rest)) & ~rest);
    };
    const auto right = [&](float x, size_t i, uint32_t rest) {
      return cut(x, MomentHalfWords(7, static_cast<int64_t>(i / 8)).of_m(static_cast<int>(i % 8)), rest);
    };
    const auto as_it_is = [](float x, size_t, uint32_t) { return x; };
    std::vector<Memory> after(c.tensors.size());
    const Memory by_exact_moments = stored(0, as_it_is);
    after[0] = by_exact_moments;
    after[5] = Memory(Space::host, c.tensors[5].byte_count());
    convert(after[5], Element::bf16, view(after[0], Element::f32), c.tensors[5].count());
    bool moves_by_exact_moments = false;
    const auto failures = [&](const char* variant, const auto& m, const auto& v) {
      after[1] = stored(1, m);
      after[2] = stored(2, v);
      const int64_t step = c.shape.find("t=1000") != std::string::npos ? 1000 : 1;
      after[0] = Memory(Space::host, c.tensors[0].byte_count());
      convert(after[0], Element::f32,
              view(answer::moved(Space::host, view(c.tensors[0].content, Element::f32), view(after[1], Element::f32),
                                 view(after[2], Element::f32), gpt2::tensor_layout(z.updates[0].config), op_cases::update_settings(step),
                                 step)),
              c.tensors[0].count());
      if (moves_by_exact_moments) after[0] = by_exact_moments;
      GateReport report;
      c.judge(after, std::string("adamw_moments/") + variant, c.shape, report);
      std::set<std::string> failing;
      for (const CheckResult& r : report.results)
        if (!r.passed && r.tensor != "parameters") failing.insert(r.tensor);
      return failing;
    };
    using Failing = std::set<std::string>;
    EXPECT_EQ(failures(form.c_str(), right, right), Failing{}) << c.shape;
    EXPECT_EQ(failures("fp32", as_it_is, right), Failing{}) << "what it is held to stands elsewhere";
    moves_by_exact_moments = true;  // and not by those that it stores; 16 bits of them hide that
    EXPECT_EQ(failures(form.c_str(), right, right), form == "split" ? Failing{} : Failing{"master"}) << c.shape;
    moves_by_exact_moments = false;
    for (const int way : {0, 1, 2}) {  // cut off, to nearest, always up
      const auto wrong = [&](float x, size_t, uint32_t rest) { return cut(x, way == 0 ? 0 : way == 1 ? rest / 2 + 1 : rest, rest); };
      EXPECT_EQ(failures(form.c_str(), wrong, wrong), (Failing{"m", "v"})) << c.shape << " " << way;
      EXPECT_EQ(failures(form.c_str(), right, wrong), Failing{"v"}) << c.shape << " " << way;
    }
    const auto one_is_off = [&](float x, size_t i, uint32_t rest) {
      const uint32_t kept = std::bit_cast<uint32_t>(x) & ~rest & (form == "split" ? 0xffff0000u : 0xffffffffu);
      return i == 8 * 33 + 2 ? std::bit_cast<float>(kept + (form == "split" ? 0x4000u : 32 * (rest + 1))) : right(x, i, rest);
    };
    EXPECT_TRUE(failures(form.c_str(), right, one_is_off).contains("v")) << c.shape;
  });
  constexpr int64_t kCases = 2 * 2 * 4;  // steps, weights to nearest and at random, masters and gradients of either form
  EXPECT_EQ(cases, (std::map<std::string, int64_t>{{"split", kCases}, {"16_bits", kCases}}));
}

// Whether the judge of attention's bias gradient tells sums of the tensor beside it from sums without the last tile, and from those of q in the
// place of k's.
TEST(OpSuite, SumsOfAttentionAreHeldAgainstTheGradientThatTheyAreSumsOf) {
  OpSizes z;
  z.attentions = {{2, 129, 3, 64, false, false}, {1, 64, 1, 64, false, false}};
  int64_t cases = 0;
  for_each_case(mixed_ops(), z, {.space = Space::host, .seed = 5, .only = "attention_bias_gradient"}, [&](const OpCase& c) {
    ++cases;
    const OpTensor &dqkv = c.tensors.front(), &dbias = c.tensors.back();
    const int64_t T = z.attentions[dqkv.rows == 64 ? 1 : 0].T, last = (T - 1) / 64 * 64, C = dqkv.columns / 3;
    std::vector<Memory> after(c.tensors.size());
    after.front() = Memory(Space::host, dqkv.byte_count());
    convert(after.front(), dqkv.element, view(dqkv.want), dqkv.count());
    const auto passes = [&](int64_t tokens_of_values, int64_t key_part) {
      std::vector<float> sums(static_cast<size_t>(3 * C));
      if (dbias.role == Role::update)
        for (int64_t k = 0; k < 3 * C; ++k) sums[static_cast<size_t>(k)] = static_cast<float>(view(dbias.content, Element::f32)[k]);
      for (int64_t row = 0; row < dqkv.rows; ++row)
        for (int64_t k = 0; k < 3 * C; ++k) {
          const int64_t part = k / C, from = (part == 1 ? key_part : part) * C + k % C;
          if (part < 2 || row % T < tokens_of_values)
            sums[static_cast<size_t>(k)] += static_cast<float>(view(after.front(), dqkv.element)[row * 3 * C + from]);
        }
      after.back() = memory_of(Space::host, sums);
      GateReport report;
      c.judge(after, c.op, c.shape, report);
      return report.passed();
    };
    EXPECT_TRUE(passes(T, 1)) << c.shape;
    EXPECT_FALSE(passes(last, 1)) << c.shape;
    EXPECT_FALSE(passes(T, 0)) << c.shape;
  });
  EXPECT_EQ(cases, 4);
}

// The same of bias_gradient=softmax_identities, whose keys' part is exactly zero and whose values' part is that of the layer behind: not of its
// transposed weight, of the micro-batches before, or of what is stored.
TEST(OpSuite, WithSoftmaxIdentitiesTheBiasIsOfTheStoredQueriesAndOfTheLayerBehind) {
  OpSizes z;
  z.attentions = {{2, 129, 3, 64, false, false}, {1, 64, 1, 64, false, false}};
  int64_t cases = 0;
  for_each_case(mixed_ops(), z, {.space = Space::host, .seed = 6, .only = "attention_bias_gradient"}, [&](const OpCase& c) {
    ++cases;
    const OpTensor &dqkv = c.tensors.front(), &dbias = c.tensors.back(), &weight = c.tensors[c.tensors.size() - 2],
                   &behind = c.tensors[c.tensors.size() - 3];
    const int64_t C = dqkv.columns / 3;
    ASSERT_EQ(weight.count(), C * C);
    ASSERT_EQ(behind.count(), C);
    std::vector<Memory> after;
    for (const OpTensor& t : c.tensors) after.push_back(t.content);
    after.front() = Memory(Space::host, dqkv.byte_count());
    convert(after.front(), dqkv.element, view(dqkv.want), dqkv.count());
    const auto before = [&](int64_t k) { return dbias.role == Role::update ? view(dbias.content, Element::f32)[k] : 0; };
    struct Fault {
      bool transposed = false, added = false, stored_values = false;
      float key = 0;
    };
    const auto passes = [&](const Fault& fault) {
      std::vector<float> bias(static_cast<size_t>(3 * C));
      for (int64_t k = 0; k < C; ++k) {
        double q = before(k), v = fault.added ? before(2 * C + k) : 0, stored = before(2 * C + k);
        for (int64_t row = 0; row < dqkv.rows; ++row) {
          q += view(after.front(), dqkv.element)[row * 3 * C + k];
          stored += view(after.front(), dqkv.element)[row * 3 * C + 2 * C + k];
        }
        for (int64_t out = 0; out < C; ++out)
          v += view(behind.content, behind.element)[out] *
               view(weight.content, weight.element)[fault.transposed ? k * C + out : out * C + k];
        bias[static_cast<size_t>(k)] = static_cast<float>(q);
        bias[static_cast<size_t>(C + k)] = k == C / 2 ? fault.key : 0;
        bias[static_cast<size_t>(2 * C + k)] = static_cast<float>(fault.stored_values ? stored : v);
      }
      after.back() = memory_of(Space::host, bias);
      GateReport report;
      c.judge(after, c.op + "/softmax_identities", c.shape, report);
      return report.passed();
    };
    EXPECT_TRUE(passes({})) << c.shape;
    EXPECT_FALSE(passes({.transposed = true})) << c.shape;
    EXPECT_EQ(passes({.added = true}), dbias.role == Role::output) << c.shape;
    EXPECT_FALSE(passes({.stored_values = true})) << c.shape;
    EXPECT_FALSE(passes({.key = 1e-30f})) << c.shape;
    EXPECT_FALSE(passes({.key = std::nanf("")})) << c.shape;
  });
  EXPECT_EQ(cases, 4);
}

// Sums of a product in four parts, each of which is rounded to bf16: what some of the library's algorithms do, and the mean of all elements
// hardly shows. The one that the library would take first is right.
TEST(OpSuite, ACandidateThatRoundsThePartsOfASumIsCaught) {
  OpSizes z;
  z.products = {{"", 512, 16, 24, false}};
  int64_t cases = 0;
  for_each_case(mixed_ops(), z, {.space = Space::host, .seed = 7, .only = "linear_backward_weight"}, [&](const OpCase& c) {
    ++cases;
    EXPECT_TRUE(asks_candidates(c, "bf16"));
    EXPECT_FALSE(asks_candidates(c, "fp32"));
    const View dout = view(c.tensors[1].content, Element::bf16), inp = view(c.tensors[2].content, Element::bf16);
    const auto in_parts = [&](int64_t parts) {
      std::vector<double> sums(24 * 16);
      for (int64_t part = 0; part < parts; ++part) {
        std::vector<double> own(sums.size());
        for (int64_t row = part * 512 / parts; row < (part + 1) * 512 / parts; ++row)
          for (int64_t i = 0; i < 24 * 16; ++i) own[static_cast<size_t>(i)] += dout[row * 24 + i / 16] * inp[row * 16 + i % 16];
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += parts == 1 ? own[i] : static_cast<double>(to_bf16(static_cast<float>(own[i])));
      }
      Memory out(Space::host, c.tensors[0].byte_count());
      convert(out, Element::bf16, view(memory_of(Space::host, sums)), c.tensors[0].count());
      return out;
    };
    const Memory right = in_parts(1);
    Memory wrong = in_parts(4);
    const auto check = [&](int all, int wrong_one, int not_launched) {
      return check_candidates(Space::host, c, 1e-5, "linear_backward_weight/bf16", c.shape, [=](int number) {
        Candidate out{.of = all, .offered = std::min(all, 8), .launched = number != not_launched, .results = std::vector<View>(3)};
        out.results[0] = view(number == wrong_one ? wrong : right, Element::bf16);
        return out;
      });
    };
    ASSERT_EQ(check(5, -1, -1).size(), 1u);
    EXPECT_TRUE(check(5, -1, -1)[0].passed);
    EXPECT_FALSE(check(5, 4, -1)[0].passed);
    EXPECT_EQ(check(5, 4, -1)[0].name, "linear_backward_weight/bf16 candidates");
    EXPECT_THAT(check(5, 4, -1)[0].detail, HasSubstr("candidate 4 of 5"));
    EXPECT_TRUE(check(5, 4, 4)[0].passed) << "a search leaves it out";
    EXPECT_TRUE(check(4, 4, -1)[0].passed) << "is not offered";
    EXPECT_FALSE(check(40, 7, -1)[0].passed) << "the last offer";
    EXPECT_FALSE(check(40, 8, -1)[0].passed) << "the first that is named";
    EXPECT_FALSE(check(40, 15, -1)[0].passed);
    EXPECT_TRUE(check(40, 14, -1)[0].passed) << "behind the offers every seventh is asked";
    EXPECT_TRUE(check(0, 0, -1).empty()) << "had its turn";
    convert(wrong, Element::bf16, view(memory_of(Space::host, std::vector<double>(24 * 16, NAN))), c.tensors[0].count());
    EXPECT_FALSE(check(5, 0, -1)[0].passed) << "the right ones behind it do not take the place of what is no number";
  });
  EXPECT_EQ(cases, 1);
}

// The judges of inputs that are no numbers, on made-up results: all finite; no number where it belongs; and everywhere.
TEST(OpSuite, WhatIsNoNumberMustReachLossesAndNormsAndNoOtherRow) {
  std::map<std::string, int64_t> cases;
  OpSizes z;
  z.gradients = {1000};
  z.losses = {63};
  z.classifiers = {{63, 509, 512, false}};
  z.heads = {{63, 200, 509, 512, false}};
  z.updates = {{{17, 130, 256, 1, 1, 33}, {1}}};
  for_each_case(mixed_ops(), z, {.space = Space::host, .seed = 8}, [&](const OpCase& c) {
    if (!c.not_finite) return;
    ++cases[c.op];
    std::set<int64_t> broken;  // rows of what goes in
    for (const OpTensor& t : c.tensors)
      for (int64_t i = 0; i < (t.role == Role::output || t.element == Element::i32 ? 0 : t.count()); ++i)
        if (!std::isfinite(view(t.content, t.element)[i])) broken.insert(t.rows == 1 ? 0 : i / t.columns);
    EXPECT_EQ(broken.size(), c.tensors[0].count() == 1 ? 1u : 4u) << c.op << " " << c.shape;
    const auto passes = [&](const auto& is_number) {
      std::vector<Memory> after;
      for (const OpTensor& t : c.tensors) {
        Memory m(Space::host, t.byte_count());
        for (int64_t i = 0; i < t.count(); ++i)
          store_value(m.data(), t.element, i, t.element == Element::i32 || is_number(i / t.columns) ? 1 : NAN);
        after.push_back(m);
      }
      GateReport report;
      c.judge(after, c.op, c.shape, report);
      for (const CheckResult& r : report.results) EXPECT_EQ(r.name, c.op + " not finite");
      return report.passed();
    };
    EXPECT_TRUE(passes([&](int64_t row) { return !broken.contains(row); })) << c.op << " " << c.shape;
    EXPECT_FALSE(passes([](int64_t) { return true; })) << c.op << " " << c.shape;
    EXPECT_FALSE(passes([&](int64_t row) { return !broken.contains(row) || row == *broken.rbegin(); })) << c.op << " " << c.shape;
    EXPECT_EQ(passes([](int64_t) { return false; }), broken.size() == 1) << c.op << " " << c.shape;
  });
  EXPECT_THAT(cases, ::testing::ElementsAre(::testing::Pair("classifier", 1), ::testing::Pair("grad_norm", 4),
                                            ::testing::Pair("grad_norm_arenas", 10), ::testing::Pair("lm_head", 1),
                                            ::testing::Pair("mean_loss", 4)));
}

TEST(OpSuite, ValuesThatHurtAreThere) {
  std::set<std::string> shapes;
  double least_logit = 0, largest_logit = 0, most_denormal = 1;
  bool adam_late = false, means_far = false;
  for_odd_cases(fp32_ops(), 4, false, [&](const OpCase& c) {
    const OpTensor& first = c.tensors.front();
    if (c.op == "classifier" && c.shape.find("rows=40") != std::string::npos && first.role == Role::update) {
      const View logits = view(first.content, first.element);
      double highest_of_first_row = -1e9;
      for (int64_t v = 0; v < 1153; ++v) highest_of_first_row = std::max(highest_of_first_row, logits[v]);
      least_logit = highest_of_first_row;
      for (int64_t v = 0; v < 1153; ++v) largest_logit = std::max(largest_logit, logits[1280 + v]);
      EXPECT_EQ(logits[1153], 1e4) << "padding may not take part";
      EXPECT_EQ(logits[2 * 1280], logits[2 * 1280 + 1152]) << "a row of equal logits";
    }
    if (c.op == "layernorm_forward" && c.shape.find("means of 300") != std::string::npos) {
      means_far = true;
      EXPECT_NEAR(view(c.tensors[1].content, Element::f32)[5], 300, 3);
    }
    if (c.op == "layernorm_forward" && c.shape.find("denormal") != std::string::npos)
      most_denormal = std::min(most_denormal, std::abs(view(c.tensors[1].content, Element::f32)[11 * first.columns + 1]));
    if (c.op == "adamw" && c.shape.find("t=100000") != std::string::npos) adam_late = true;
  });
  EXPECT_LT(least_logit, -100);
  EXPECT_EQ(largest_logit, 80);
  EXPECT_LT(most_denormal, 1e-38);
  EXPECT_TRUE(adam_late);
  EXPECT_TRUE(means_far);
}

}  // namespace
}  // namespace gate
