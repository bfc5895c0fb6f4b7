// AdamW as defined in gpt2/trainer.h on fp32 master weights; the bf16 weights are rounded from them in the same pass. All settings and
// the clip factor are read from the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/tensor_table.h"
#include "mixed/kernels/common.cuh"
#include "mixed/step_scalars.h"
#include "mixed/variants.h"

namespace mixed {

enum class Rounding { nearest, stochastic };

// Flat vectors of layout.total elements; rows of the tensor table that are `decayed` get weight decay.
// stochastic: a master weight between two bf16 numbers goes up with the probability of its distance from the lower one. The random bits
// are a function of a seed and the element's index: scalars->rounding_seed names the weights that this step reads, so the update draws
// with rounding_seed + 1 what the next step reads.
void adamw(AdamWKernel variant, Rounding rounding, bf16* parameters, float* master, float* m, float* v, const float* gradients,
           const gpt2::TensorLayout& layout, const StepScalars* scalars, const float* clip_scale, cudaStream_t stream);

// parameters = master rounded, after the master weights were written from outside. stochastic: with scalars->rounding_seed, so that a
// run that goes on from saved master weights computes with the same bf16 weights as one that was never stopped. scalars may be null
// for nearest.
void round_parameters(Rounding rounding, bf16* parameters, const float* master, int64_t n, const StepScalars* scalars, cudaStream_t stream);

}  // namespace mixed
