// The mixed-precision trainer: gpt2::Trainer on one GPU, alone or as a rank of several. Nothing here names CUDA.
// Weights, activations and their gradients are bf16, and sums are fp32; a master weight has the bits of fp32. How the residual streams,
// masters, moments and parameter gradients are stored is a slot of variants each (mixed/variants.h). Promises: no allocation and no host
// synchronization inside a step, and with TrainerOptions::deterministic, two runs with the same inputs, variants, device and libraries are
// bitwise equal (no float atomics, every sum in a fixed order).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpt2/trainer.h"

namespace mixed {

// Plans the memory first; then runs one rehearsal of a step, which may take seconds the first time on a device (matmul algorithms are
// searched and remembered), and about ten for every product of 2 ms or more. Throws stepscope::InputError for an impossible shape, an
// unknown option, slot or variant; stepscope::MachineError when there is no device, not enough memory (it says what was needed, what is
// free, and the largest batch that fits), or a cuDNN variant is asked for without cuDNN. `name()` of the trainer is "mixed".
std::unique_ptr<gpt2::Trainer> make_mixed_trainer(const gpt2::TrainerOptions& options);

// Every slot with its variants, the default first. Needs no device.
std::vector<gpt2::VariantInfo> mixed_variants();
// One per row of the table, for lists and checks.
std::vector<gpt2::VariantFacts> mixed_variant_facts();

}  // namespace mixed
