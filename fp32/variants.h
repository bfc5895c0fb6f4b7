// The one table of the trainer's op slots and their variants. The enums order the variants as the table names them; the first is
// the default. To add a variant: an enumerator, its name in variants.cpp, a kernel in kernels/, a case in that file's launcher.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpt2/trainer.h"

namespace fp32 {

enum class LayernormForward { warp_per_row, block_per_row };
enum class LayernormBackward { fused_rows, separate_columns };
enum class LinearForward { bias_epilogue, bias_kernel };
enum class AttentionForward { unfused_causal_blocks, unfused, fused };
enum class AttentionBackward { unfused_causal_blocks, unfused, fused };
enum class Classifier { two_pass, row_in_shared };
enum class ZeroGrad { overwrite, memset };
enum class AdamWKernel { all_tensors, per_tensor };

struct VariantChoice {
  LayernormForward layernorm_forward{};
  LayernormBackward layernorm_backward{};
  LinearForward linear_forward{};
  AttentionForward attention_forward{};
  AttentionBackward attention_backward{};
  Classifier classifier{};
  ZeroGrad zero_grad{};
  AdamWKernel adamw{};
};

std::vector<gpt2::VariantInfo> variant_table();

// Defaults, changed by the given slot -> name. Throws stepscope::InputError naming the slot, what was given and what there is.
VariantChoice choose_variants(const std::map<std::string, std::string>& wanted);

// Index of a variant in its slot's row. Throws stepscope::InputError like choose_variants.
int variant_index(std::string_view slot, std::string_view variant);

}  // namespace fp32
