// AdamW as defined in gpt2/trainer.h; the clip factor is read from the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "fp32/variants.h"
#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace fp32 {

// Flat vectors of layout.total elements; rows of the tensor table that are `decayed` get weight decay. `step` counts from 1.
void adamw(AdamWKernel variant, float* parameters, const float* gradients, float* m, float* v, const gpt2::TensorLayout& layout,
           const gpt2::AdamW& settings, int64_t step, const float* clip_scale, cudaStream_t stream);

}  // namespace fp32
