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

// ---- sums of a result's columns over a tile's 64 rows: a part of the bias gradient of what made qkv ------------------------------------
//
// The values are summed as they are stored, rounded, so that the sums are those of the tensor that others read, as a kernel of its own would
// make them; only the order of the additions differs. Rows beyond T add zeros, because their probabilities are zero.

// Lanes that differ in bit `kLanes` share 2 kKept columns: the lower one keeps the first half, the upper one the second.
template <int kLanes, int kKept>
__device__ __forceinline__ void share_columns(float (&sum)[16]) {
  const bool upper = (threadIdx.x & kLanes) != 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const float other = __shfl_xor_sync(~0u, upper ? sum[i] : sum[i + kKept], kLanes);
    sum[i] = (upper ? sum[i + kKept] : sum[i]) + other;
  }
}
// Over a warp's 16 rows, of x times `factor`; lane l gets columns 2 l and 2 l + 1. 14 values cross lanes; sums in every lane would take 48.
__device__ __forceinline__ float2 sum_rows(const float (&x)[32], float factor) {
  float sum[16];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const uint32_t pair = pack_bf16(x[4 * j] * factor, x[4 * j + 1] * factor),
                   below = pack_bf16(x[4 * j + 2] * factor, x[4 * j + 3] * factor);
    sum[2 * j] = __uint_as_float(pair << 16) + __uint_as_float(below << 16);
    sum[2 * j + 1] = __uint_as_float(pair & 0xffff0000u) + __uint_as_float(below & 0xffff0000u);
  }
  share_columns<16, 8>(sum);
  share_columns<8, 4>(sum);
  share_columns<4, 2>(sum);
  return {sum[0], sum[1]};
}

// A warp's sums, to shared memory: kStride bytes lie between those of one warp and the next.
template <int kStride>
__device__ __forceinline__ void keep_column_sums(uint32_t at, const float (&x)[32], float factor) {
  const float2 sum = sum_rows(x, factor);
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at + threadIdx.x % 128 / 32 * kStride + threadIdx.x % 32 * 8), "f"(sum.x),
               "f"(sum.y)
               : "memory");
}
// The sums of all four warps, added in their order by one warp.
template <int kStride>
__device__ __forceinline__ void write_column_sums(float* to, uint32_t at) {
  float2 total = {0, 0};
#pragma unroll
  for (int warp = 0; warp < 4; ++warp) {
    float2 sum;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(sum.x), "=f"(sum.y)
                 : "r"(at + warp * kStride + threadIdx.x % 32 * 8)
                 : "memory");
    total.x += sum.x, total.y += sum.y;
  }
  reinterpret_cast<float2*>(to)[threadIdx.x % 32] = total;
}

// Where the sums of a tile go: row (batch, tile) of `sums`, whose columns are those of dqkv. `part`: 0 dq, 1 dk, 2 dv.
__device__ __forceinline__ float* sums_of_tile(float* sums, const AttentionWork& work, const Item& item, int tile, int part) {
  return sums + (static_cast<int64_t>(item.batch) * work.tiles + tile) * 3 * work.C + part * work.C + item.head * kHeadChannels;
}

#endif  // __CUDACC__

}  // namespace hopper
