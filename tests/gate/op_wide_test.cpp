// What is there for the size of a model alone: channels and heads of wider models than d12, and more parameters than 31 bits count. Results
// are made up on the host, right ones and those of a kernel that knows smaller models only, and held against the cases as the gate does.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "experiments/gate/op_answers.h"
#include "experiments/gate/op_case.h"
#include "experiments/gate/op_compare.h"
#include "experiments/gate/workload.h"

namespace gate {
namespace {

using Failing = std::set<std::string>;

// Names of the checks that refuse `after`, which has a tensor for each of the case's.
Failing failing(const OpTrainer& trainer, const OpCase& c, std::span<const Memory> after) {
  GateReport report;
  for (size_t i = 0; i < c.tensors.size(); ++i) {
    const OpTensor& t = c.tensors[i];
    if (t.role == Role::input) continue;
    const Tolerance limit = t.rounding ? rounding_limit(t.rounding) : op_limit(c.least_budget(trainer.rates().front()), nullptr);
    report.add(
        from_metrics(c.op + " error", t.name, compare(Space::host, view(after[i], t.element), view(t.want), t.rows, t.columns), limit));
  }
  if (c.judge) c.judge(after, c.op, c.shape, report);
  Failing names;
  for (const CheckResult& r : report.results)
    if (!r.passed) names.insert(r.name);
  return names;
}

// What a kernel leaves that computes exactly and rounds what it stores.
std::vector<Memory> right(const OpCase& c) {
  std::vector<Memory> after;
  for (const OpTensor& t : c.tensors) {
    after.push_back(t.role == Role::input ? t.content : Memory(Space::host, t.byte_count()));
    if (t.role != Role::input) convert(after.back(), t.element, view(t.want), t.count());
  }
  return after;
}

void set(const Memory& m, const OpTensor& t, int64_t i, double value) { store_value(m.data(), t.element, i, value, t.count()); }

// ---- channels
// One round of a block of 256 threads: packs of 4 in fp32, of 8 in bf16, and single channels where no pack divides them.
TEST(WideOps, AnEmbeddingOfOneRoundOfChannelsIsFound) {
  for (const OpTrainer* trainer : {&fp32_ops(), &mixed_ops()}) {
    OpSizes z = odd_sizes();
    std::erase_if(z.embeddings, [](const OpSizes::Embedding& e) { return e.C < 1000; });
    const int64_t pack = trainer->storage().one_way_out() ? 4 : 8;
    int64_t beyond = 0;
    for_each_case(*trainer, z, {.space = Space::host, .seed = 3, .only = "embedding_forward"}, [&](const OpCase& c) {
      const OpTensor& out = c.tensors.front();
      const int64_t once = 256 * (out.columns % pack == 0 ? pack : 1);
      std::vector<Memory> after = right(c);
      EXPECT_EQ(failing(*trainer, c, after), Failing{}) << c.shape;
      if (out.columns <= once) return;
      ++beyond;
      for (int64_t i = 0; i < out.count(); ++i)
        if (i % out.columns >= once) set(after.front(), out, i, 0.5);
      EXPECT_TRUE(failing(*trainer, c, after).contains("embedding_forward error")) << c.shape;
    });
    EXPECT_GE(beyond, 2) << trainer->name();
  }
}

TEST(WideOps, AHeadWhoseRowFactorsReach1024ChannelsIsFound) {
  OpSizes z;
  z.ways = OpSizes::Ways::plain;
  z.heads = {{21, 1088, 61, 64, false}};
  int64_t cases = 0;
  for_each_case(mixed_ops(), z, {.space = Space::host, .seed = 4, .only = "lm_head"}, [&](const OpCase& c) {
    ++cases;
    std::vector<Memory> after = right(c);
    EXPECT_EQ(failing(mixed_ops(), c, after), Failing{});
    const OpTensor& dx = c.tensors[1];
    ASSERT_EQ(dx.name, "dx");
    for (int64_t i = 0; i < dx.count(); ++i)
      if (i % dx.columns >= 1024) set(after[1], dx, i, view(dx.want)[i] * 61 / 0.5);  // the sum of 61 exponentials near 1, and the scale
    EXPECT_EQ(failing(mixed_ops(), c, after), (Failing{"lm_head error", "lm_head scale"}));
  });
  EXPECT_EQ(cases, 1);
}

// A row whose roundings average out no further: 255 times a power of two times bf16 numbers, of which 128 mantissas are all that there is.
TEST(WideOps, ARowOfOneNumberTimesManyIsAllowedItsRoundings) {
  constexpr int64_t rows = 20, columns = 2560;
  Memory drawn(Space::host, rows * columns * 2), got(Space::host, rows * columns * 2);
  fill(drawn, Element::bf16, Values{.seed = 5, .deviation = 0.02});
  const Memory want(Space::host, rows * columns * 8);
  for (int64_t i = 0; i < rows * columns; ++i) {
    want.as<double>()[i] = view(drawn, Element::bf16)[i] * 255 / 256;
    store_value(got.data(), Element::bf16, i, view(want)[i]);
  }
  const RowScale limit{.deviation = std::sqrt(2.0) * kBf16Deviation};
  EXPECT_LT(worst_row_scale(Space::host, view(got, Element::bf16), view(want), rows, columns, limit), 0.8);
  for (int64_t c = 0; c < columns; ++c)
    store_value(got.data(), Element::bf16, 7 * columns + c, view(want)[7 * columns + c] * (1 - 2 * kBf16Unit));
  EXPECT_GT(worst_row_scale(Space::host, view(got, Element::bf16), view(want), rows, columns, limit), 1);
}

// ---- more parameters than 31 bits count, played with fewer

constexpr gpt2::ModelConfig kModel{17, 130, 256, 2, 1, 64};
constexpr int64_t kEach = 512, kBeyond = int64_t{1} << 16;

OpSizes long_vectors() {
  OpSizes z;
  z.ways = OpSizes::Ways::by_rows;
  z.updates = {{kModel, {99}, kEach, {kBeyond / 2, kBeyond}}};
  return z;
}

TEST(Stretches, LieAtBothEndsAndAroundEachPlace) {
  const Stretches s = stretches_of(1000, 20, {300, 600, 5000});
  EXPECT_EQ(s.count(), 80);
  std::set<int64_t> elements;
  for (const Stretch& part : s.all)
    for (int64_t i = 0; i < part.count; ++i) elements.insert(part.first + i);
  EXPECT_EQ(elements.size(), size_t{80});
  for (const int64_t i : {0, 19, 290, 300, 309, 590, 600, 980, 999}) EXPECT_TRUE(elements.contains(i)) << i;
  EXPECT_THROW(stretches_of(1000, 20, {995}), std::logic_error);

  Memory content(Space::host, s.count() * 4), whole(Space::host, s.whole * 4);
  fill(content, Element::f32, Values{.seed = 1});
  spread(whole.data(), content, 4, s);
  EXPECT_EQ(whole.as<float>()[290], content.as<float>()[20]);
  EXPECT_EQ(whole.as<float>()[999], content.as<float>()[79]);
  for (int64_t i = 0; i < s.whole; ++i) EXPECT_EQ(whole.as<float>()[i] != 0, elements.contains(i)) << i;
  EXPECT_EQ(values_of<float>(gathered(whole.data(), Space::host, 4, s)), values_of<float>(content));
}

TEST(Stretches, AnElementIsOfTheSameTensorThere) {
  const gpt2::TensorLayout layout = gpt2::tensor_layout(kModel);
  const Stretches s = stretches_of(layout.total, kEach, {kBeyond / 2, kBeyond});
  const gpt2::TensorLayout there = cut(layout, s);
  EXPECT_EQ(there.total, s.count());
  const auto tensor_of = [](const gpt2::TensorLayout& l, int64_t element) {
    for (int i = 0; i < gpt2::kTensorCount; ++i)
      if (const gpt2::TensorSpan& span = l.span[static_cast<size_t>(i)]; element >= span.offset && element < span.offset + span.size)
        return i;
    return -1;
  };
  int64_t at = 0;
  for (const Stretch& part : s.all)
    for (int64_t i = part.first; i < part.first + part.count; ++i, ++at) ASSERT_EQ(tensor_of(there, at), tensor_of(layout, i)) << i;
}

// The whole vectors of a case's tensors as a launch gets them.
std::vector<Memory> launched_with(const OpCase& c) {
  std::vector<Memory> whole;
  for (const OpTensor& t : c.tensors) {
    whole.emplace_back(Space::host, c.bytes_at_launch(t));
    set_bytes(whole.back().data(), Space::host, std::byte{0}, whole.back().bytes());
    if (t.role == Role::output) continue;
    if (t.stretched)
      spread(whole.back().data(), t.content, bytes_of_element(t.element), c.stretches);
    else
      copy(whole.back(), t.content);
  }
  return whole;
}
std::vector<Memory> stretches_after(const OpCase& c, const std::vector<Memory>& whole) {
  std::vector<Memory> after;
  for (size_t i = 0; i < whole.size(); ++i) {
    const OpTensor& t = c.tensors[i];
    after.push_back(t.stretched ? gathered(whole[i].data(), Space::host, bytes_of_element(t.element), c.stretches) : whole[i]);
  }
  return after;
}

// An update of all elements below `bound`.
TEST(LongVectors, AnUpdateWhoseIndexEndsBelowTheLastParameterIsFound) {
  const gpt2::TensorLayout layout = gpt2::tensor_layout(kModel);
  std::set<std::string> ops;
  for (const OpTrainer* trainer : {&fp32_ops(), &mixed_ops()})
    for_each_case(*trainer, long_vectors(), {.space = Space::host, .seed = 6}, [&](const OpCase& c) {
      ops.insert(trainer->name() + " " + c.op);
      if (c.op != "adamw" && c.op != "adamw_masters") return;
      const auto run = [&](int64_t bound) {
        const std::vector<Memory> whole = launched_with(c);
        const answer::Updated u =
            answer::adamw(Space::host, view(whole[0], Element::f32), view(whole[1], Element::f32), view(whole[2], Element::f32),
                          view(whole[3], Element::f32), layout, slower_if_late({.learning_rate = 1e-2f, .weight_decay = 0.1f}, 99), 99,
                          static_cast<double>(*whole[4].as<float>()));
        for (const auto& [to, from] : {std::pair{whole[0], u.parameters}, {whole[1], u.m}, {whole[2], u.v}})
          for (int64_t i = 0; i < bound; ++i) store_value(to.data(), Element::f32, i, view(from)[i]);
        if (whole.size() > 5) convert(whole[5], Element::bf16, view(whole[0], Element::f32), layout.total);
        return failing(*trainer, c, stretches_after(c, whole));
      };
      EXPECT_EQ(run(layout.total), Failing{}) << c.op;
      for (const int64_t bound : {kBeyond, layout.total - 1}) EXPECT_TRUE(run(bound).contains(c.op + " error")) << c.op << " " << bound;
    });
  EXPECT_EQ(ops, (std::set<std::string>{"fp32 adamw", "fp32 grad_norm", "mixed adamw", "mixed adamw_masters", "mixed adamw_moments",
                                        "mixed grad_norm", "mixed grad_norm_arenas", "mixed round_parameters"}));
}

TEST(LongVectors, ANormWithoutTheLastGradientsIsFound) {
  const int64_t n = gpt2::tensor_layout(kModel).total;
  int64_t cases = 0;
  for (const char* op : {"grad_norm", "grad_norm_arenas"})
    for_each_case(mixed_ops(), long_vectors(), {.space = Space::host, .seed = 7, .only = op}, [&](const OpCase& c) {
      ++cases;
      const std::vector<Memory> whole = launched_with(c);
      for (const auto& [first, count, passes] :
           {std::tuple{int64_t{0}, n, true}, {0, kBeyond, false}, {0, n - 1, false}, {1, n - 1, false}}) {
        const double norm = answer::norm(Space::host, {whole[2].as<float>() + first, Element::f32, count}, count);
        *whole[0].as<double>() = norm;
        *whole[1].as<float>() = static_cast<float>(std::min(1.0, 0.5 / norm));
        EXPECT_EQ(failing(mixed_ops(), c, stretches_after(c, whole)).empty(), passes) << c.shape << " from " << first << " " << count;
      }
    });
  EXPECT_EQ(cases, 3);
}

TEST(LongVectors, WeightsThatAreNotRoundedFromABoundOnAreFound) {
  for_each_case(mixed_ops(), long_vectors(), {.space = Space::host, .seed = 8, .only = "round_parameters"}, [&](const OpCase& c) {
    if (c.shape.find("stochastic") != std::string::npos) return;
    const std::vector<Memory> whole = launched_with(c);
    const View masters = view(whole[1], Element::f32);
    convert(whole[0], Element::bf16, masters, masters.count);
    EXPECT_EQ(failing(mixed_ops(), c, stretches_after(c, whole)), Failing{}) << c.shape;
    for (int64_t i = kBeyond; i < masters.count; ++i) store_value(whole[0].data(), Element::bf16, i, 0);
    EXPECT_EQ(failing(mixed_ops(), c, stretches_after(c, whole)), (Failing{"round_parameters error", "round_parameters rounding"}));
  });
}

}  // namespace
}  // namespace gate
