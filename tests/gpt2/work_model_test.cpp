// The work model against numbers worked out by hand.
#include "gpt2/work_model.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace gpt2 {
namespace {

std::map<std::string, OpWork> by_path(const ModelConfig& model, int64_t B, int64_t T, int64_t accumulation, const StorageWidths& w) {
  std::map<std::string, OpWork> all;
  for (const OpWork& work : step_work(model, B, T, accumulation, w))
    EXPECT_TRUE(all.emplace(leaf_path(work.pass, work.layer, work.op), work).second) << "a path twice";
  return all;
}

double total_flops(const std::map<std::string, OpWork>& all, const std::string& op, const std::string& pass) {
  double sum = 0;
  for (const auto& [path, work] : all)
    if (path.starts_with(pass + "/") && path.ends_with("/" + op)) sum += work.flops;
  return sum;
}

const ModelConfig kD12{1024, 50257, 50304, 12, 12, 768};

// trainer-performance notes §1, table "TFLOP per step", row B=4, printed to three digits.
TEST(WorkModel, D12AtBatch4HasTheTabulatedTeraflop) {
  const auto all = by_path(kD12, 4, 1024, 1, widths_fp32());
  const auto tera = [&](const std::string& op, const std::string& pass) { return total_flops(all, op, pass) * 1e-12; };
  EXPECT_NEAR(tera("qkv", "forward"), 0.174, 5e-4);
  EXPECT_NEAR(tera("attproj", "forward"), 0.058, 5e-4);
  EXPECT_NEAR(tera("mlp_up", "forward"), 0.232, 5e-4);
  EXPECT_NEAR(tera("mlp_down", "forward"), 0.232, 5e-4);
  EXPECT_NEAR(tera("lm_head", "forward"), 0.316, 5e-4);
  EXPECT_NEAR(tera("attention", "forward"), 0.077, 5e-4);
  EXPECT_NEAR(tera("attention", "backward"), 0.193, 5e-4);
}

TEST(WorkModel, MatrixProductsAreThreeTimesTheForwardsAndAttentionThreeAndAHalf) {
  const double M = 4 * 1024, C = 768, L = 12, Vp = 50304;
  const double products = 3 * 2 * M * (12 * L * C * C + C * Vp);
  const double attention = 2.0 * 4 * 12 * 1024 * 1025 * 64 * 12;
  EXPECT_DOUBLE_EQ(model_flops(kD12, 4, 1024, 1), products + 3.5 * attention);
  EXPECT_DOUBLE_EQ(model_flops(kD12, 4, 1024, 5), 5 * (products + 3.5 * attention));
  EXPECT_NEAR(products * 1e-12, 3.04, 5e-3);
}

// One layer, C 4, one head, V 3 padded to 8, maxT 8; B 1, T 2, so M 2; P = 8*4 + 8*4 + (4+4 + 48+12 + 16+4 +
// 4+4 + 64+16 + 64+4) + 8 = 316.
const ModelConfig kHand{8, 3, 8, 1, 1, 4};

TEST(WorkModel, EveryOpOfAHandSizedModelInFp32) {
  const auto all = by_path(kHand, 1, 2, 1, widths_fp32());
  struct Expected {
    const char* path;
    double flops, bytes;
  };
  const Expected rows[] = {
      // tokens 2*4, rows of wte 2*4*4, of wpe 2*4*4, out 2*4*4
      {"encoder/-/embedding", 0, 8 + 32 + 32 + 32},
      // in 32, weight and bias 32, out 32, two statistics of two tokens 16
      {"forward/0/ln1", 0, 112},
      // 2*2*4*12; in 32, weight 192, bias 48, out 96
      {"forward/0/qkv", 192, 368},
      // two products of three causal pairs, 4 columns: 2*2*3*4; qkv 96, out 32, log-sum-exp 8
      {"forward/0/attention", 48, 136},
      // in 32, weight 64, bias 16, out 32
      {"forward/0/attproj", 64, 144},
      {"forward/0/residual1", 0, 96},
      {"forward/0/ln2", 0, 112},
      // in 32, weight 256, bias 64, out 128
      {"forward/0/mlp_up", 256, 480},
      {"forward/0/gelu", 0, 256},
      // in 128, weight 256, bias 16, out 32
      {"forward/0/mlp_down", 256, 432},
      {"forward/0/residual2", 0, 96},
      {"forward/-/lnf", 0, 112},
      // 2*2*4*8; in 32, weight 128, logits 64
      {"forward/-/lm_head", 128, 224},
      // logits read and written 128, targets 8, losses 8
      {"classifier/-/loss", 0, 144},
      // dlogits 64, x 32, weight 128, dx 32, dweight 128
      {"backward/-/lm_head", 256, 384},
      // dout 32, x 32, dx 32, weight 16, statistics 16, two gradients 32
      {"backward/-/lnf", 0, 160},
      // dout 32, x 128, weight 256, dx 128, dweight 256, dbias 16
      {"backward/0/mlp_down", 512, 816},
      {"backward/0/gelu", 0, 384},
      // dout 128, x 32, weight 256, dx 32, dweight 256, dbias 64
      {"backward/0/mlp_up", 512, 768},
      // as lnf, and the stream's gradient is read too
      {"backward/0/ln2", 0, 192},
      // dout 32, x 32, weight 64, dx 32, dweight 64, dbias 16
      {"backward/0/attproj", 128, 240},
      // 2.5 * 48; qkv 96, out 32, dout 32, log-sum-exp 8, dqkv 96
      {"backward/0/attention", 120, 264},
      // dout 96, x 32, weight 192, dx 32, dweight 192, dbias 48
      {"backward/0/qkv", 384, 592},
      {"backward/0/ln1", 0, 192},
      // tokens 8, dout 32, two rows of dwte read and written 64, two rows of dwpe 32
      {"backward/-/embedding", 0, 136},
      {"optimizer/-/zero_grad", 0, 316 * 4},
      {"optimizer/-/grad_norm", 0, 316 * 4},
      // 28 bytes a parameter: g, p, m, v read; p, m, v written
      {"optimizer/-/adamw", 0, 316 * 28},
  };
  EXPECT_EQ(all.size(), std::size(rows));
  for (const Expected& e : rows) {
    ASSERT_TRUE(all.contains(e.path)) << e.path;
    EXPECT_DOUBLE_EQ(all.at(e.path).flops, e.flops) << e.path;
    EXPECT_DOUBLE_EQ(all.at(e.path).min_bytes, e.bytes) << e.path;
  }
}

TEST(WorkModel, MixedPrecisionHalvesActivationsAndKeepsStatisticsAndAdamWsBytes) {
  const auto all = by_path(kHand, 1, 2, 1, widths_mixed());
  EXPECT_DOUBLE_EQ(all.at("forward/0/qkv").min_bytes, 368 / 2);
  EXPECT_DOUBLE_EQ(all.at("forward/0/ln1").min_bytes, (112 - 16) / 2 + 16);
  // g 4 (fp32), m v master 12 read, 12 written, p 2 written
  EXPECT_DOUBLE_EQ(all.at("optimizer/-/adamw").min_bytes, 316 * 30);
  EXPECT_DOUBLE_EQ(all.at("optimizer/-/grad_norm").min_bytes, 316 * 4);
}

TEST(WorkModel, LaterMicroStepsReadTheGradientsTheyAddTo) {
  const auto one = by_path(kHand, 1, 2, 1, widths_fp32()), three = by_path(kHand, 1, 2, 3, widths_fp32());
  EXPECT_DOUBLE_EQ(three.at("forward/0/gelu").min_bytes, 3 * 256);
  // activations and weight 3 * (816 - 272), gradients 272 written three times and read twice
  EXPECT_DOUBLE_EQ(three.at("backward/0/mlp_down").min_bytes, 3 * 544 + 5 * 272);
  EXPECT_DOUBLE_EQ(three.at("backward/0/mlp_down").flops, 3 * 512);
  EXPECT_DOUBLE_EQ(three.at("optimizer/-/adamw").min_bytes, one.at("optimizer/-/adamw").min_bytes);
}

// 100 sequences of 2 tokens cannot need more rows of wte than the vocabulary has.
TEST(WorkModel, EmbeddingReadsNoMoreRowsThanTheVocabularyHas) {
  const auto all = by_path(kHand, 100, 2, 1, widths_fp32());
  EXPECT_DOUBLE_EQ(all.at("encoder/-/embedding").min_bytes, 200 * 4 + 3 * 16 + 2 * 16 + 200 * 16);
}

}  // namespace
}  // namespace gpt2
