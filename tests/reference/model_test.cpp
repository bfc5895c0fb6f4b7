// What must hold of any correct GPT-2, without an oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/errors.h"
#include "tests/reference/reference_support.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace reference_test {
namespace {

using gpt2::ModelConfig;
using gpt2::Tensor;
using gpt2::reference::AdamWNumbers;
using gpt2::reference::ReferenceModel;

template <typename Real>
std::vector<Real> copy(std::span<const Real> values) {
  return {values.begin(), values.end()};
}

template <typename Real>
class BothPrecisions : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(BothPrecisions, Reals);

TYPED_TEST(BothPrecisions, ATokenChangesNoLogitBeforeIt) {
  // 300 positions: more than two row blocks of the attention.
  ModelConfig config = odd_config();
  config.max_seq_len = 300;
  const int64_t T = 300, changed = 150;
  auto model = lively_model<TypeParam>(config, 1, T);
  Tokens tokens = random_tokens(T, config.vocab_size, 5);
  model.forward(tokens.batch());
  const auto before = copy(model.logits());
  int32_t& token = tokens.inputs[static_cast<size_t>(changed)];
  token = (token + 1) % static_cast<int32_t>(config.vocab_size);
  model.forward(tokens.batch());
  const auto first_changed = static_cast<size_t>(changed * config.padded_vocab);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + first_changed, model.logits().begin()));
  for (int64_t t = changed; t < T; ++t) {
    const size_t row = static_cast<size_t>(t * config.padded_vocab), end = row + static_cast<size_t>(config.vocab_size);
    EXPECT_FALSE(std::equal(before.begin() + row, before.begin() + end, model.logits().begin() + row)) << t;
  }
}

TYPED_TEST(BothPrecisions, SequencesOfABatchDoNotSeeEachOther) {
  const ModelConfig config = odd_config();
  auto model = lively_model<TypeParam>(config, 2, 13);
  Tokens tokens = random_tokens(2 * 13, config.vocab_size, 6);
  model.forward(tokens.batch());
  const auto before = copy(model.logits());
  for (int i = 0; i < 13; ++i) tokens.inputs[static_cast<size_t>(i)] = i;
  model.forward(tokens.batch());
  EXPECT_TRUE(std::equal(before.begin() + 13 * config.padded_vocab, before.end(), model.logits().begin() + 13 * config.padded_vocab));
}

void expect_gradients_are_derivatives(int64_t T) {
  ModelConfig config = odd_config();
  config.max_seq_len = T + 2;
  const Tokens tokens = random_tokens(2 * T, config.vocab_size, 7);
  auto model = lively_model<double>(config, 2, T);
  model.forward_backward(tokens.batch());
  const std::vector<double> gradient = copy(std::span<const double>(model.gradients())),
                            start = copy(std::span<const double>(model.parameters()));
  const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
  std::mt19937 bits(8);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const gpt2::TensorSpan& s = layout[row.id];
    std::vector<double> direction(static_cast<size_t>(s.size));
    double expected = 0, length = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      // along the gradient and across it: the first makes the derivative large, the second makes every
      // element matter
      const double g = gradient[static_cast<size_t>(s.offset) + i];
      length += g * g;
      direction[i] = g;
    }
    length = std::sqrt(length / static_cast<double>(direction.size()));
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] = direction[i] / length + (static_cast<double>(bits() % 2001) / 1000.0 - 1.0);
      expected += direction[i] * gradient[static_cast<size_t>(s.offset) + i];
    }
    const auto loss_at = [&](double step) {
      for (size_t i = 0; i < direction.size(); ++i)
        model.parameters()[static_cast<size_t>(s.offset) + i] = start[static_cast<size_t>(s.offset) + i] + step * direction[i];
      return model.forward(tokens.batch());
    };
    // Fourth-order central difference: its truncation and the loss's rounding are both below 1e-8 of it here.
    const double h = 3e-5;
    const double slope = (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
    loss_at(0);
    EXPECT_LE(std::abs(slope - expected) / std::abs(expected), 1e-6) << row.name;
  }
}

TEST(Model, GradientIsTheDirectionalDerivativeOfTheLossInEveryTensor) { expect_gradients_are_derivatives(19); }
TEST(Model, GradientIsTheDerivativeAcrossSeveralRowBlocksOfTheAttention) { expect_gradients_are_derivatives(270); }

