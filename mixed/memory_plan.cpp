// The arithmetic of memory_plan.h.
#include "mixed/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "gpt2/ops/encoder.cuh"
#include "gpt2/ops/grad_norm.cuh"
#include "gpt2/ops/layernorm_backward.cuh"
#include "gpt2/trainer_checks.h"
#include "mixed/attention_cudnn.h"
#include "mixed/hopper_products.h"
#include "mixed/kernels/attention.cuh"
#include "mixed/kernels/lm_head.cuh"
#include "mixed/matmul.h"

namespace mixed {
namespace {

constexpr int64_t kFloat = 4;
constexpr int64_t kBf16 = 2;
constexpr int64_t kLowByte = 1;

int64_t attention_scratch_bytes(const gpt2::TrainerOptions& o, const VariantChoice& variants) {
  const AttentionShape attention{o.batch_size, o.seq_len, o.model.channels, o.model.heads};
  return std::max(attention_forward_scratch_bytes(variants.attention_forward, variants.attention_plan, attention),
                  attention_backward_scratch_bytes(variants.attention_backward, variants.attention_plan, attention) +
                      attention_sums_bytes(variants.bias_gradient, attention));
}

int64_t scratch_bytes(const gpt2::TrainerOptions& o, const VariantChoice& variants, int64_t attention_bytes, int64_t parameters) {
  const int64_t rows = o.batch_size * o.seq_len;
  const int64_t C = o.model.channels;
  const int64_t gelu_sums = sums_columns(variants.gelu_backward) ? gelu_partials(rows) * 4 * C * kFloat : 0;
  const int64_t head_sums = variants.lm_head == LmHead::hopper ? head_scratch_bytes(rows, o.model.padded_vocab) : 0;
  return std::max({attention_bytes, gelu_sums, head_sums,
                   gpt2::ops::layernorm_backward_scratch_floats<bf16>(variants.layernorm_backward, rows, C) * kFloat,
                   linear_backward_weight_scratch_floats(rows, C) * kFloat, linear_backward_weight_scratch_floats(rows, 3 * C) * kFloat,
                   linear_backward_weight_scratch_floats(rows, 4 * C) * kFloat, gpt2::ops::grad_norm_scratch_bytes<bf16>(parameters)});
}

// Beside the bf16 weights.
int64_t master_bytes(Masters masters, int64_t parameters) {
  switch (masters) {
    case Masters::as_fp32:
      return parameters * kFloat;
    case Masters::split:
      return parameters * kBf16 + (parameters + 7) / 8;
  }
  return 0;
}

// Of both.
int64_t moment_bytes(Moments moments, int64_t parameters) {
  switch (moments) {
    case Moments::as_fp32:
      return 2 * parameters * kFloat;
    case Moments::split:
      return 2 * parameters * (kBf16 + kLowByte);
    case Moments::as_16_bits:
      return 2 * parameters * kBf16;
  }
  return 0;
}

// Of a value of the residual stream beside what the backward pass has of it, which is the whole value where that is bf16.
template <class Form>
int64_t beside_rounded(Form form) {
  switch (form) {
    case Form::split:
      return kLowByte;
    case Form::as_fp32:
      return kFloat;
    case Form::as_bf16:
      break;
  }
  return 0;
}

// Of a value in the rows that ranks gather, where a split one is joined.
int64_t gathered_value_bytes(EmbeddingExchange exchange, ResidualGradient gradient) {
  return exchange == EmbeddingExchange::gathered_bf16_rows || gradient == ResidualGradient::as_bf16 ? kBf16 : kFloat;
}

bool searches_plans(const VariantChoice& variants) {
  const bool by_cudnn = variants.attention_forward == AttentionForward::cudnn || variants.attention_backward == AttentionBackward::cudnn ||
                        variants.attention_backward == AttentionBackward::cudnn_deterministic;
  return by_cudnn && variants.attention_plan == AttentionPlan::measured;
}

// The plan when attention takes so much scratch: cuDNN answers that by building its kernels, which is too slow to ask for every batch
// size of a bisection; its workspace grows in proportion to the batch.
MemoryPlan plan_with(const gpt2::TrainerOptions& o, const VariantChoice& variants, int64_t attention_bytes) {
  const int64_t B = o.batch_size;
  const int64_t T = o.seq_len;
  const int64_t C = o.model.channels;
  const int64_t L = o.model.layers;
  const int64_t rows = B * T;
  const int64_t of_stream = beside_rounded(variants.residual_stream);
  const int64_t of_gradient = beside_rounded(variants.residual_gradient);

  MemoryPlan plan;
  plan.layout = gpt2::tensor_layout(o.model);
  plan.parameter_count = plan.layout.total;
  const auto two_arenas = gradient_arenas(variants.weight_gradients, variants.wte_gradient, plan.layout);
  plan.ranks = gpt2::ops::plan_ranks(o, variants.communication, variants.gradient_reduction, two_arenas ? two_arenas->narrow : 0);
  if (plan.ranks) {
    plan.ranks->embedding = variants.embedding_exchange;
    plan.ranks->start = variants.exchange_start;
    plan.ranks->embedding_row_bytes = C * gathered_value_bytes(variants.embedding_exchange, variants.residual_gradient);
    plan.ranks->split_states = two_arenas.has_value() || variants.masters == Masters::split || variants.moments != Moments::as_fp32;
  } else {
    plan.gradient_arenas = two_arenas;
  }
  plan.recompute = recompute_from_name(o.recompute);
  const int64_t layers_of_gelu = plan.recompute == Recompute::none ? L : 1;
  const int64_t layers_of_ln = plan.recompute == Recompute::gelu_and_layernorm ? 1 : L;

  gpt2::ops::Arena arena(1);
  ActivationSlots& a = plan.activations;
  a.encoded = arena.take(rows * C * kBf16);
  a.ln1 = arena.take(rows * C * kBf16, layers_of_ln);
  a.ln1_mean = arena.take(rows * kFloat, L);
  a.ln1_rstd = arena.take(rows * kFloat, L);
  a.qkv = arena.take(rows * 3 * C * kBf16, L);
  a.attention = arena.take(rows * C * kBf16, L);
  a.lse = arena.take(B * o.model.heads * T * kFloat, L);
  a.residual1 = arena.take(rows * C * kBf16, L);
  a.ln2 = arena.take(rows * C * kBf16, layers_of_ln);
  a.ln2_mean = arena.take(rows * kFloat, L);
  a.ln2_rstd = arena.take(rows * kFloat, L);
  a.mlp_up = arena.take(rows * 4 * C * kBf16, L);
  a.gelu = arena.take(rows * 4 * C * kBf16, layers_of_gelu);
  a.residual2 = arena.take(rows * C * kBf16, L);
  a.lnf = arena.take(rows * C * kBf16);
  a.lnf_mean = arena.take(rows * kFloat);
  a.lnf_rstd = arena.take(rows * kFloat);
  a.logits = arena.take(rows * o.model.padded_vocab * kBf16);
  a.losses = arena.take(rows * kFloat);
  if (variants.lm_head == LmHead::hopper) a.head_factors = arena.take(rows * kFloat);
  if (of_stream > 0) a.stream = arena.take(rows * C * of_stream);
  a.dresidual = arena.take(rows * C * (of_gradient > 0 ? of_gradient : kBf16));
  a.dresidual_rounded = of_gradient > 0 ? arena.take(rows * C * kBf16) : a.dresidual;
  a.branch = a.dresidual_rounded;
  plan.activation_bytes = arena.total();

  plan.scratch_bytes = scratch_bytes(o, variants, attention_bytes, plan.parameter_count);
  plan.embedding_scratch_bytes =
      gpt2::ops::embedding_backward_scratch_bytes(plan.ranks && plan.ranks->gathers_rows() ? plan.ranks->gathered_tokens() : rows, C);
  plan.token_count = 2 * rows;

  plan.items = {
      {"bf16 weights", plan.whole_elements() * kBf16},
      {"master weights", master_bytes(variants.masters, plan.divided_elements())},
      {"gradients", plan.wide_gradient_elements() * kFloat + plan.narrow_gradient_elements() * kBf16},
      {"optimizer state", moment_bytes(variants.moments, plan.divided_elements())},
      {"activations", plan.activation_bytes},
      {"scratch", plan.scratch_bytes + plan.embedding_scratch_bytes},
      {"matmul workspace", kMatmulWorkspaceBytes},
      {"tokens and scalars", plan.token_count * 4 + static_cast<int64_t>(sizeof(gpt2::ops::StepScalars) + sizeof(gpt2::ops::StepStats))},
  };
  if (plan.ranks) plan.items.push_back({"communication", plan.ranks->buffer_bytes()});
  return plan;
}

}  // namespace

std::optional<gpt2::ops::GradientLayout> gradient_arenas(WeightGradients storage, WteGradient wte, const gpt2::TensorLayout& layout) {
  using gpt2::Tensor;
  switch (storage) {
    case WeightGradients::as_fp32:
      return std::nullopt;
    case WeightGradients::as_bf16:
      break;
  }
  switch (wte) {
    case WteGradient::as_bf16:
      return gpt2::ops::gradient_layout(layout, {Tensor::wte, Tensor::qkvw, Tensor::attprojw, Tensor::fcw, Tensor::fcprojw});
    case WteGradient::as_fp32:
      break;
  }
  return gpt2::ops::gradient_layout(layout, {Tensor::qkvw, Tensor::attprojw, Tensor::fcw, Tensor::fcprojw});
}

Recompute recompute_from_name(std::string_view name) {
  if (name == "none") return Recompute::none;
  if (name == "gelu") return Recompute::gelu;
  if (name == "gelu+ln") return Recompute::gelu_and_layernorm;
  throw stepscope::InputError(fmt::format("--recompute {}: expected none, gelu or gelu+ln", name));
}

MemoryPlan plan_memory(const gpt2::TrainerOptions& options, const VariantChoice& variants) {
  gpt2::check_trainable_shape(options);
  return plan_with(options, variants, attention_scratch_bytes(options, variants));
}

int64_t largest_batch(gpt2::TrainerOptions options, const VariantChoice& variants, int64_t free_bytes) {
  options.batch_size = 1;
  // Of cuDNN's first plan: the allowance of those that a search times besides does not grow with the batch.
  VariantChoice first = variants;
  first.attention_plan = AttentionPlan::heuristic;
  const int64_t attention_of_one = attention_scratch_bytes(options, first);
  const int64_t searched = searches_plans(variants) ? kMostSearchedWorkspaceBytes : 0;
  return gpt2::largest_fitting_batch(options.seq_len, free_bytes, [&](int64_t batch) {
    options.batch_size = batch;
    return plan_with(options, variants, std::max(batch * attention_of_one, searched)).total_bytes();
  });
}

}  // namespace mixed
