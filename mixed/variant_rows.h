// What the table of variants is asked, and with what. Not for device code, which cannot include {fmt}.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "gpt2/variant_rows.h"
#include "mixed/variants.h"

namespace mixed {

struct Gemm;

// What decides whether a variant can run.
struct Run {
  gpt2::TrainerOptions options;
  int64_t shared_bytes_per_block = 0;  // of the device
  // cuBLASLt's answer to a product of the step: why it has no kernel. Must be given.
  std::function<std::optional<std::string>(const Gemm&)> why_no_product;
  // cuDNN's answer to the shape's attention, forward and backward. Must be given.
  std::function<std::optional<std::string>(bool deterministic)> why_no_cudnn_attention;
  int compute_capability_major = 9;                  // of the device
  std::optional<std::string> why_no_kernel_names{};  // in graphs: the driver's lack
  // Why the device's joules cannot be counted. Asked only where a variant needs them: the answer starts NVML.
  std::function<std::optional<std::string>()> why_no_energy_counter = [] { return std::nullopt; };
  // Why cuBLASLt's kernels for a product of the step have other tiles than those that can be named.
  std::function<std::optional<std::string>(const Gemm&)> why_no_named_tiles = [](const Gemm&) { return std::nullopt; };
  // Whether the kernels that wait by themselves for those before them do so in this program: compiled for older GPUs they do not.
  bool kernels_wait = true;
  int compute_capability_minor = 0;  // of the device
  std::string describe() const;      // "C=768 NH=12 V=50257, B=4 T=1024"
};

// Of weight_gradients=bf16.
inline constexpr std::string_view why_no_accumulation_in_bf16 =
    "gradients in bf16 would be rounded again with every micro-batch that is added";

using VariantTable = gpt2::VariantTable<VariantChoice, Run>;
const VariantTable& variants();

}  // namespace mixed
