// Softmax cross entropy over the vocabulary, and its gradient in place of the logits.
// S is the storage type of the logits: float or bf16, both instantiated.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "gpt2/ops/step_scalars.h"
#include "gpt2/ops/storage.cuh"
#include "gpt2/ops/variants.h"

namespace gpt2::ops {

// logits (rows,Vp) -> losses (rows) over the first V columns. When `write_gradient`, logits become
// (softmax - onehot(target)) * scalars->gradient_scale, padded columns zero; otherwise they stay.
// one_read holds a row on the chip between its one read and its one write. Throws stepscope::InputError with the words of why_not().
template <class S>
void classifier(Classifier variant, S* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
                const StepScalars* scalars, bool write_gradient, cudaStream_t stream);
// Why a row of Vp logits cannot be handled on a device whose blocks have so much shared memory; empty when it can. `packs`: rows are
// aligned for packs of 16 bytes of S.
template <class S>
std::optional<std::string> why_not(Classifier variant, int64_t Vp, bool packs, int64_t shared_bytes_per_block);

// stats->loss = scalars->loss_scale * sum of losses (rows), in double and in a fixed order; added to it when `accumulate`.
void mean_loss(StepStats* stats, const float* losses, int64_t rows, const StepScalars* scalars, bool accumulate, cudaStream_t stream);

}  // namespace gpt2::ops
