// The variants table against the enums that it names, and what --variant says when it is wrong.
#include "fp32/variants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/errors.h"
#include "fp32/matmul.h"
#include "fp32/trainer.h"

namespace fp32 {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The member of VariantChoice that a slot's name stands for, as a number.
const std::map<std::string, std::function<int(const VariantChoice&)>> kMembers = {
    {"layernorm_forward", [](const VariantChoice& c) { return static_cast<int>(c.layernorm_forward); }},
    {"layernorm_backward", [](const VariantChoice& c) { return static_cast<int>(c.layernorm_backward); }},
    {"linear_forward", [](const VariantChoice& c) { return static_cast<int>(c.linear_forward); }},
    {"linear_backward", [](const VariantChoice& c) { return static_cast<int>(c.linear_backward); }},
    {"attention_forward", [](const VariantChoice& c) { return static_cast<int>(c.attention_forward); }},
    {"attention_backward", [](const VariantChoice& c) { return static_cast<int>(c.attention_backward); }},
    {"classifier", [](const VariantChoice& c) { return static_cast<int>(c.classifier); }},
    {"zero_grad", [](const VariantChoice& c) { return static_cast<int>(c.zero_grad); }},
    {"adamw", [](const VariantChoice& c) { return static_cast<int>(c.adamw); }},
    {"communication", [](const VariantChoice& c) { return static_cast<int>(c.communication); }},
    {"gradient_reduction", [](const VariantChoice& c) { return static_cast<int>(c.gradient_reduction); }},
};

TEST(Variants, EverySlotOfTheTableChangesItsOwnMemberAndNoOther) {
  ASSERT_EQ(variant_table().size(), kMembers.size()) << "kMembers of this test has a line for every slot";
  const VariantChoice defaults = choose_variants({});
  for (const gpt2::VariantInfo& row : variant_table()) {
    ASSERT_TRUE(kMembers.contains(row.slot)) << row.slot << ": kMembers of this test has a line for every slot";
    for (const std::string& name : row.names) {
      const VariantChoice choice = choose_variants({{row.slot, name}});
      for (const auto& [slot, member] : kMembers)
        EXPECT_EQ(member(choice), slot == row.slot ? variant_index(slot, name) : member(defaults))
            << row.slot << "=" << name << " seen in " << slot;
    }
  }
}

TEST(Variants, TheOrderOfNamesIsTheOrderOfTheEnums) {
  EXPECT_EQ(choose_variants({{"layernorm_forward", "block_per_row"}}).layernorm_forward, LayernormForward::block_per_row);
  EXPECT_EQ(choose_variants({{"layernorm_backward", "separate_columns"}}).layernorm_backward, LayernormBackward::separate_columns);
  EXPECT_EQ(choose_variants({{"linear_forward", "bias_kernel"}}).linear_forward, LinearForward::bias_kernel);
  EXPECT_EQ(choose_variants({{"linear_backward", "as_stored"}}).linear_backward, LinearBackward::as_stored);
  EXPECT_EQ(choose_variants({{"attention_forward", "unfused_causal_blocks"}}).attention_forward, AttentionForward::unfused_causal_blocks);
  EXPECT_EQ(choose_variants({{"attention_forward", "unfused"}}).attention_forward, AttentionForward::unfused);
  EXPECT_EQ(choose_variants({{"attention_forward", "flash"}}).attention_forward, AttentionForward::flash);
  EXPECT_EQ(choose_variants({{"attention_backward", "unfused_causal_blocks"}}).attention_backward,
            AttentionBackward::unfused_causal_blocks);
  EXPECT_EQ(choose_variants({{"attention_backward", "unfused"}}).attention_backward, AttentionBackward::unfused);
  EXPECT_EQ(choose_variants({{"attention_backward", "flash"}}).attention_backward, AttentionBackward::flash);
  EXPECT_EQ(choose_variants({{"classifier", "one_read"}}).classifier, Classifier::one_read);
  EXPECT_EQ(choose_variants({{"zero_grad", "memset"}}).zero_grad, ZeroGrad::memset);
  EXPECT_EQ(choose_variants({{"adamw", "per_tensor"}}).adamw, AdamWKernel::per_tensor);
}

std::string refusal(const std::map<std::string, std::string>& wanted) {
  try {
    choose_variants(wanted);
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(Variants, AnUnknownSlotIsNamedBesideTheKnownOnes) {
  EXPECT_THAT(refusal({{"attention", "fused"}}), AllOf(HasSubstr("attention=fused"), HasSubstr("attention_backward")));
}

TEST(Variants, AnUnknownVariantIsNamedBesideTheKnownOnes) {
  EXPECT_THAT(refusal({{"adamw", "fastest"}}), AllOf(HasSubstr("adamw=fastest"), HasSubstr("all_tensors, per_tensor")));
}

TEST(Matmul, OnlyFp32AndTf32AreRates) {
  EXPECT_EQ(matmul_rate_from_name("fp32"), MatmulRate::fp32);
  EXPECT_EQ(matmul_rate_from_name("tf32"), MatmulRate::tf32);
  EXPECT_THROW(matmul_rate_from_name("bf16"), stepscope::InputError);
  EXPECT_THROW(matmul_rate_from_name(""), stepscope::InputError);
}

// They are refused before a device is looked for: this test needs none.
TEST(Variants, TheTrainerRefusesWhatItDoesNotHaveWithoutADevice) {
  gpt2::TrainerOptions o;
  o.variants = {{"adamw", "fastest"}};
  EXPECT_THROW(make_fp32_trainer(o), stepscope::InputError);
  o.variants.clear();
  o.matmul = "fp16";
  EXPECT_THROW(make_fp32_trainer(o), stepscope::InputError);
  const auto refusal = [&] {
    try {
      (void)make_fp32_trainer(o);
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  o.matmul = "fp32", o.recompute = "gelu";
  EXPECT_THAT(refusal(), HasSubstr("--recompute gelu"));
  o.recompute = "none", o.weight_rounding = "stochastic";
  EXPECT_THAT(refusal(), HasSubstr("--weight-rounding stochastic"));
}

}  // namespace
}  // namespace fp32
