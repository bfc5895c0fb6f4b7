// A matrix the other way round, for products that read their operands along the sum alone.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace fp32 {

// out (columns, rows) = in (rows, columns)^T
void transpose(float* out, const float* in, int64_t rows, int64_t columns, cudaStream_t stream);

}  // namespace fp32
