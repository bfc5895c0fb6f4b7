// The floors of the ops that the chosen variants run: a fused op has the work of its parts, less what never leaves the chip.
#pragma once
#include <cstdint>
#include <vector>

#include "gpt2/trainer.h"
#include "gpt2/work_model.h"
#include "mixed/variants.h"

namespace mixed {

// One entry per range path of a step. Bytes are counted with a bf16 residual stream, whatever its storage: the floor of the task.
std::vector<gpt2::OpWork> fused_work(const gpt2::TrainerOptions& options, const VariantChoice& variants, int64_t micro_batches);

}  // namespace mixed
