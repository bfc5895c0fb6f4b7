// The memory plan is host arithmetic, so a machine without a GPU can hold it to its promises: tensors do not
// overlap, offsets do not wrap at 2^31, and the batch named in the out-of-memory text is the last one that
// fits.
#include "fp32/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/errors.h"
#include "fp32/matmul.h"
#include "gpt2/config.h"
#include "gpt2/ops/step_scalars.h"

namespace fp32 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

gpt2::TrainerOptions d12(int64_t batch, int64_t seq) {
  gpt2::TrainerOptions o;
  o.model = gpt2::model_from_name("d12");
  o.batch_size = batch;
  o.seq_len = seq;
  return o;
}

struct Extent {
  std::string name;
  int64_t begin = 0, end = 0;
};

// Every tensor of the activation arena, with its size from the shapes in memory_plan.h, one entry per layer.
std::vector<Extent> activation_extents(const MemoryPlan& plan, const gpt2::TrainerOptions& o) {
  const int64_t rows = o.batch_size * o.seq_len;
  const int64_t C = o.model.channels;
  const int64_t L = o.model.layers;
  const ActivationSlots& a = plan.activations;
  std::vector<Extent> all;
  const auto add = [&](const std::string& name, const Slot& slot, int64_t size, int64_t layers) {
    for (int64_t l = 0; l < layers; ++l) all.push_back({name + " " + std::to_string(l), slot.at(l), slot.at(l) + size});
  };
  add("encoded", a.encoded, rows * C, 1);
  add("ln1", a.ln1, rows * C, L);
  add("ln1_mean", a.ln1_mean, rows, L);
  add("ln1_rstd", a.ln1_rstd, rows, L);
  add("qkv", a.qkv, rows * 3 * C, L);
  add("attention", a.attention, rows * C, L);
  add("lse", a.lse, rows * o.model.heads, L);
  add("residual1", a.residual1, rows * C, L);
  add("ln2", a.ln2, rows * C, L);
  add("ln2_mean", a.ln2_mean, rows, L);
  add("ln2_rstd", a.ln2_rstd, rows, L);
  add("mlp_up", a.mlp_up, rows * 4 * C, L);
  add("gelu", a.gelu, rows * 4 * C, L);
  add("residual2", a.residual2, rows * C, L);
  add("lnf", a.lnf, rows * C, 1);
  add("lnf_mean", a.lnf_mean, rows, 1);
  add("lnf_rstd", a.lnf_rstd, rows, 1);
  add("branch", a.branch, rows * C, 1);
  add("logits", a.logits, rows * o.model.padded_vocab, 1);
  add("losses", a.losses, rows, 1);
  return all;
}

void expect_apart_and_inside(std::vector<Extent> all, int64_t total) {
  std::sort(all.begin(), all.end(), [](const Extent& x, const Extent& y) { return x.begin < y.begin; });
  EXPECT_EQ(all.front().begin, 0);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].end, all[i].begin) << all[i - 1].name << " runs into " << all[i].name;
  EXPECT_LE(all.back().end, total) << all.back().name << " runs over the arena's end";
}

TEST(MemoryPlan, NoTwoActivationsShareMemory) {
  for (const gpt2::TrainerOptions& o : {d12(4, 1024), d12(3, 65), d12(1, 1)}) {
    const MemoryPlan plan = plan_memory(o, {});
    expect_apart_and_inside(activation_extents(plan, o), plan.activation_floats);
  }
}

TEST(MemoryPlan, NoTwoActivationGradientsShareMemory) {
  const gpt2::TrainerOptions o = d12(3, 65);
  const MemoryPlan plan = plan_memory(o, {});
  const int64_t n = 3 * 65 * o.model.channels;
  const ActivationGradientSlots& g = plan.gradients;
  expect_apart_and_inside({{"residual", g.residual.at(), g.residual.at() + n},
                           {"branch", g.branch.at(), g.branch.at() + n},
                           {"qkv", g.qkv.at(), g.qkv.at() + 3 * n},
                           {"mlp", g.mlp.at(), g.mlp.at() + 4 * n}},
                          plan.activation_gradient_floats);
}

