// The two include chains spell the words of a range path apart; they must spell them alike.
#include <gtest/gtest.h>

#include "gpt2/ops.h"
#include "profiler/attribute/words.h"

namespace {

using namespace profiler;

TEST(Words, ArePassesAndOpsOfTheTrainersInTheSameOrder) {
  ASSERT_EQ(pass_words().size(), static_cast<size_t>(gpt2::kPassCount));
  ASSERT_EQ(op_words().size(), static_cast<size_t>(gpt2::kOpCount));
  for (int i = 0; i < gpt2::kPassCount; ++i) EXPECT_EQ(pass_words()[static_cast<size_t>(i)], gpt2::name(static_cast<gpt2::Pass>(i)));
  for (int i = 0; i < gpt2::kOpCount; ++i) EXPECT_EQ(op_words()[static_cast<size_t>(i)], gpt2::name(static_cast<gpt2::Op>(i)));
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
