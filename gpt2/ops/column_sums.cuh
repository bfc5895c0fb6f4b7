// Sums over the rows of a matrix in two stages of fixed order: float partial sums of slabs of rows, then a double sum of the
// partials. Long float sums are what a weight gradient loses its digits in; slabs keep each one short.
// S is the storage type of the summed matrix: float or bf16, both instantiated. It decides the width of a pack, hence the number of
// slabs and the order of the additions.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/ops/storage.cuh"

namespace gpt2::ops {

// out (columns) = sum over `partials` rows of partial (partials, stride), columns [0, columns); added to when `accumulate`.
void reduce_partials(float* out, const float* partial, int64_t partials, int64_t columns, int64_t stride, bool accumulate,
                     cudaStream_t stream);

// dbias (columns) = column sums of dout (rows, columns); added to when `accumulate`.
template <class S>
void bias_gradient(float* dbias, const S* dout, int64_t rows, int64_t columns, bool accumulate, float* scratch, cudaStream_t stream);
template <class S>
int64_t bias_gradient_scratch_floats(int64_t rows, int64_t columns);

// Number of slabs that `rows` rows of `columns` columns are cut into: enough blocks for a large GPU, at least 32 rows each.
template <class S>
int64_t slab_count(int64_t rows, int64_t columns);

}  // namespace gpt2::ops
