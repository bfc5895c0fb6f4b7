// What both kernels of `flash` share (attention_flash.cu, attention_tf32.cu): which tile of which head a block works on.
#pragma once
#include <cmath>
#include <cstdint>

#include "gpt2/ops/attention.h"
#include "gpt2/ops/storage.cuh"

namespace fp32 {

inline constexpr int kTile = 64;  // rows of a tile: queries or keys

#ifdef __CUDACC__

// Which tile and head this block works on. The longest tiles come first, so that the short ones fill the tail.
struct Place {
  int64_t b, h, first;  // first row of the tile
  int rows;             // rows of the tile inside T
  __device__ Place(int64_t T, int64_t NH, bool last_tiles_first) {
    const int64_t tiles = (T + kTile - 1) / kTile;
    const int64_t heads = gridDim.x / tiles;
    const int64_t order = blockIdx.x / heads;
    const int64_t head = blockIdx.x % heads;
    b = head / NH;
    h = head % NH;
    first = (last_tiles_first ? tiles - 1 - order : order) * kTile;
    rows = static_cast<int>(min(static_cast<int64_t>(kTile), T - first));
  }
};

__device__ __forceinline__ int rows_from(int64_t first, int64_t T) { return static_cast<int>(min(static_cast<int64_t>(kTile), T - first)); }

#endif

inline unsigned tile_blocks(const gpt2::ops::AttentionShape& s) {
  return gpt2::ops::grid_blocks(gpt2::ops::ceil_div<int64_t>(s.T, kTile) * s.B * s.NH);
}
inline float score_scale(const gpt2::ops::AttentionShape& s) { return 1.0f / std::sqrt(static_cast<float>(s.HS())); }

template <class Kernel>
void allow_shared_memory(Kernel* kernel, int bytes) {
  STEPSCOPE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

}  // namespace fp32
