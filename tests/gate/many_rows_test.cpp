#include "experiments/gate/many_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "gpt2/tensor_table.h"
#include "tests/gate/broken_trainer.h"

namespace gate {
namespace {

using gate_test::BrokenTrainer;
using gate_test::Defect;

const Case kCase{"rows", {.max_seq_len = 8, .vocab_size = 61, .padded_vocab = 64, .layers = 1, .heads = 2, .channels = 16}, 6, 8};

// Wrong from four sequences on.
std::map<std::string, bool> passed_with(const Defect& defect) {
  std::map<std::string, bool> passed;
  const auto make = [&](int64_t sequences) {
    gpt2::TrainerOptions o;
    o.model = kCase.config;
    o.batch_size = sequences;
    o.seq_len = kCase.seq_len;
    return std::make_unique<BrokenTrainer>(o, sequences < 4 ? Defect{} : defect);
  };
  for (const CheckResult& r : check_many_rows(make, kCase, 2, 1e-4, 7)) passed[r.tensor] = r.passed;
  return passed;
}

TEST(ManyRows, ATrainerThatIsRightForAnyNumberPasses) {
  const auto passed = passed_with({});
  EXPECT_EQ(passed.size(), size_t{2} + gpt2::kTensorCount);
  for (const auto& [tensor, ok] : passed) EXPECT_TRUE(ok) << tensor;
}

TEST(ManyRows, WhatIsWrongForManyAloneIsCaught) {
  const Defect gradient{.gradients = [](std::span<float> values, const gpt2::TrainerOptions& o, const gpt2::Batch&) {
    values[static_cast<size_t>(gpt2::tensor_layout(o.model)[gpt2::Tensor::fcb].offset)] = 0;  // one of 64
  }};
  const Defect evaluate{.evaluate_only = [](std::span<float>, double& loss) { loss *= 1.001; }};
  const Defect loss{.forward = [](std::span<float>, double& x, const gpt2::Batch&, const gpt2::TrainerOptions&, float) { x *= 1.001; },
                    .evaluate_only = [](std::span<float>, double& x) { x /= 1.001; }};
  for (const auto& [defect, tensor] : {std::pair(gradient, "fcb"), {evaluate, "evaluate"}, {loss, "loss"}})
    for (const auto& [name, ok] : passed_with(defect)) EXPECT_EQ(ok, name != tensor) << tensor << ": " << name;
}

// 2^32 logits, and more rows than 16 bits count.
TEST(ManyRows, TheCaseGoesBeyondWhatShortNumbersCount) {
  const Case c = many_rows_case();
  const int64_t rows = c.batch_size * c.seq_len;
  EXPECT_GT(rows, 1 << 16);
  EXPECT_GT(rows * c.config.padded_vocab, int64_t{1} << 32);
  EXPECT_EQ(c.batch_size % 8, 0);
}

// Three or four times a row's channels, of the last layer: 2^31 values away, as fp32 counts them.
TEST(ManyRows, TheCaseOfManyLayersGoesBeyond31BitsFromTheFirstToTheLast) {
  const Case c = many_layers_case();
  const int64_t values = c.batch_size * c.seq_len * c.config.channels * (c.config.layers - 1);
  EXPECT_GT(3 * values, int64_t{1} << 31);
  EXPECT_EQ(c.batch_size % 64, 0);
  EXPECT_EQ(c.config.channels / c.config.heads, 64);
}

// A layer whose activations lie on those of another one is wrong where the many layers are, and by as much as it has.
TEST(ManyRows, OneWrongLayerOfManyIsCaughtByTheBudgetOfManyLayers) {
  Case deep = kCase;
  deep.config.layers = 48;
  const Defect last_layer{.gradients = [](std::span<float> values, const gpt2::TrainerOptions& o, const gpt2::Batch&) {
    const gpt2::TensorSpan& fcw = gpt2::tensor_layout(o.model)[gpt2::Tensor::fcw];
    const auto of_last = values.subspan(static_cast<size_t>(fcw.offset + (o.model.layers - 1) * fcw.per_layer));
    std::ranges::fill(of_last.first(static_cast<size_t>(fcw.per_layer)), 0.0f);
  }};
  const auto make = [&](int64_t sequences) {
    gpt2::TrainerOptions o;
    o.model = deep.config;
    o.batch_size = sequences;
    o.seq_len = deep.seq_len;
    return std::make_unique<BrokenTrainer>(o, sequences < 4 ? Defect{} : last_layer);
  };
  for (const char* matmul : {"fp32", "bf16"})
    for (const CheckResult& r : check_many_rows(make, deep, 2, many_layers_budget(matmul), 7))
      EXPECT_EQ(r.passed, r.tensor != "fcw") << matmul << " " << r.tensor << " " << r.error;
}

}  // namespace
}  // namespace gate