TEST(MemoryPlan, EveryTensorIsAlignedFor16ByteAccess) {
  const gpt2::TrainerOptions o = d12(3, 65);
  for (const Extent& e : activation_extents(plan_memory(o, {}), o)) EXPECT_EQ(e.begin % 4, 0) << e.name;
}

// llm.c's fp32 trainer crashes at B=16: an int32 index wraps. At B=64 the logits alone are 3.3e9 floats.
TEST(MemoryPlan, OffsetsAtB64DoNotWrapAt32Bits) {
  const gpt2::TrainerOptions o = d12(64, 1024);
  const MemoryPlan plan = plan_memory(o, {});
  const int64_t logits = int64_t{64} * 1024 * 50304;
  EXPECT_GT(plan.activation_floats, logits);
  EXPECT_GT(plan.activations.logits.at(), int64_t{1} << 31);
  expect_apart_and_inside(activation_extents(plan, o), plan.activation_floats);
  for (const gpt2::MemoryItem& item : plan.items) EXPECT_GT(item.bytes, 0) << item.name;
}

TEST(MemoryPlan, D12AtB64FitsAnH200) { EXPECT_LE(plan_memory(d12(64, 1024), {}).total_bytes(), int64_t{139} << 30); }

TEST(MemoryPlan, EachItemIsWhatItsNameSays) {
  const MemoryPlan plan = plan_memory(d12(4, 1024), {});
  std::map<std::string, int64_t> bytes;
  for (const gpt2::MemoryItem& item : plan.items) bytes[item.name] += item.bytes;
  constexpr int64_t kParameters = 124475904;  // with the padded vocabulary
  EXPECT_EQ(bytes["parameters"], 4 * kParameters);
  EXPECT_EQ(bytes["gradients"], 4 * kParameters);
  EXPECT_EQ(bytes["optimizer state"], 8 * kParameters);
}

TEST(MemoryPlan, ActivationsGrowLinearlyWithTheBatch) {
  const auto floats = [](int64_t batch) { return plan_memory(d12(batch, 1024), {}).activation_floats; };
  EXPECT_EQ(floats(8) - floats(4), floats(12) - floats(8));
  EXPECT_EQ(floats(64) - floats(60), floats(8) - floats(4));
}

TEST(MemoryPlan, D48AtB64IsCountedIn64Bits) {
  gpt2::TrainerOptions o = d12(64, 1024);
  o.model = gpt2::model_from_name("d48");
  // Per layer at least ln1, qkv, attention, residual1, ln2, the mlp twice, residual2: 16 tensors of (rows, C).
  const int64_t rows = int64_t{64} * 1024;
  EXPECT_GT(plan_memory(o, {}).activation_floats, rows * 50304 + 48 * rows * 1600 * 16);
}

TEST(MemoryPlan, TheTotalIsTheSumOfWhatIsAllocated) {
  const MemoryPlan plan = plan_memory(d12(4, 1024), {});
  EXPECT_EQ(plan.total_bytes(),
            4 * (4 * plan.parameter_count + plan.activation_floats + plan.activation_gradient_floats + plan.token_count) +
                plan.scratch_bytes + kMatmulWorkspaceBytes +
                static_cast<int64_t>(sizeof(gpt2::ops::StepScalars) + sizeof(gpt2::ops::StepStats)));
}

TEST(MemoryPlan, FusedAttentionNeedsNoScoresInScratch) {
  VariantChoice unfused;
  unfused.attention_forward = AttentionForward::unfused;
  unfused.attention_backward = AttentionBackward::unfused;
  const int64_t scores_bytes = int64_t{4} * 12 * 1024 * 1024 * 4;
  EXPECT_GT(plan_memory(d12(4, 1024), unfused).scratch_bytes, 2 * scores_bytes);
  EXPECT_LT(plan_memory(d12(4, 1024), {}).scratch_bytes, scores_bytes);
}

