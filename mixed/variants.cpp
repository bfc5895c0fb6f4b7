// Slot names, variant names, and the reading of --variant slot=name.
#include "mixed/variants.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "gpt2/errors.h"
#include "mixed/attention_cudnn.h"

namespace mixed {
namespace {

// In the order of the enums. The table that users see is this one with the default moved to the front.
std::vector<gpt2::VariantInfo> enum_table() {
  return {
      {"residual_stream", {"fp32", "bf16"}},
      {"residual_gradient", {"fp32", "bf16"}},
      {"residual", {"fused_layernorm", "separate", "matmul_epilogue"}},
      {"layernorm_forward", {"warp_per_row", "block_per_row"}},
      {"layernorm_backward", {"fused_rows", "separate_columns"}},
      {"linear_forward", {"bias_epilogue", "bias_kernel"}},
      {"bias_gradient", {"layernorm_fold", "matmul_epilogue", "column_sums"}},
      {"gelu_forward", {"matmul_epilogue", "kernel"}},
      {"gelu_backward", {"matmul_epilogue", "kernel"}},
      {"attention_forward", {"cudnn", "flash", "unfused"}},
      {"attention_backward", {"cudnn", "cudnn_deterministic", "flash", "unfused"}},
      {"classifier", {"one_read", "two_pass"}},
      {"zero_grad", {"overwrite", "memset"}},
      {"adamw", {"all_tensors", "per_tensor"}},
      {"step_launch", {"graph", "stream"}},
      {"matmul_algorithm", {"search", "heuristic"}},
  };
}

bool is_attention(std::string_view slot) { return slot.starts_with("attention_"); }

// What a slot is without --variant.
std::string_view default_of(const gpt2::VariantInfo& row, bool deterministic) {
  if (is_attention(row.slot) && why_no_cudnn()) return "flash";
  if (deterministic && row.slot == "attention_backward") return "cudnn_deterministic";
  // A search is a race between algorithms, which another run may end differently.
  if (deterministic && row.slot == "matmul_algorithm") return "heuristic";
  return row.names.front();
}

template <class Enum>
void assign(Enum& field, int index) {
  field = static_cast<Enum>(index);
}

}  // namespace

std::vector<gpt2::VariantInfo> variant_table() {
  std::vector<gpt2::VariantInfo> table = enum_table();
  for (gpt2::VariantInfo& row : table) {
    const auto first = std::find(row.names.begin(), row.names.end(), default_of(row, false));
    std::rotate(row.names.begin(), first, first + 1);
  }
  return table;
}

int variant_index(std::string_view slot, std::string_view variant) {
  std::vector<std::string> slots;
  for (const gpt2::VariantInfo& row : enum_table()) {
    slots.push_back(row.slot);
    if (row.slot != slot) continue;
    const auto found = std::find(row.names.begin(), row.names.end(), variant);
    if (found == row.names.end())
      throw stepscope::InputError(fmt::format("--variant {}={}: the mixed trainer has no such variant; {} can be: {}", slot,
                                              variant, slot, fmt::join(row.names, ", ")));
    if (is_attention(slot) && variant.starts_with("cudnn"))
      if (const auto why = why_no_cudnn())
        throw stepscope::MachineError(fmt::format("--variant {}={}: {}", slot, variant, *why));
    return static_cast<int>(found - row.names.begin());
  }
  throw stepscope::InputError(fmt::format("--variant {}={}: the mixed trainer has no op slot of that name; its slots are: {}",
                                          slot, variant, fmt::join(slots, ", ")));
}

VariantChoice choose_variants(const std::map<std::string, std::string>& wanted, bool deterministic) {
  for (const auto& [slot, name] : wanted) {
    (void)variant_index(slot, name);
    if (deterministic && ((slot == "attention_backward" && name == "cudnn") || (slot == "matmul_algorithm" && name == "search")))
      throw stepscope::InputError(
          fmt::format("--variant {}={} does not repeat bit for bit from run to run: leave it out with --deterministic", slot, name));
  }
  VariantChoice choice;
  for (const gpt2::VariantInfo& row : enum_table()) {
    const auto given = wanted.find(row.slot);
    const int index = variant_index(row.slot, given != wanted.end() ? given->second : default_of(row, deterministic));
    if (row.slot == "residual_stream") assign(choice.residual_stream, index);
    if (row.slot == "residual_gradient") assign(choice.residual_gradient, index);
    if (row.slot == "residual") assign(choice.residual, index);
    if (row.slot == "layernorm_forward") assign(choice.layernorm_forward, index);
    if (row.slot == "layernorm_backward") assign(choice.layernorm_backward, index);
    if (row.slot == "linear_forward") assign(choice.linear_forward, index);
    if (row.slot == "bias_gradient") assign(choice.bias_gradient, index);
    if (row.slot == "gelu_forward") assign(choice.gelu_forward, index);
    if (row.slot == "gelu_backward") assign(choice.gelu_backward, index);
    if (row.slot == "attention_forward") assign(choice.attention_forward, index);
    if (row.slot == "attention_backward") assign(choice.attention_backward, index);
    if (row.slot == "classifier") assign(choice.classifier, index);
    if (row.slot == "zero_grad") assign(choice.zero_grad, index);
    if (row.slot == "adamw") assign(choice.adamw, index);
    if (row.slot == "step_launch") assign(choice.step_launch, index);
    if (row.slot == "matmul_algorithm") assign(choice.matmul_algorithm, index);
  }
  return choice;
}

}  // namespace mixed
