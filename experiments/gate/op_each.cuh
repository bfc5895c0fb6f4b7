// for_each_index: the one loop of the judge, on the host or as a kernel. The kernel has a name that a profile or
// a sanitizer's filter can tell from those of the trainers.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "experiments/gate/op_memory.h"
#include "gpt2/cuda/launch.cuh"

namespace gate {

template <class Work>
__global__ void judge_each_kernel(int64_t n, const Work work) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) work(i);
}

// work(i) for every i in [0, n), in any order, on the default stream.
template <class Work>
void for_each_index(Space space, int64_t n, const Work& work) {
  if (n <= 0) return;
  if (space == Space::host) {
    for (int64_t i = 0; i < n; ++i) work(i);
    return;
  }
  constexpr int kThreads = 128;
  judge_each_kernel<<<gpt2::cuda::grid_blocks(gpt2::cuda::ceil_div<int64_t>(n, kThreads)), kThreads>>>(n, work);
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace gate