// What bias_gradient=softmax_identities of the mixed trainer rests on (mixed/kernels/softmax_bias.cuh), in double, with a causal mask, over
// two micro-batches that add up and several row blocks of the attention. A key bias shifts all scores of a query alike; a value bias adds
// itself to the attention's output, whose gradient is that of attproj's output times attproj's weight.
TEST(Model, OfTheBiasOfQkvAKeysGradientIsZeroAndAValuesFollowsFromAttproj) {
  ModelConfig config = odd_config();
  const int64_t T = 150, C = config.channels;
  config.max_seq_len = T;
  auto model = lively_model<double>(config, 2, T);
  for (const uint32_t seed : {11u, 12u}) model.forward_backward(random_tokens(2 * T, config.vocab_size, seed).batch(), 0.5, seed > 11);
  const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
  const auto of_layer = [&](std::span<const double> all, Tensor t, int64_t layer) {
    return all.subspan(static_cast<size_t>(layout[t].offset + layer * layout[t].per_layer), static_cast<size_t>(layout[t].per_layer));
  };
  const auto n = static_cast<size_t>(C);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto bias = of_layer(model.gradients(), Tensor::qkvb, layer), behind = of_layer(model.gradients(), Tensor::attprojb, layer),
               weight = of_layer(model.parameters(), Tensor::attprojw, layer);
    std::vector<double> of_values(n);
    for (size_t out = 0; out < n; ++out)
      for (size_t in = 0; in < n; ++in) of_values[in] += behind[out] * weight[out * n + in];
    EXPECT_LE((relative_l2<double, double>(bias.subspan(2 * n), of_values)), 1e-12) << layer;
    double keys = 0, queries = 0;
    for (size_t c = 0; c < n; ++c) keys = std::max(keys, std::abs(bias[n + c])), queries = std::max(queries, std::abs(bias[c]));
    EXPECT_GT(queries, 1e-4) << layer << ": that of a query is not zero";
    EXPECT_LE(keys, 1e-13 * queries) << layer;
  }
}

TYPED_TEST(BothPrecisions, BackwardAfterForwardGivesTheGradientsOfTheFusedPathBitForBit) {
  const ModelConfig config = odd_config();
  const Tokens tokens = random_tokens(3 * 17, config.vocab_size, 9);
  auto a = lively_model<TypeParam>(config, 3, 17), b = lively_model<TypeParam>(config, 3, 17);
  EXPECT_EQ(a.forward(tokens.batch()), b.forward_backward(tokens.batch()));
  a.backward();
  EXPECT_TRUE(std::ranges::equal(a.gradients(), b.gradients()));
  EXPECT_THROW(a.backward(), std::logic_error);  // the logits are spent
}

TYPED_TEST(BothPrecisions, TwoMicroBatchesAccumulateToOneBatchOfTwiceTheSize) {
  const ModelConfig config = odd_config();
  const int64_t T = 17, half = 2 * T;
  const Tokens tokens = random_tokens(2 * half, config.vocab_size, 10);
  auto whole = lively_model<TypeParam>(config, 4, T);
  auto parts = lively_model<TypeParam>(config, 2, T);
  const double loss = whole.forward_backward(tokens.batch());
  double parts_loss = 0;
  for (int i = 0; i < 2; ++i) {
    const auto at = static_cast<size_t>(i * half), n = static_cast<size_t>(half);
    const gpt2::Batch batch{std::span(tokens.inputs).subspan(at, n), std::span(tokens.targets).subspan(at, n)};
    parts_loss += 0.5 * parts.forward_backward(batch, 0.5, i > 0);
  }
  const double budget = sizeof(TypeParam) == 4 ? 1e-6 : 1e-14;
  EXPECT_LE(std::abs(parts_loss - loss) / loss, budget);
  const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable)
    EXPECT_LE(relative_l2(part(std::span<const TypeParam>(parts.gradients()), layout[row.id]),
                          part(std::span<const TypeParam>(whole.gradients()), layout[row.id])),
              budget)
        << row.name;
}

TYPED_TEST(BothPrecisions, GradientsOfAnEarlierStepLeaveNoTrace) {
  const ModelConfig config = odd_config();
  auto used = lively_model<TypeParam>(config, 2, 11), fresh = lively_model<TypeParam>(config, 2, 11);
  std::ranges::fill(used.gradients().first(static_cast<size_t>(config.vocab_size * config.channels)), TypeParam(1e3));
  const gpt2::TensorSpan wpe = gpt2::tensor_layout(config)[Tensor::wpe];
  std::ranges::fill(used.gradients().subspan(static_cast<size_t>(wpe.offset)), TypeParam(1e3));
  used.forward_backward(random_tokens(22, config.vocab_size, 1).batch());
  const Tokens tokens = random_tokens(22, config.vocab_size, 2);
  used.forward_backward(tokens.batch());
  fresh.forward_backward(tokens.batch());
  EXPECT_TRUE(std::ranges::equal(used.gradients(), fresh.gradients()));
}

