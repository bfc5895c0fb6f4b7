// Softmax cross entropy over the vocabulary, and its gradient in place of the logits.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "fp32/variants.h"

namespace fp32 {

// logits (rows,Vp) -> losses (rows) over the first V columns. When `write_gradient`, logits become
// (softmax - onehot(target)) * gradient_scale, padded columns zero; otherwise they stay.
// Throws stepscope::InputError with the words of why_not().
void classifier(Classifier variant, float* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
                float gradient_scale, bool write_gradient, cudaStream_t stream);

// Why a row of Vp logits cannot be handled on a device whose blocks have so much shared memory; empty when it can.
std::optional<std::string> why_not(Classifier variant, int64_t Vp, int64_t shared_bytes_per_block);

// *loss = scale * sum of losses (rows), in double and in a fixed order; added to *loss when `accumulate`.
void mean_loss(double* loss, const float* losses, int64_t rows, double scale, bool accumulate, cudaStream_t stream);

}  // namespace fp32
