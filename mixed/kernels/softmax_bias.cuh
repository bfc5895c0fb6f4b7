// The bias gradient of the layer that makes q, k and v, of which a softmax leaves only q's to be summed (Vaswani et al. 2017, eq. 1, for
// out = softmax(q k^T / sqrt(HS)) v, masked or not):
//   k: 0. Its bias adds the same number to every score of a query, which changes no probability.
//   v: what the column sums of out's gradient are. The probabilities of a query add up to 1, so v's bias adds itself to out. Out's gradient is
//      that of the output of the linear layer behind it times that layer's weight, so its column sums are that layer's bias gradient times
//      its weight: one row times a matrix.
// So neither has what sums of dqkv's columns have from the rounding of out's gradient, of probabilities, dk and dv.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "mixed/kernels/common.cuh"

namespace mixed {

// The linear layer that reads attention's output alone: its bias gradient (C) as summed up so far, in this step by this rank, and its weight
// (C,C) as the products of the step read it, a row for each output.
struct LinearBehind {
  const float* dbias = nullptr;
  const bf16* weight = nullptr;
};

// dbias (3C). q: column sums of query_sums (sum_rows, stride), columns [0, C), added to when `accumulate`. k and v are written whatever was
// there: behind.dbias holds all micro-batches so far, so adding to v would count the earlier ones again.
void softmax_bias_gradient(float* dbias, const float* query_sums, int64_t sum_rows, int64_t stride, const LinearBehind& behind, int64_t C,
                           bool accumulate, cudaStream_t stream);

// Whether its kernel, and so each that begins with gpt2::cuda::wait_for_kernels_before (they are compiled for the same devices), was compiled
// for one that can wait: on sm_90 a program that holds code for sm_80 alone runs, and nothing waits.
bool softmax_bias_waits();

}  // namespace mixed
