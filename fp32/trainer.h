// The FP32 trainer: gpt2::Trainer on one GPU, alone or as a rank of several. Nothing here names CUDA.
// Promises: no allocation and no host synchronization inside a step; two runs with the same inputs, variants, device and
// libraries are bitwise equal (no float atomics, every sum in a fixed order).
#pragma once
#include <memory>
#include <vector>

#include "gpt2/trainer.h"

namespace fp32 {

// Plans the memory first. Throws stepscope::InputError for an impossible shape, an unknown matmul rate, slot or variant, and for --recompute
// and --weight-rounding, which it does not have; stepscope::MachineError when there is no device or not enough memory: it says what was
// needed, what is free, and the largest batch that fits. `name()` of the trainer is "fp32".
std::unique_ptr<gpt2::Trainer> make_fp32_trainer(const gpt2::TrainerOptions& options);

// Every slot with its variants, the default first. Needs no device.
std::vector<gpt2::VariantInfo> fp32_variants();
// One per row of the table, for lists and checks.
std::vector<gpt2::VariantFacts> fp32_variant_facts();

}  // namespace fp32