#ifdef _OPENMP
TYPED_TEST(BothPrecisions, TheNumberOfThreadsChangesNoBit) {
  // Large enough that no op keeps to one thread: 164 rows of 60 columns.
  ModelConfig config{.max_seq_len = 41, .vocab_size = 301, .padded_vocab = 320, .layers = 2, .heads = 3, .channels = 60};
  const int before = omp_get_max_threads();
  std::vector<TypeParam> parameters[2];
  double losses[2] = {}, norms[2] = {};
  for (int run = 0; run < 2; ++run) {
    omp_set_num_threads(run == 0 ? 1 : 3);
    auto model = lively_model<TypeParam>(config, 4, 41);
    for (int64_t t = 1; t <= 2; ++t) {
      losses[run] = model.forward_backward(random_tokens(164, config.vocab_size, static_cast<uint32_t>(t)).batch());
      norms[run] = model.gradient_norm();
      model.update({.learning_rate = 1e-3, .t = t});
    }
    parameters[run] = copy(std::span<const TypeParam>(model.parameters()));
  }
  omp_set_num_threads(before);
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(parameters[0], parameters[1]);
}
#endif

TYPED_TEST(BothPrecisions, PaddingRowsOfWteStayZero) {
  const ModelConfig config = odd_config();
  auto model = lively_model<TypeParam>(config, 2, 20);
  for (int64_t t = 1; t <= 3; ++t) {
    model.forward_backward(random_tokens(40, config.vocab_size, static_cast<uint32_t>(t)).batch());
    model.update({.learning_rate = 1e-2, .weight_decay = 0.1, .t = t});
  }
  const auto padding = model.parameters().subspan(static_cast<size_t>(config.vocab_size * config.channels),
                                                  static_cast<size_t>((config.padded_vocab - config.vocab_size) * config.channels));
  EXPECT_TRUE(std::ranges::all_of(padding, [](TypeParam x) { return x == 0; }));
}

TYPED_TEST(BothPrecisions, WhatStandsInThePaddingDoesNotMatter) {
  const ModelConfig config = odd_config();
  const Tokens tokens = random_tokens(2 * 20, config.vocab_size, 12);
  auto clean = lively_model<TypeParam>(config, 2, 20), dirty = lively_model<TypeParam>(config, 2, 20);
  const auto padding = dirty.parameters().subspan(static_cast<size_t>(config.vocab_size * config.channels),
                                                  static_cast<size_t>((config.padded_vocab - config.vocab_size) * config.channels));
  std::ranges::fill(padding, std::numeric_limits<TypeParam>::max());
  EXPECT_EQ(clean.forward(tokens.batch()), dirty.forward(tokens.batch()));
  for (int64_t row = 0; row < 40; ++row)
    for (int64_t v = config.vocab_size; v < config.padded_vocab; ++v)
      ASSERT_EQ(dirty.logits()[static_cast<size_t>(row * config.padded_vocab + v)], 0);
  clean.backward();
  dirty.backward();
  EXPECT_TRUE(std::ranges::equal(clean.gradients(), dirty.gradients()));
}

TEST(Model, WeightDecayShrinksMatricesAndNothingElse) {
  const ModelConfig config = odd_config();
  auto model = lively_model<double>(config, 1, 4);
  const std::vector<double> start = copy(std::span<const double>(model.parameters()));
  // No gradient yet, so the update is the decay alone.
  model.update({.learning_rate = 0.5, .weight_decay = 0.1, .t = 1});
  const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const gpt2::TensorSpan& s = layout[row.id];
    const bool matrix = s.rows > 1;
    for (int64_t i = s.offset; i < s.offset + s.size; ++i) {
      const size_t at = static_cast<size_t>(i);
      ASSERT_DOUBLE_EQ(model.parameters()[at], matrix ? start[at] - 0.5 * (0.1 * start[at]) : start[at]) << row.name;
    }
  }
}

TEST(Model, RefusesShapesAndBatchesItCannotTake) {
  const ModelConfig config = odd_config();
  using Model = ReferenceModel<float>;
  EXPECT_THROW(Model(config, 0, 4), stepscope::InputError);
  EXPECT_THROW(Model(config, 1, config.max_seq_len + 1), stepscope::InputError);
  EXPECT_THROW(Model(config, int64_t{1} << 62, 4), stepscope::InputError);  // B*T overflows
  EXPECT_THROW(Model(config, int64_t{1} << 29, 4), stepscope::MachineError);
  Model model(config, 1, 4);
  EXPECT_THROW(model.set_parameters(std::vector<float>(7)), stepscope::InputError);
  const std::vector<int32_t> good{0, 1, 2, 66}, beyond{0, 1, 2, 67}, negative{0, -1, 2, 3}, few{0, 1, 2};
  EXPECT_NO_THROW(model.forward({good, good}));
  EXPECT_THROW(model.forward({beyond, good}), stepscope::InputError);
  EXPECT_THROW(model.forward({good, beyond}), stepscope::InputError);
  EXPECT_THROW(model.forward({negative, good}), stepscope::InputError);
  EXPECT_THROW(model.forward({few, few}), stepscope::InputError);
  EXPECT_THROW(model.backward(), std::logic_error);
}

}  // namespace
}  // namespace reference_test
