// A matrix transposed, and its column sums on the way: the gradient of a linear layer's output as the weight gradient's product reads it
// best, and its share of the bias gradient.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace fp32 {

// out (columns, rows) = in (rows, columns)^T. partial (transpose_partials(rows), columns): sums of 64 rows each, the last of those that are
// left; nullptr: none. Second stage: gpt2::ops::reduce_partials.
void transpose(float* out, float* partial, const float* in, int64_t rows, int64_t columns, cudaStream_t stream);
int64_t transpose_partials(int64_t rows);

}  // namespace fp32
