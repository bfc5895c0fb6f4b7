// Attribution reads every range that a trainer can open.
#include <gtest/gtest.h>

#include "gpt2/ops.h"
#include "profiler/attribute/communication.h"
#include "profiler/attribute/words.h"

namespace {

using namespace profiler;

// The words are in a list and the trainers' enumerators in another: here once more, side by side.
TEST(Words, EveryPassAndOpOfTheTrainersHasItsOwnWord) {
  using gpt2::Op;
  using gpt2::Pass;
  EXPECT_EQ(gpt2::name(Pass::encoder), "encoder");
  EXPECT_EQ(gpt2::name(Pass::forward), "forward");
  EXPECT_EQ(gpt2::name(Pass::classifier), "classifier");
  EXPECT_EQ(gpt2::name(Pass::backward), "backward");
  EXPECT_EQ(gpt2::name(Pass::optimizer), "optimizer");
  EXPECT_EQ(gpt2::name(Pass::communication), "communication");
  EXPECT_EQ(gpt2::name(Pass::other), "other");
  const std::pair<Op, const char*> ops[] = {{Op::embedding, "embedding"},
                                            {Op::ln1, "ln1"},
                                            {Op::qkv, "qkv"},
                                            {Op::attention, "attention"},
                                            {Op::attproj, "attproj"},
                                            {Op::residual1, "residual1"},
                                            {Op::ln2, "ln2"},
                                            {Op::mlp_up, "mlp_up"},
                                            {Op::gelu, "gelu"},
                                            {Op::mlp_down, "mlp_down"},
                                            {Op::residual2, "residual2"},
                                            {Op::lnf, "lnf"},
                                            {Op::lm_head, "lm_head"},
                                            {Op::loss, "loss"},
                                            {Op::zero_grad, "zero_grad"},
                                            {Op::grad_norm, "grad_norm"},
                                            {Op::adamw, "adamw"},
                                            {Op::reduce_gradients, "reduce_gradients"},
                                            {Op::gather_weights, "gather_weights"},
                                            {Op::norm_gather, "norm_gather"},
                                            {Op::copy, "copy"}};
  ASSERT_EQ(std::size(ops), static_cast<size_t>(gpt2::kOpCount));
  for (const auto& [op, word] : ops) EXPECT_EQ(gpt2::name(op), word);
}

TEST(Words, EveryLeafPathThatATrainerCanOpenIsRead) {
  for (int p = 0; p < gpt2::kPassCount; ++p)
    for (int o = 0; o < gpt2::kOpCount; ++o)
      for (const int layer : {gpt2::kNoLayer, 0, 11, 47}) {
        const std::string leaf = gpt2::leaf_path(static_cast<gpt2::Pass>(p), layer, static_cast<gpt2::Op>(o));
        const Place expected{p, layer < 0 ? std::nullopt : std::optional(layer), o};
        EXPECT_EQ(parse_range_path("step/" + leaf).place, expected) << leaf;
        EXPECT_EQ(parse_leaf(leaf), expected) << leaf;
        EXPECT_EQ(parse_leaf("step/" + leaf), expected) << leaf;
      }
}

TEST(Words, RangesAroundTheStepAndInsideTheLeafDoNotMatter) {
  const auto plain = parse_range_path("step/backward/3/qkv").place;
  ASSERT_TRUE(plain);
  EXPECT_EQ(parse_range_path("training/epoch 1/step/backward/3/qkv").place, plain);
  EXPECT_EQ(parse_range_path("step/backward/3/qkv/cublasSgemm").place, plain);
  EXPECT_EQ(parse_range_path("step/x/step/backward/3/qkv").place, plain);
}

TEST(Communication, IsItsPassAndAKernelOfNcclOutsideOfOurRanges) {
  const auto is = [](Activity activity, const char* name, const char* path) {
    LaunchRecord l;
    l.activity = activity;
    l.name = name;
    l.path = path;
    return is_communication(l);
  };
  EXPECT_TRUE(is(Activity::kernel, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "main/loop"));
  EXPECT_FALSE(is(Activity::kernel, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "step/forward/0/qkv"));
  EXPECT_FALSE(is(Activity::copy, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "main/loop"));
  EXPECT_TRUE(is(Activity::copy, "copy DtoD", "step/communication/0/copy/all_reduce fp32 5 bucket 0"));
  EXPECT_TRUE(is(Activity::copy, "copy DtoD", "training/step/communication/0/copy"));
  EXPECT_FALSE(is(Activity::copy, "copy DtoD", "misstep/communication/0/copy"));
}

TEST(Words, WhatIsNotALeafIsNeverGuessed) {
  for (const char* path : {"", "step", "forward/0/qkv", "qkv", "main/loop"})
    EXPECT_EQ(parse_range_path(path).kind, PathKind::no_leaf) << path;
  for (const char* path : {"step/forward", "step/forward/0", "step/forwards/0/qkv", "step/forward/0/qvk", "step/forward/x/qkv",
                           "step/forward/-1/qkv", "step/forward//qkv", "step/forward/1x/qkv"})
    EXPECT_EQ(parse_range_path(path).kind, PathKind::unknown_words) << path;
  EXPECT_FALSE(parse_leaf("forward/0"));
  EXPECT_FALSE(parse_leaf("forward/0/qkv/x"));
}

}  // namespace
