// What the measuring program needs on the device beside the products: values to multiply, and sums to hold against.
#pragma once
#include "mixed/hopper/multiply.h"

namespace hopper {

// Small random values of standard deviation `scale`, so that the tensor cores draw what they draw in training.
void fill_normal(__nv_bfloat16* to, int64_t n, float scale, uint32_t seed);
void fill_normal(float* to, int64_t n, float scale, uint32_t seed);

// sums[i][column] = sum over k of a b in row rows[i] of the product, added in double. All pointers on the device.
void sampled_sums(const Problem& p, const int* rows, int row_count, float* sums);

}  // namespace hopper
