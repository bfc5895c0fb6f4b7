// Floors of fused ops against numbers worked out by hand, and that fusing loses no FLOP.
#include "mixed/fused_work.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace mixed {
namespace {

using gpt2::OpWork;

gpt2::TrainerOptions options() {
  gpt2::TrainerOptions o;
  o.model = {.max_seq_len = 16, .vocab_size = 120, .padded_vocab = 128, .layers = 2, .heads = 2, .channels = 8};
  o.batch_size = 2;
  o.seq_len = 4;
  return o;
}
constexpr double kTensor = 2 * 4 * 8 * 2;  // (rows, C) of bf16

VariantChoice plain() {
  VariantChoice v;
  v.residual = Residual::separate;
  v.gelu_forward = v.gelu_backward = Gelu::kernel;
  v.lm_head = LmHead::logits;
  v.zero_grad = ZeroGrad::memset;
  v.masters = Masters::as_fp32;
  v.moments = Moments::as_fp32;
  v.weight_gradients = WeightGradients::as_fp32;
  v.wte_gradient = WteGradient::as_fp32;
  return v;
}

std::map<std::string, OpWork> by_path(const VariantChoice& v, const gpt2::TrainerOptions& o = options()) {
  std::map<std::string, OpWork> all;
  for (const OpWork& w : fused_work(o, v, 1)) EXPECT_TRUE(all.emplace(gpt2::leaf_path(w.pass, w.layer, w.op), w).second);
  return all;
}

TEST(FusedWork, WithoutFusionItIsTheModelsInMixedWidths) {
  const auto all = by_path(plain());
  const gpt2::TrainerOptions o = options();
  const auto model = gpt2::step_work(o.model, o.batch_size, o.seq_len, 1, gpt2::widths_mixed());
  EXPECT_EQ(all.size(), model.size());
  for (const OpWork& w : model) EXPECT_EQ(all.at(gpt2::leaf_path(w.pass, w.layer, w.op)).min_bytes, w.min_bytes);
}

TEST(FusedWork, AResidualSumInALayernormReadsTwoAndWritesTwoTensors) {
  VariantChoice v = plain();
  v.residual = Residual::fused_layernorm;
  const auto all = by_path(v);
  const double weights_and_statistics = 2 * 8 * 2 + 2 * 8 * 4;  // weight and bias (C) of bf16; mean and rstd (rows) of fp32
  for (const char* path : {"forward/0/ln2", "forward/1/ln1", "forward/1/ln2", "forward/-/lnf"})
    EXPECT_EQ(all.at(path).min_bytes, 4 * kTensor + weights_and_statistics) << path;
  EXPECT_EQ(all.at("forward/0/ln1").min_bytes, 2 * kTensor + weights_and_statistics) << "no sum comes before it";
  for (const char* path : {"forward/0/residual1", "forward/0/residual2", "forward/1/residual2"}) EXPECT_FALSE(all.contains(path));
}

// 30 bytes a parameter are 4 of the gradient, 16 of the moments, 8 of the master, 2 of the weight; split masters make 8.25 of the last 10.
TEST(FusedWork, SplitMastersMoveLessInTheUpdateAlone) {
  VariantChoice v = plain();
  const auto before = by_path(v);
  v.masters = Masters::split;
  const auto all = by_path(v);
  const auto parameters = static_cast<double>(gpt2::tensor_layout(options().model).total);
  EXPECT_EQ(before.at("optimizer/-/adamw").min_bytes, 30 * parameters);
  EXPECT_EQ(all.at("optimizer/-/adamw").min_bytes, 28.25 * parameters);
  for (const auto& [path, work] : before)
    if (path != "optimizer/-/adamw") {
      EXPECT_EQ(all.at(path).min_bytes, work.min_bytes) << path;
    }
}

// Of the 16 of the moments 12 are left. With both forms of split and bf16 gradients in the matrices, the step of docs/study/mixed-next.md.
TEST(FusedWork, SplitMomentsMoveFourBytesLessInTheUpdateAlone) {
  VariantChoice v = plain();
  const auto before = by_path(v);
  v.moments = Moments::split;
  const auto all = by_path(v);
  const auto parameters = static_cast<double>(gpt2::tensor_layout(options().model).total);
  EXPECT_EQ(all.at("optimizer/-/adamw").min_bytes, 26 * parameters);
  for (const auto& [path, work] : before)
    if (path != "optimizer/-/adamw") {
      EXPECT_EQ(all.at(path).min_bytes, work.min_bytes) << path;
    }
  v.masters = Masters::split;
  EXPECT_EQ(by_path(v).at("optimizer/-/adamw").min_bytes, 24.25 * parameters);
}

TEST(FusedWork, MomentsOf16BitsMoveEightBytesLessInTheUpdateAlone) {
  VariantChoice v = plain();
  const auto before = by_path(v);
  v.moments = Moments::as_16_bits;
  const auto all = by_path(v);
  const auto parameters = static_cast<double>(gpt2::tensor_layout(options().model).total);
  EXPECT_EQ(all.at("optimizer/-/adamw").min_bytes, 22 * parameters);
  for (const auto& [path, work] : before)
    if (path != "optimizer/-/adamw") {
      EXPECT_EQ(all.at(path).min_bytes, work.min_bytes) << path;
    }
}

TEST(FusedWork, ANormBesideTheBackwardReadsEveryGradientOnce) {
  VariantChoice v = plain();
  v.grad_norm = GradNorm::beside_backward;
  const auto all = by_path(v);
  // Of a layer at C = 8: two norms of 2 C, 12 C^2 in products, 9 C of biases; outside: 128 and 16 rows of C, and lnf.
  const double layer = 4 * (4 * 8 + 12 * 8 * 8 + 9 * 8), rest = 4 * (128 * 8 + 16 * 8 + 2 * 8);
  EXPECT_EQ(all.at("backward/0/grad_norm").min_bytes, layer);
  EXPECT_EQ(all.at("backward/1/grad_norm").min_bytes, layer);
  EXPECT_EQ(all.at("optimizer/-/grad_norm").min_bytes, rest);
}

// At C = 8 a layer's matrices have 3, 1, 4 and 4 times 64 elements, each of them written, read by the norm and read by the update in 2 bytes
// less.
TEST(FusedWork, Bf16WeightGradientsAreWrittenAndReadTwiceInHalfTheBytes) {
  VariantChoice v = plain();
  const auto before = by_path(v);
  v.weight_gradients = WeightGradients::as_bf16;
  const auto all = by_path(v);
  std::map<std::string, double> spared{{"optimizer/-/grad_norm", 2 * 2 * 12 * 64}, {"optimizer/-/adamw", 2 * 2 * 12 * 64}};
  for (const char* layer : {"0", "1"})
    for (const auto& [op, times] : {std::pair{"qkv", 3}, {"attproj", 1}, {"mlp_up", 4}, {"mlp_down", 4}})
      spared[std::string("backward/") + layer + "/" + op] = 2 * 64 * times;
  ASSERT_EQ(all.size(), before.size());
  for (const auto& [path, work] : before)
    EXPECT_EQ(all.at(path).min_bytes, work.min_bytes - (spared.contains(path) ? spared[path] : 0)) << path;
  v.grad_norm = GradNorm::beside_backward;
  const auto beside = by_path(v);
  EXPECT_EQ(beside.at("backward/1/grad_norm").min_bytes, 4 * (4 * 8 + 9 * 8) + 2 * 12 * 64);
  EXPECT_EQ(beside.at("optimizer/-/grad_norm").min_bytes, 4 * (128 * 8 + 16 * 8 + 2 * 8));
}

// wte has 128 x 8 elements; the embedding reads and writes the rows of at most 8 tokens.
TEST(FusedWork, ABf16WteGradientIsWrittenAndReadInHalfTheBytes) {
  VariantChoice v = plain();
  v.weight_gradients = WeightGradients::as_bf16;
  const auto before = by_path(v);
  v.wte_gradient = WteGradient::as_bf16;
  const auto all = by_path(v);
  const std::map<std::string, double> spared{{"backward/-/lm_head", 2 * 128 * 8},
                                             {"backward/-/embedding", 2 * 2 * 8 * 8},
                                             {"optimizer/-/grad_norm", 2 * 128 * 8},
                                             {"optimizer/-/adamw", 2 * 128 * 8}};
  for (const auto& [path, work] : before)
    EXPECT_EQ(all.at(path).min_bytes, work.min_bytes - (spared.contains(path) ? spared.at(path) : 0)) << path;
}

TEST(FusedWork, AResidualSumInAProductReadsOneTensorMore) {
  VariantChoice v = plain();
  const auto before = by_path(v);
  v.residual = Residual::matmul_epilogue;
  const auto all = by_path(v);
  for (const char* path : {"forward/0/attproj", "forward/1/mlp_down"})
    EXPECT_EQ(all.at(path).min_bytes, before.at(path).min_bytes + kTensor) << path;
  EXPECT_FALSE(all.contains("forward/1/residual1"));
}

TEST(FusedWork, GeluInAProductWritesOrReadsFourTensorsMore) {
  VariantChoice v = plain();
  const auto before = by_path(v);
  v.gelu_forward = v.gelu_backward = Gelu::matmul_epilogue;
  const auto all = by_path(v);
  EXPECT_EQ(all.at("forward/1/mlp_up").min_bytes, before.at("forward/1/mlp_up").min_bytes + 4 * kTensor);
  EXPECT_EQ(all.at("backward/0/mlp_down").min_bytes, before.at("backward/0/mlp_down").min_bytes + 4 * kTensor);
  EXPECT_FALSE(all.contains("forward/0/gelu"));
  EXPECT_FALSE(all.contains("backward/0/gelu"));
}

// GELU's gradient is written where GELU's input was: as many bytes.
TEST(FusedWork, OurOwnProductWithGeluMovesWhatTheLibrarysDoes) {
  VariantChoice v = plain();
  v.gelu_forward = v.gelu_backward = Gelu::matmul_epilogue;
  const auto library = by_path(v);
  v.gelu_forward = v.gelu_backward = Gelu::hopper;
  const auto own = by_path(v);
  EXPECT_EQ(own.size(), library.size());
  for (const auto& [path, work] : library) EXPECT_EQ(own.at(path).min_bytes, work.min_bytes) << path;
}

// 2 Vp values a row fewer to move for the loss, and 4 C more: lnf's output and its gradient, each read and written once more.
TEST(FusedWork, TheHeadWithoutLogitsSparesTwoReadingsOfThem) {
  VariantChoice v = plain();
  const auto before = by_path(v);
  v.lm_head = LmHead::hopper;
  const auto all = by_path(v);
  EXPECT_EQ(all.size(), before.size());
  const double logits = kTensor / static_cast<double>(options().model.channels) * static_cast<double>(options().model.padded_vocab);
  EXPECT_EQ(all.at("classifier/-/loss").min_bytes, before.at("classifier/-/loss").min_bytes - 2 * logits + 2 * kTensor);
  EXPECT_EQ(all.at("backward/-/lm_head").min_bytes, before.at("backward/-/lm_head").min_bytes + 2 * kTensor);
  EXPECT_EQ(all.at("forward/-/lm_head").min_bytes, before.at("forward/-/lm_head").min_bytes);
}

TEST(FusedWork, RecomputeKeepsTheBackwardRangeOfGelu) {
  VariantChoice v = plain();
  v.gelu_backward = Gelu::matmul_epilogue;
  gpt2::TrainerOptions o = options();
  o.recompute = "gelu";
  EXPECT_TRUE(by_path(v, o).contains("backward/0/gelu"));
}

TEST(FusedWork, FusionLosesNoFlop) {
  const auto flops = [](const VariantChoice& v) {
    double sum = 0;
    for (const OpWork& w : fused_work(options(), v, 3)) sum += w.flops;
    return sum;
  };
  for (const Residual residual : {Residual::fused_layernorm, Residual::separate, Residual::matmul_epilogue}) {
    VariantChoice v;
    v.residual = residual;
    EXPECT_EQ(flops(v), flops(plain()));
  }
}

}  // namespace
}  // namespace mixed
