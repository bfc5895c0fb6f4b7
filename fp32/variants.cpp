// Slot names, variant names, and the reading of --variant slot=name.
#include "fp32/variants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gpt2/errors.h"

namespace fp32 {

std::vector<gpt2::VariantInfo> variant_table() {
  return {
      {"layernorm_forward", {"warp_per_row", "block_per_row"}},
      {"layernorm_backward", {"fused_rows", "separate_columns"}},
      {"linear_forward", {"bias_epilogue", "bias_kernel"}},
      {"attention_forward", {"unfused_causal_blocks", "unfused", "fused"}},
      {"attention_backward", {"unfused_causal_blocks", "unfused", "fused"}},
      {"classifier", {"two_pass", "row_in_shared"}},
      {"zero_grad", {"overwrite", "memset"}},
      {"adamw", {"all_tensors", "per_tensor"}},
  };
}

int variant_index(std::string_view slot, std::string_view variant) {
  std::vector<std::string> slots;
  for (const gpt2::VariantInfo& row : variant_table()) {
    slots.push_back(row.slot);
    if (row.slot != slot) continue;
    const auto found = std::find(row.names.begin(), row.names.end(), variant);
    if (found == row.names.end())
      throw stepscope::InputError(fmt::format("--variant {}={}: the fp32 trainer has no such variant; {} can be: {}", slot,
                                              variant, slot, fmt::join(row.names, ", ")));
    return static_cast<int>(found - row.names.begin());
  }
  throw stepscope::InputError(fmt::format("--variant {}={}: the fp32 trainer has no op slot of that name; its slots are: {}",
                                          slot, variant, fmt::join(slots, ", ")));
}

VariantChoice choose_variants(const std::map<std::string, std::string>& wanted) {
  VariantChoice choice;
  for (const auto& [slot, name] : wanted) {
    const int index = variant_index(slot, name);
    if (slot == "layernorm_forward") choice.layernorm_forward = static_cast<LayernormForward>(index);
    if (slot == "layernorm_backward") choice.layernorm_backward = static_cast<LayernormBackward>(index);
    if (slot == "linear_forward") choice.linear_forward = static_cast<LinearForward>(index);
    if (slot == "attention_forward") choice.attention_forward = static_cast<AttentionForward>(index);
    if (slot == "attention_backward") choice.attention_backward = static_cast<AttentionBackward>(index);
    if (slot == "classifier") choice.classifier = static_cast<Classifier>(index);
    if (slot == "zero_grad") choice.zero_grad = static_cast<ZeroGrad>(index);
    if (slot == "adamw") choice.adamw = static_cast<AdamWKernel>(index);
  }
  return choice;
}

}  // namespace fp32
