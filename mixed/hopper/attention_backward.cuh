// What the two kernels of the attention backward share: seven products of tiles instead of five, since both make p and ds again; in return
// no sum has two owners, nothing is added in memory, and no pass stands before or behind them.
#pragma once
#include "mixed/hopper/attention.cuh"

namespace hopper {

inline constexpr float kLog2E = 1.4426950408889634f;

// Statistics of 64 queries: for each two of them the log-sum-exp times log2(e) of both, then the sums of dout * out of both.
inline constexpr int kTileStatistics = 2 * kTileRows, kBytesStatistics = kTileStatistics * 4;

#ifdef __CUDACC__

// Where those of a tile begin. Tiles are whole there, whatever T is.
__device__ __forceinline__ int64_t statistics_of_tile(const AttentionWork& work, int head, int tile) {
  return (static_cast<int64_t>(head) * work.tiles + tile) * kTileStatistics;
}

#endif  // __CUDACC__

}  // namespace hopper
