// Softmax cross entropy over the vocabulary, and its gradient in place of the logits.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "mixed/kernels/common.cuh"
#include "mixed/step_scalars.h"
#include "mixed/variants.h"

namespace mixed {

// logits (rows,Vp) -> losses (rows) over the first V columns. When `write_gradient`, logits become
// (softmax - onehot(target)) * scalars->gradient_scale, padded columns zero; otherwise they stay.
// one_read holds a row on the chip between its one read and its one write; a row that is too long or not aligned for that is read
// twice.
void classifier(Classifier variant, bf16* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
                const StepScalars* scalars, bool write_gradient, cudaStream_t stream);

// stats->loss = scalars->loss_scale * sum of losses (rows), in double and in a fixed order; added to it when `accumulate`.
void mean_loss(StepStats* stats, const float* losses, int64_t rows, const StepScalars* scalars, bool accumulate,
               cudaStream_t stream);

}  // namespace mixed
