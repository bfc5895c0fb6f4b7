// Why a variant of the mixed trainer cannot run where it is asked for: the end of a sentence that begins with the variant's name, or nothing.
// The table of variants names these; slots before the asked one are settled in `choice`.
#pragma once
#include <optional>
#include <string>

#include "mixed/variant_rows.h"

namespace mixed {

using Refusal = std::optional<std::string>;

Refusal no_residual_product(const Run& run, const VariantChoice& choice);
Refusal no_gelu_product(const Run& run, const VariantChoice& choice);
Refusal no_hopper_gelu(const Run& run, const VariantChoice& choice);
Refusal no_hopper_gelu_backward(const Run& run, const VariantChoice& choice);
Refusal no_hopper_head(const Run& run, const VariantChoice& choice);
Refusal no_input_of_gelu(const Run& run, const VariantChoice& choice);
Refusal no_gelu_backward_product(const Run& run, const VariantChoice& choice);
Refusal no_bias_product(const Run& run, const VariantChoice& choice);
Refusal no_bias_gradient_product(const Run& run, const VariantChoice& choice);
Refusal no_attention_fold(const Run& run, const VariantChoice& choice);
Refusal no_fold(const Run& run, const VariantChoice& choice);
Refusal no_warp_per_row(const Run& run, const VariantChoice& choice);
Refusal no_fused_rows(const Run& run, const VariantChoice& choice);
Refusal no_hopper_attention(const Run& run, const VariantChoice& choice);
Refusal no_cudnn_attention(const Run& run, const VariantChoice& choice);
Refusal no_cudnn_backward(const Run& run, const VariantChoice& choice);
Refusal no_cudnn_deterministic(const Run& run, const VariantChoice& choice);
Refusal no_flash(const Run& run, const VariantChoice& choice);
Refusal no_blocks(const Run& run, const VariantChoice& choice);
Refusal no_gathered_rows(const Run& run, const VariantChoice& choice);
// Not why it cannot run, but why it is not the default: the rows that it gathers are more bytes than wte's gradient.
Refusal why_dense_embedding(const Run& run, const VariantChoice& choice);
Refusal why_dense_rather_than_bf16_rows(const Run& run, const VariantChoice& choice);
Refusal no_split_masters(const Run& run, const VariantChoice& choice);
Refusal no_narrow_moments(const Run& run, const VariantChoice& choice);
Refusal no_bf16_weight_gradients(const Run& run, const VariantChoice& choice);
Refusal no_bf16_wte_gradient(const Run& run, const VariantChoice& choice);
Refusal no_programmatic_edges(const Run& run, const VariantChoice& choice);
Refusal no_one_read(const Run& run, const VariantChoice& choice);
Refusal no_fitting_tiles(const Run& run, const VariantChoice& choice);
Refusal no_energy_counter(const Run& run, const VariantChoice& choice);

}  // namespace mixed