// The widest output's gradient once more, and a sum of each column for every 64 rows; with fp32 products nothing is transposed.
TEST(MemoryPlan, ATransposedGradientLiesInScratchWithTf32Alone) {
  gpt2::TrainerOptions o = d12(4, 1024);
  const int64_t fp32_bytes = plan_memory(o, {}).scratch_bytes;
  o.matmul = "tf32";
  EXPECT_EQ(plan_memory(o, {}).scratch_bytes, (4096 + 64) * 3072 * 4);
  EXPECT_LT(fp32_bytes, 4096 * 3072 * 4);
  VariantChoice as_stored;
  as_stored.linear_backward = LinearBackward::as_stored;
  EXPECT_EQ(plan_memory(o, as_stored).scratch_bytes, fp32_bytes);
  EXPECT_EQ(linear_backward_scratch_floats(LinearBackward::transposed_dout, MatmulRate::tf32, 65, 10), (65 + 2) * 10);
}

TEST(MemoryPlan, TheLargestBatchIsTheLastThatFits) {
  for (const int64_t free_bytes : {int64_t{8} << 30, int64_t{80} << 30, int64_t{139} << 30}) {
    const int64_t batch = largest_batch(d12(1, 1024), {}, free_bytes);
    ASSERT_GE(batch, 1);
    EXPECT_LE(plan_memory(d12(batch, 1024), {}).total_bytes(), free_bytes);
    EXPECT_GT(plan_memory(d12(batch + 1, 1024), {}).total_bytes(), free_bytes);
  }
}

TEST(MemoryPlan, NoBatchFitsWhereTheParametersDoNot) { EXPECT_EQ(largest_batch(d12(1, 1024), {}, int64_t{1} << 30), 0); }

std::string refusal(const gpt2::TrainerOptions& o, int64_t free_bytes) {
  try {
    gpt2::ops::require_memory(
        plan_memory(o, {}), o, [&] { return largest_batch(o, {}, free_bytes); }, free_bytes, "NVIDIA Test");
  } catch (const stepscope::MachineError& e) {
    return e.what();
  }
  return "";
}

TEST(MemoryPlan, OutOfMemorySaysWhatIsNeededWhatIsFreeAndWhatFits) {
  const gpt2::TrainerOptions o = d12(1000, 1024);
  const int64_t free_bytes = int64_t{80} << 30;
  const int64_t batch = largest_batch(o, {}, free_bytes);
  EXPECT_THAT(refusal(o, free_bytes),
              AllOf(HasSubstr("--batch-size 1000"), HasSubstr("--seq-len 1024"), HasSubstr("activations"),
                    HasSubstr("NVIDIA Test has 80.00 GiB free"), HasSubstr("--batch-size " + std::to_string(batch))));
}

TEST(MemoryPlan, OutOfMemorySaysWhenNotEvenOneSequenceFits) {
  EXPECT_THAT(refusal(d12(1, 1024), int64_t{1} << 30), HasSubstr("not even one sequence fits"));
  // Another process left less than the trainers leave to others.
  EXPECT_THAT(refusal(d12(1, 1024), -(int64_t{1} << 28)), HasSubstr("NVIDIA Test has 0.00 GiB free; not even one sequence fits"));
}

TEST(MemoryPlan, WhatFitsIsNotRefused) {
  const gpt2::TrainerOptions o = d12(4, 1024);
  const int64_t needed = plan_memory(o, {}).total_bytes();
  EXPECT_EQ(refusal(o, needed), "");
  EXPECT_NE(refusal(o, needed - 1), "");
}

std::string bad_shape(const gpt2::TrainerOptions& o) {
  try {
    plan_memory(o, {});
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(MemoryPlan, ImpossibleShapesNameTheirFlag) {
  EXPECT_THAT(bad_shape(d12(0, 1024)), HasSubstr("--batch-size 0"));
  EXPECT_THAT(bad_shape(d12(4, 0)), HasSubstr("--seq-len 0"));
  EXPECT_THAT(bad_shape(d12(4, 1025)), AllOf(HasSubstr("--seq-len 1025"), HasSubstr("1024")));
  // 2^21 sequences of 1024 tokens are 2^31 tokens: one too many for the sort of the embedding backward.
  EXPECT_THAT(bad_shape(d12(int64_t{1} << 21, 1024)), HasSubstr("2^31"));
  EXPECT_THAT(bad_shape(d12(int64_t{1} << 62, 1024)), HasSubstr("2^31"));
}

}  // namespace
}  // namespace fp32
