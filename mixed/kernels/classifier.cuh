// Softmax cross entropy over the vocabulary, and its gradient in place of the logits.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "gpt2/ops/step_scalars.h"
#include "mixed/kernels/common.cuh"
#include "mixed/variants.h"

namespace mixed {

using gpt2::ops::StepScalars;
using gpt2::ops::StepStats;

// logits (rows,Vp) -> losses (rows) over the first V columns. When `write_gradient`, logits become
// (softmax - onehot(target)) * scalars->gradient_scale, padded columns zero; otherwise they stay.
// one_read holds a row on the chip between its one read and its one write. Throws stepscope::InputError with the words of why_not().
void classifier(Classifier variant, bf16* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
                const StepScalars* scalars, bool write_gradient, cudaStream_t stream);

// Why a row of Vp logits cannot be handled on a device whose blocks have so much shared memory; empty when it can. `packs`: rows are
// aligned for packs of 8.
std::optional<std::string> why_not(Classifier variant, int64_t Vp, bool packs, int64_t shared_bytes_per_block);

// stats->loss = scalars->loss_scale * sum of losses (rows), in double and in a fixed order; added to it when `accumulate`.
void mean_loss(StepStats* stats, const float* losses, int64_t rows, const StepScalars* scalars, bool accumulate, cudaStream_t stream);

}  // namespace mixed
