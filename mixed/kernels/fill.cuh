// Made-up weights for the rehearsal of a step.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "mixed/kernels/common.cuh"

namespace mixed {

// out[i] uniform in [-amplitude, amplitude], a function of i alone.
void fill_uniform(bf16* out, int64_t n, float amplitude, cudaStream_t stream);

}  // namespace mixed
