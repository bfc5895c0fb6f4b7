// Sums over the rows of a matrix in two stages of fixed order: float partial sums of slabs of rows, then a double sum of the
// partials. Long float sums are what a weight gradient loses its digits in; slabs keep each one short.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace fp32 {

// out (columns) = sum over `partials` rows of partial (partials, stride), columns [0, columns); added to when `accumulate`.
void reduce_partials(float* out, const float* partial, int64_t partials, int64_t columns, int64_t stride, bool accumulate,
                     cudaStream_t stream);

// dbias (columns) = column sums of dout (rows, columns); added to when `accumulate`.
void bias_gradient(float* dbias, const float* dout, int64_t rows, int64_t columns, bool accumulate, float* scratch, cudaStream_t stream);
int64_t bias_gradient_scratch_floats(int64_t rows, int64_t columns);

// Number of slabs that `rows` rows of `columns` columns are cut into: enough blocks for a large GPU, at least 32 rows each.
int64_t slab_count(int64_t rows, int64_t columns);

}  // namespace fp32
