// The arithmetic of memory_plan.h.
#include "fp32/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "fp32/kernels/attention.cuh"
#include "gpt2/ops/encoder.cuh"
#include "gpt2/ops/grad_norm.cuh"
#include "gpt2/ops/layernorm_backward.cuh"
#include "gpt2/trainer_checks.h"

namespace fp32 {
namespace {

constexpr int64_t kFloat = 4;

int64_t scratch_bytes(const gpt2::TrainerOptions& o, const VariantChoice& variants, int64_t parameters) {
  const int64_t rows = o.batch_size * o.seq_len;
  const int64_t C = o.model.channels;
  const AttentionShape attention{o.batch_size, o.seq_len, C, o.model.heads};
  const auto linear = [&](int64_t out) {
    return linear_backward_scratch_floats(variants.linear_backward, matmul_rate_from_name(o.matmul), rows, out) * kFloat;
  };
  return std::max({attention_forward_scratch_bytes(variants.attention_forward, attention),
                   attention_backward_scratch_bytes(variants.attention_backward, attention),
                   gpt2::ops::layernorm_backward_scratch_floats<float>(variants.layernorm_backward, rows, C) * kFloat, linear(C),
                   linear(3 * C), linear(4 * C), gpt2::ops::embedding_backward_scratch_bytes(rows, C),
                   gpt2::ops::grad_norm_scratch_bytes<float>(parameters)});
}

}  // namespace

MemoryPlan plan_memory(const gpt2::TrainerOptions& o, const VariantChoice& variants) {
  gpt2::check_trainable_shape(o);
  const int64_t B = o.batch_size;
  const int64_t T = o.seq_len;
  const int64_t C = o.model.channels;
  const int64_t L = o.model.layers;
  const int64_t rows = B * T;

  MemoryPlan plan;
  plan.layout = gpt2::tensor_layout(o.model);
  plan.parameter_count = plan.layout.total;
  plan.ranks = gpt2::ops::plan_ranks(o, variants.communication, variants.gradient_reduction);

  gpt2::ops::Arena kept(kFloat);
  ActivationSlots& a = plan.activations;
  a.encoded = kept.take(rows * C);
  a.ln1 = kept.take(rows * C, L);
  a.ln1_mean = kept.take(rows, L);
  a.ln1_rstd = kept.take(rows, L);
  a.qkv = kept.take(rows * 3 * C, L);
  a.attention = kept.take(rows * C, L);
  a.lse = kept.take(B * o.model.heads * T, L);
  a.residual1 = kept.take(rows * C, L);
  a.ln2 = kept.take(rows * C, L);
  a.ln2_mean = kept.take(rows, L);
  a.ln2_rstd = kept.take(rows, L);
  a.mlp_up = kept.take(rows * 4 * C, L);
  a.gelu = kept.take(rows * 4 * C, L);
  a.residual2 = kept.take(rows * C, L);
  a.lnf = kept.take(rows * C);
  a.lnf_mean = kept.take(rows);
  a.lnf_rstd = kept.take(rows);
  a.branch = kept.take(rows * C);
  a.logits = kept.take(rows * o.model.padded_vocab);
  a.losses = kept.take(rows);
  plan.activation_floats = kept.total();

  gpt2::ops::Arena reused(kFloat);
  plan.gradients.residual = reused.take(rows * C);
  plan.gradients.branch = reused.take(rows * C);
  plan.gradients.qkv = reused.take(rows * 3 * C);
  plan.gradients.mlp = reused.take(rows * 4 * C);
  plan.activation_gradient_floats = reused.total();

  plan.scratch_bytes = scratch_bytes(o, variants, plan.parameter_count);
  plan.token_count = 2 * rows;

  plan.items = {
      {"parameters", plan.whole_elements() * kFloat},
      {"gradients", plan.whole_elements() * kFloat},
      {"optimizer state", 2 * plan.divided_elements() * kFloat},
      {"activations", plan.activation_floats * kFloat},
      {"activation gradients", plan.activation_gradient_floats * kFloat},
      {"scratch", plan.scratch_bytes},
      {"matmul workspace", kMatmulWorkspaceBytes},
      {"tokens and scalars", plan.token_count * 4 + static_cast<int64_t>(sizeof(gpt2::ops::StepScalars) + sizeof(gpt2::ops::StepStats))},
  };
  if (plan.ranks) plan.items.push_back({"communication", plan.ranks->buffer_bytes()});
  return plan;
}

int64_t largest_batch(gpt2::TrainerOptions options, const VariantChoice& variants, int64_t free_bytes) {
  return gpt2::largest_fitting_batch(options.seq_len, free_bytes, [&](int64_t batch) {
    options.batch_size = batch;
    return plan_memory(options, variants).total_bytes();
  });
}

}  // namespace fp32
