// Where every tensor of the trainer lies in its arena, and how much memory that takes: host arithmetic only, done before anything is
// allocated. The model adds arena pointers to these offsets, so the plan cannot disagree with what is used.
#pragma once
#include <cstdint>

#include "fp32/variants.h"
#include "gpt2/ops/memory_plan.h"
#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace fp32 {

using gpt2::ops::Slot;  // in elements

// Kept from forward to backward. rows = B * T.
struct ActivationSlots {
  Slot encoded;                  // (rows, C): the residual stream before layer 0
  Slot ln1, ln1_mean, ln1_rstd;  // per layer: (rows, C), (rows), (rows)
  Slot qkv, attention, lse;      // per layer: (rows, 3C), (rows, C), (B, NH, T)
  Slot residual1;                // per layer: (rows, C)
  Slot ln2, ln2_mean, ln2_rstd;  // per layer
  Slot mlp_up, gelu;             // per layer: (rows, 4C) before and after the activation
  Slot residual2;                // per layer: (rows, C): the residual stream after the layer
  Slot lnf, lnf_mean, lnf_rstd;  // (rows, C), (rows), (rows)
  Slot branch;                   // (rows, C): output of a projection on its way into the residual sum; reused
  Slot logits;                   // (rows, Vp): then their gradient
  Slot losses;                   // (rows)
};

// Gradients of activations, all reused by every layer.
struct ActivationGradientSlots {
  Slot residual;  // (rows, C): gradient of the residual stream
  Slot branch;    // (rows, C)
  Slot qkv;       // (rows, 3C)
  Slot mlp;       // (rows, 4C)
};

struct MemoryPlan : gpt2::ops::PlannedMemory {
  ActivationSlots activations;
  ActivationGradientSlots gradients;
  int64_t activation_floats = 0;
  int64_t activation_gradient_floats = 0;
};

// Throws stepscope::InputError when the shape cannot be trained: a bad config, B or T < 1, T beyond max_seq_len, or B * T >= 2^31.
MemoryPlan plan_memory(const gpt2::TrainerOptions& options, const VariantChoice& variants);

// The largest batch size at this sequence length whose plan fits in `free_bytes`; 0 when not even one sequence does.
int64_t largest_batch(gpt2::TrainerOptions options, const VariantChoice& variants, int64_t free_bytes);

}  // namespace fp32
