// The trainer's op slots: one enum each, and what was chosen. The table in variants.cpp has one row per enumerator, and
// variant_rows.h is how it is read. To add a variant: an enumerator, its row, its case in the launcher; the compiler names the one that
// is forgotten.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpt2/ops/rank_variants.h"
#include "gpt2/ops/variants.h"
#include "gpt2/trainer.h"

namespace mixed {

using gpt2::ops::AdamWKernel;
using gpt2::ops::Classifier;
using gpt2::ops::Communication;
using gpt2::ops::EmbeddingExchange;
using gpt2::ops::ExchangeStart;
using gpt2::ops::GradientReduction;
using gpt2::ops::LayernormBackward;
using gpt2::ops::LayernormForward;
using gpt2::ops::ZeroGrad;

enum class ResidualStream { split, as_fp32, as_bf16 };
enum class ResidualGradient { split, as_fp32, as_bf16 };
enum class Residual { fused_layernorm, separate, matmul_epilogue };
enum class BiasGradient { softmax_identities, attention_fold, layernorm_fold, column_sums, matmul_epilogue };
enum class LinearForward { bias_epilogue, bias_kernel };  // the launcher is in matmul.cpp
enum class LmHead { hopper, logits };
enum class Gelu { hopper, matmul_epilogue, kernel };
enum class AttentionForward { hopper, cudnn, flash, unfused };
enum class AttentionBackward { hopper, cudnn, cudnn_deterministic, flash, unfused };
enum class GradNorm { whole, beside_backward };
enum class Masters { split, as_fp32 };
enum class Moments { split, as_16_bits, as_fp32 };
enum class WeightGradients { as_bf16, as_fp32 };
enum class WteGradient { as_bf16, as_fp32 };
enum class AttentionPlan { measured, heuristic };
enum class GraphEdges { programmatic, full };
enum class StepLaunch { graph, stream };
enum class MatmulAlgorithm { fitting_tiles, search, fewest_joules, fastest, heuristic };

struct VariantChoice {
  ResidualStream residual_stream{};
  ResidualGradient residual_gradient{};
  Residual residual{};
  Gelu gelu_forward{}, gelu_backward{};
  LinearForward linear_forward{};
  LayernormForward layernorm_forward{};
  LayernormBackward layernorm_backward{};
  BiasGradient bias_gradient{};
  AttentionForward attention_forward{};
  AttentionBackward attention_backward{};
  AttentionPlan attention_plan{};
  LmHead lm_head{};
  Classifier classifier{};
  ZeroGrad zero_grad{};
  GradNorm grad_norm{};
  AdamWKernel adamw{};
  Masters masters{};
  Moments moments{};
  WeightGradients weight_gradients{};
  WteGradient wte_gradient{};
  Communication communication{};
  EmbeddingExchange embedding_exchange{};
  ExchangeStart exchange_start{};
  GradientReduction gradient_reduction{};
  StepLaunch step_launch{};
  GraphEdges graph_edges{};
  MatmulAlgorithm matmul_algorithm{};
};

// All slots and variants, the default of each slot first. A default that the device or the shape cannot run gives way when a trainer is made.
// cudnn variants stay in the table where cuDNN is missing: choosing one says why it cannot run.
std::vector<gpt2::VariantInfo> variant_table();

// Defaults, changed by the given slot -> name. With `deterministic`, defaults that do not repeat bit for bit give way to ones that do,
// and naming such a variant is refused. Throws stepscope::InputError naming the slot, what was given and what there is;
// stepscope::MachineError for a cuDNN variant where cuDNN is missing.
VariantChoice choose_variants(const std::map<std::string, std::string>& wanted, bool deterministic);

// Index of a variant in its enum. Throws stepscope::InputError like choose_variants.
int variant_index(std::string_view slot, std::string_view variant);

}  // namespace mixed
