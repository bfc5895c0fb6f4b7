// Softmax cross entropy over the vocabulary, and its gradient in place of the logits.
//
// S is the storage type of the logits: float or bf16, both instantiated. A scale is a number (fp32 trainer), or lies on the device
// (mixed), where a captured graph reads what the step has put there.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "gpt2/ops/storage.cuh"
#include "gpt2/ops/variants.h"

namespace gpt2::ops {

// logits (rows,Vp) -> losses (rows) over the first V columns. When `write_gradient`, logits become
// (softmax - onehot(target)) * gradient_scale, padded columns zero; otherwise they stay.
// one_read holds a row on the chip between its one read and its one write. Throws stepscope::InputError with the words of why_not().
// Scale: float with S = float, const float* (device) with S = bf16.
template <class S, class Scale>
void classifier(Classifier variant, S* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp, Scale gradient_scale,
                bool write_gradient, cudaStream_t stream);
// Why a row of Vp logits cannot be handled on a device whose blocks have so much shared memory; empty when it can. `packs`: rows are
// aligned for packs of 16 bytes of S.
template <class S>
std::optional<std::string> why_not(Classifier variant, int64_t Vp, bool packs, int64_t shared_bytes_per_block);

// *loss = scale * sum of losses (rows), in double and in a fixed order; added to *loss when `accumulate`. Scale: double, or const double*
// (device).
template <class Scale>
void mean_loss(double* loss, const float* losses, int64_t rows, Scale scale, bool accumulate, cudaStream_t stream);

}  // namespace gpt2::ops
