#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace copy_engine {

// Values that a check can compute: small whole numbers, another for every seed, rank and index, so that sums are exact.
void fill(float* out, int64_t from, int64_t elements, int seed, int rank, cudaStream_t stream);
// Adds to *wrong how many of out[from, from + elements) are not the sum over `ranks` (a mask of ranks) of what fill() gives.
void count_wrong(unsigned* wrong, const float* out, int64_t from, int64_t elements, int seed, unsigned ranks, cudaStream_t stream);
void fill_random(__nv_bfloat16* out, int64_t elements, unsigned seed, cudaStream_t stream);
// own += received; both 16-byte aligned, a multiple of 4 elements.
void add(float* own, const float* received, int64_t elements, cudaStream_t stream);
// One thread: *theirs = 1, waits until *mine is 1, sets it to 0.
void meet_by_kernel(unsigned* theirs, unsigned* mine, cudaStream_t stream);
// Rounds to bf16, and stores it in `here` and, unless null, in `there`: as an update would that stores weights on both GPUs.
void round_to_both(__nv_bfloat16* here, __nv_bfloat16* there, const float* masters, int64_t elements, cudaStream_t stream);

}  // namespace copy_engine
