// The trainer's op slots: one enum each, and what was chosen. The table in variants.cpp has one row per enumerator, and
// variant_rows.h is how it is read.
// To add a variant: an enumerator, its row, its case in the launcher; the compiler names the one that is forgotten.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpt2/ops/rank_variants.h"
#include "gpt2/ops/variants.h"
#include "gpt2/trainer.h"

namespace fp32 {

using gpt2::ops::AdamWKernel;
using gpt2::ops::Classifier;
using gpt2::ops::Communication;
using gpt2::ops::GradientReduction;
using gpt2::ops::LayernormBackward;
using gpt2::ops::LayernormForward;
using gpt2::ops::ZeroGrad;

enum class LinearForward { bias_epilogue, bias_kernel };
enum class LinearBackward { transposed_dout, as_stored };
enum class AttentionForward { flash, unfused_causal_blocks, unfused };
enum class AttentionBackward { flash, unfused_causal_blocks, unfused };

struct VariantChoice {
  LayernormForward layernorm_forward{};
  LayernormBackward layernorm_backward{};
  LinearForward linear_forward{};
  LinearBackward linear_backward{};
  AttentionForward attention_forward{};
  AttentionBackward attention_backward{};
  Classifier classifier{};
  ZeroGrad zero_grad{};
  AdamWKernel adamw{};
  Communication communication{};
  GradientReduction gradient_reduction{};
};

// All slots and variants, the default first.
std::vector<gpt2::VariantInfo> variant_table();

// Defaults, changed by the given slot -> name. Throws stepscope::InputError naming the slot, what was given and what there is.
VariantChoice choose_variants(const std::map<std::string, std::string>& wanted);

// Index of a variant in its enum. Throws stepscope::InputError like choose_variants.
int variant_index(std::string_view slot, std::string_view variant);

}  // namespace fp32
