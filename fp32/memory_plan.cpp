// The arithmetic of memory_plan.h.
#include "fp32/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "fp32/kernels/attention.cuh"
#include "fp32/kernels/column_sums.cuh"
#include "fp32/kernels/encoder.cuh"
#include "fp32/kernels/grad_norm.cuh"
#include "fp32/kernels/layernorm.cuh"
#include "gpt2/errors.h"

namespace fp32 {
namespace {

constexpr int64_t kFloat = 4;

// Deals out offsets, each a multiple of 64 floats: 256 bytes, what cuBLAS likes best.
class Arena {
 public:
  Slot take(int64_t floats, int64_t layers = 1) {
    const int64_t each = (floats + 63) / 64 * 64;
    const Slot slot{total_, each};
    total_ += each * layers;
    return slot;
  }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
};

void check_shape(const gpt2::TrainerOptions& o) {
  gpt2::check_config(o.model, "model");
  if (o.batch_size < 1) throw stepscope::InputError(fmt::format("--batch-size {}: expected at least 1", o.batch_size));
  if (o.seq_len < 1 || o.seq_len > o.model.max_seq_len)
    throw stepscope::InputError(
        fmt::format("--seq-len {}: expected 1 to {}, the positions of the model", o.seq_len, o.model.max_seq_len));
  if (o.batch_size > 2147483647 / o.seq_len)
    throw stepscope::InputError(fmt::format("--batch-size {} x --seq-len {}: a micro-batch must have fewer than 2^31 tokens",
                                            o.batch_size, o.seq_len));
}

int64_t scratch_bytes(const gpt2::TrainerOptions& o, const VariantChoice& variants, int64_t parameters) {
  const int64_t rows = o.batch_size * o.seq_len;
  const int64_t C = o.model.channels;
  const AttentionShape attention{o.batch_size, o.seq_len, C, o.model.heads};
  return std::max({attention_forward_scratch_floats(variants.attention_forward, attention) * kFloat,
                   attention_backward_scratch_floats(variants.attention_backward, attention) * kFloat,
                   layernorm_backward_scratch_floats(variants.layernorm_backward, rows, C) * kFloat,
                   bias_gradient_scratch_floats(rows, C) * kFloat, bias_gradient_scratch_floats(rows, 3 * C) * kFloat,
                   bias_gradient_scratch_floats(rows, 4 * C) * kFloat, embedding_backward_scratch_bytes(rows, C),
                   grad_norm_scratch_bytes(parameters)});
}

std::string in_gib(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / 1073741824.0); }

}  // namespace

int64_t MemoryPlan::total_bytes() const {
  int64_t sum = 0;
  for (const gpt2::MemoryItem& item : items) sum += item.bytes;
  return sum;
}

MemoryPlan plan_memory(const gpt2::TrainerOptions& o, const VariantChoice& variants) {
  check_shape(o);
  const int64_t B = o.batch_size;
  const int64_t T = o.seq_len;
  const int64_t C = o.model.channels;
  const int64_t L = o.model.layers;
  const int64_t rows = B * T;

  MemoryPlan plan;
  plan.layout = gpt2::tensor_layout(o.model);
  plan.parameter_floats = plan.layout.total;

  Arena kept;
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

  Arena reused;
  plan.gradients.residual = reused.take(rows * C);
  plan.gradients.branch = reused.take(rows * C);
  plan.gradients.qkv = reused.take(rows * 3 * C);
  plan.gradients.mlp = reused.take(rows * 4 * C);
  plan.activation_gradient_floats = reused.total();

  plan.scratch_bytes = scratch_bytes(o, variants, plan.parameter_floats);
  plan.token_count = 2 * rows;

  plan.items = {
      {"parameters", plan.parameter_floats * kFloat},
      {"gradients", plan.parameter_floats * kFloat},
      {"optimizer state", 2 * plan.parameter_floats * kFloat},
      {"activations", plan.activation_floats * kFloat},
      {"activation gradients", plan.activation_gradient_floats * kFloat},
      {"scratch", plan.scratch_bytes},
      {"matmul workspace", kMatmulWorkspaceBytes},
      {"tokens", plan.token_count * 4},
  };
  return plan;
}

int64_t largest_batch(gpt2::TrainerOptions options, const VariantChoice& variants, int64_t free_bytes) {
  const auto fits = [&](int64_t batch) {
    options.batch_size = batch;
    return plan_memory(options, variants).total_bytes() <= free_bytes;
  };
  // The plan grows with the batch, so a bisection between "fits" and "does not" finds the border.
  if (!fits(1)) return 0;
  const int64_t most = 2147483647 / options.seq_len;
  int64_t good = 1;
  int64_t bad = most + 1;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

void require_memory(const MemoryPlan& plan, const gpt2::TrainerOptions& options, const VariantChoice& variants,
                    int64_t free_bytes, std::string_view device_name) {
  const int64_t needed = plan.total_bytes();
  if (needed <= free_bytes) return;
  std::string parts;
  for (const gpt2::MemoryItem& item : plan.items)
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", item.name, in_gib(item.bytes));
  const int64_t batch = largest_batch(options, variants, free_bytes);
  const std::string advice =
      batch > 0 ? fmt::format("the largest batch that fits at this sequence length is --batch-size {}", batch)
                : std::string("not even one sequence fits: choose a smaller model or --seq-len");
  throw stepscope::MachineError(
      fmt::format("out of memory: --batch-size {} --seq-len {} of this model needs {} ({}), {} has {} free; {}",
                  options.batch_size, options.seq_len, in_gib(needed), parts, device_name, in_gib(free_bytes), advice));
}

}  // namespace fp32
