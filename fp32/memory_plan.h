// Where every tensor of the trainer lies in its arena, and how much memory that takes: host arithmetic only, done before anything is
// allocated. The model adds arena pointers to these offsets, so the plan cannot disagree with what is used.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "fp32/variants.h"
#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace fp32 {

// One tensor in an arena, in elements. Tensors that every layer has lie `layer_stride` apart.
struct Slot {
  int64_t offset = 0;
  int64_t layer_stride = 0;
  int64_t at(int64_t layer = 0) const { return offset + layer * layer_stride; }
};

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

struct MemoryPlan {
  gpt2::TensorLayout layout;
  ActivationSlots activations;
  ActivationGradientSlots gradients;
  int64_t parameter_count = 0;  // each of: parameters, gradients, Adam m, Adam v
  int64_t activation_floats = 0;
  int64_t activation_gradient_floats = 0;
  int64_t scratch_bytes = 0;  // the most any one op needs
  int64_t token_count = 0;    // inputs and targets of one micro-batch
  std::vector<gpt2::MemoryItem> items;
  int64_t total_bytes() const;
};

// Throws stepscope::InputError when the shape cannot be trained: a bad config, B or T < 1, T beyond max_seq_len, or B * T >= 2^31.
MemoryPlan plan_memory(const gpt2::TrainerOptions& options, const VariantChoice& variants);

// The largest batch size at this sequence length whose plan fits in `free_bytes`; 0 when not even one sequence does.
int64_t largest_batch(gpt2::TrainerOptions options, const VariantChoice& variants, int64_t free_bytes);

// Throws stepscope::MachineError that says what is needed (by kind), what is free and the largest batch that fits, unless it fits.
void require_memory(const MemoryPlan& plan, const gpt2::TrainerOptions& options, const VariantChoice& variants, int64_t free_bytes,
                    std::string_view device_name);

}  // namespace fp32
