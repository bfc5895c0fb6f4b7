// Where every tensor of the trainer lies in its arena, and how much memory that takes: host arithmetic only (cuDNN is asked for its
// workspace), done before anything is allocated. The model adds arena pointers to these offsets, so the plan cannot disagree with what
// is used.
//
// Gradients of activations take the place of activations that the backward pass has read for the last time; only the gradient of the
// residual stream has a place of its own. Comments at the slots say who moves in.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "gpt2/ops/memory_plan.h"
#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"
#include "mixed/variants.h"

namespace mixed {

// What the forward pass does not keep for the backward pass, which makes it again.
enum class Recompute { none, gelu, gelu_and_layernorm };
// "none", "gelu", "gelu+ln". Throws stepscope::InputError.
Recompute recompute_from_name(std::string_view name);

using gpt2::ops::Slot;  // in bytes

// Kept from forward to backward; rows = B * T. bf16 unless said.
struct ActivationSlots {
  Slot encoded;                  // (rows, C): the residual stream before layer 0
  Slot ln1, ln1_mean, ln1_rstd;  // per layer: (rows, C), then the gradient of ln1's output; statistics fp32 (rows)
  Slot qkv, attention, lse;      // per layer: (rows, 3C), (rows, C), fp32 (B, NH, T)
  Slot residual1;                // per layer: (rows, C)
  Slot ln2, ln2_mean, ln2_rstd;  // per layer; ln2: then the gradient of ln2's output, then of attention's
  Slot mlp_up, gelu;             // per layer: (rows, 4C) before and after the activation. mlp_up: then the gradient of qkv;
                                 // gelu: then the gradient of mlp_up. gelu and ln* shared by the layers under recompute
  Slot residual2;                // per layer: (rows, C): the residual stream after the layer
  Slot lnf, lnf_mean, lnf_rstd;  // (rows, C), then the gradient of lnf's output
  Slot logits;                   // (rows, Vp): then their gradient; with lm_head=hopper exponentials, in passes that go backward
  Slot losses;                   // fp32 (rows)
  Slot head_factors;             // fp32 (rows), with lm_head=hopper alone
  Slot stream;                   // (rows, C): the residual stream itself in fp32, or split its lower byte; the slots above then hold it
                                 // rounded, which is its upper half. Not taken where it is bf16
  Slot dresidual;                // (rows, C) fp32 or bf16: gradient of the residual stream; split its lower byte
  Slot dresidual_rounded;        // (rows, C): the same in bf16, split its upper half; the same place where it is bf16
  Slot branch;                   // (rows, C): in the forward pass, output of a projection on its way into the residual sum; the
                                 // place of dresidual_rounded, which only the backward pass writes
};

// parameter_count: of the bf16 weights, the gradients, the master weights, Adam m and Adam v.
struct MemoryPlan : gpt2::ops::PlannedMemory {
  Recompute recompute = Recompute::none;
  ActivationSlots activations;
  int64_t activation_bytes = 0;
  int64_t embedding_scratch_bytes = 0;  // beside scratch_bytes: the embedding's backward has it from the head's on
};

// Which gradients lie in a bf16 arena: with weight_gradients=bf16 those of the blocks' matrices, and with wte_gradient=bf16 wte's as well.
std::optional<gpt2::ops::GradientLayout> gradient_arenas(WeightGradients storage, WteGradient wte, const gpt2::TensorLayout& layout);

// Throws stepscope::InputError when the shape cannot be trained: a bad config, B or T < 1, T beyond max_seq_len, or B * T >= 2^31.
MemoryPlan plan_memory(const gpt2::TrainerOptions& options, const VariantChoice& variants);

// The largest batch size at this sequence length whose plan fits in `free_bytes`; 0 when not even one sequence does.
int64_t largest_batch(gpt2::TrainerOptions options, const VariantChoice& variants, int64_t free_bytes);

}  // namespace mixed
