#include <cfloat>

#include "experiments/learn/rungs.h"

namespace learn {
namespace {

constexpr int kMostChannels = 128;  // of a head

__device__ float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

// Where the queries, keys and values of head h of sequence b begin, and how far apart those of two tokens lie.
struct Head {
  const float *q, *k, *v;
  int64_t stride;
};
__device__ Head head_of(const float* qkv, int64_t b, int64_t h, int64_t T, int64_t C, int64_t HS) {
  const float* first = qkv + b * T * 3 * C + h * HS;
  return {first, first + C, first + 2 * C, 3 * C};
}

// A thread per query. It reads each key twice, first for the largest score, then for sum and result: no softmax can begin before the
// largest score is known.
__global__ void thread_per_query(float* out, float* lse, const float* qkv, int64_t B, int64_t T, int64_t C, int64_t NH) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= B * NH * T) return;
  const int64_t t = i % T, h = i / T % NH, b = i / T / NH, HS = C / NH;
  const Head head = head_of(qkv, b, h, T, C, HS);
  const float scale = rsqrtf(static_cast<float>(HS));
  const float* q = head.q + t * head.stride;
  const auto score = [&](int64_t key) {
    float sum = 0;
    for (int64_t c = 0; c < HS; ++c) sum += q[c] * head.k[key * head.stride + c];
    return sum * scale;
  };
  float most = -FLT_MAX;
  for (int64_t key = 0; key <= t; ++key) most = fmaxf(most, score(key));
  float sum = 0, result[kMostChannels];
  for (int64_t c = 0; c < HS; ++c) result[c] = 0;
  for (int64_t key = 0; key <= t; ++key) {
    const float e = expf(score(key) - most);
    sum += e;
    for (int64_t c = 0; c < HS; ++c) result[c] += e * head.v[key * head.stride + c];
  }
  for (int64_t c = 0; c < HS; ++c) out[(b * T + t) * C + h * HS + c] = result[c] / sum;
  lse[i] = most + logf(sum);
}

// A warp per query and the online softmax (Milakov & Gimelshein 2018): when a larger score comes, what was summed so far is scaled down.
// One pass over the keys; lanes hold channels, so reads are coalesced and a score is one reduction.
__global__ void warp_per_query(float* out, float* lse, const float* qkv, int64_t B, int64_t T, int64_t C, int64_t NH) {
  constexpr int kOwn = kMostChannels / 32;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (i >= B * NH * T) return;
  const int lane = threadIdx.x % 32;
  const int64_t t = i % T, h = i / T % NH, b = i / T / NH, HS = C / NH;
  const Head head = head_of(qkv, b, h, T, C, HS);
  const float scale = rsqrtf(static_cast<float>(HS));
  float q[kOwn] = {}, result[kOwn] = {}, most = -FLT_MAX, sum = 0;
#pragma unroll
  for (int j = 0; j < kOwn; ++j)
    if (lane + 32 * j < HS) q[j] = head.q[t * head.stride + lane + 32 * j];
  for (int64_t key = 0; key <= t; ++key) {
    float score = 0;
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
      if (lane + 32 * j < HS) score += q[j] * head.k[key * head.stride + lane + 32 * j];
    score = warp_sum(score) * scale;
    const float larger = fmaxf(most, score), shrink = expf(most - larger), e = expf(score - larger);
    sum = sum * shrink + e;
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
      if (lane + 32 * j < HS) result[j] = result[j] * shrink + e * head.v[key * head.stride + lane + 32 * j];
    most = larger;
  }
#pragma unroll
  for (int j = 0; j < kOwn; ++j)
    if (lane + 32 * j < HS) out[(b * T + t) * C + h * HS + lane + 32 * j] = result[j] / sum;
  if (lane == 0) lse[i] = most + logf(sum);
}

constexpr int kQueries = 32, kKeys = 32;

// A block of 32 warps owns 32 queries of a head and brings 32 keys and values at a time to shared memory, where all 32 queries use them.
__global__ void __launch_bounds__(32 * kQueries) key_tiles(float* out, float* lse, const float* qkv, int64_t T, int64_t C, int64_t NH) {
  extern __shared__ float tile[];  // keys (kKeys, HS + 1), then values (kKeys, HS), then queries (kQueries, HS)
  constexpr int kOwn = kMostChannels / 32;
  const int64_t HS = C / NH, h = blockIdx.y % NH, b = blockIdx.y / NH;
  float *k = tile, *v = k + kKeys * (HS + 1), *q = v + kKeys * HS;
  const Head head = head_of(qkv, b, h, T, C, HS);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kQueries, t = first + warp;
  const float scale = rsqrtf(static_cast<float>(HS));
  for (int64_t c = lane; c < HS; c += 32) q[warp * HS + c] = t < T ? head.q[t * head.stride + c] : 0.0f;
  float result[kOwn] = {}, most = -FLT_MAX, sum = 0;
  for (int64_t key0 = 0; key0 < first + kQueries && key0 < T; key0 += kKeys) {
    __syncthreads();
    for (int64_t c = lane; c < HS; c += 32) {
      const bool inside = key0 + warp < T;
      k[warp * (HS + 1) + c] = inside ? head.k[(key0 + warp) * head.stride + c] : 0.0f;
      v[warp * HS + c] = inside ? head.v[(key0 + warp) * head.stride + c] : 0.0f;
    }
    __syncthreads();
    // Each lane has a key; the largest score and the sum of a tile are one reduction for 32 keys.
    float score = 0;
    for (int64_t c = 0; c < HS; ++c) score += q[warp * HS + c] * k[lane * (HS + 1) + c];
    score = key0 + lane <= t ? score * scale : -FLT_MAX;
    float larger = fmaxf(most, score);
    for (int offset = 16; offset > 0; offset /= 2) larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, offset));
    const float e = key0 + lane <= t ? expf(score - larger) : 0.0f, shrink = expf(most - larger);
    sum = sum * shrink + warp_sum(e);
#pragma unroll
    for (int j = 0; j < kOwn; ++j) result[j] *= shrink;
    for (int key = 0; key < kKeys; ++key) {
      const float weight = __shfl_sync(0xffffffffu, e, key);
#pragma unroll
      for (int j = 0; j < kOwn; ++j)
        if (lane + 32 * j < HS) result[j] += weight * v[key * HS + lane + 32 * j];
    }
    most = larger;
  }
  if (t >= T) return;
#pragma unroll
  for (int j = 0; j < kOwn; ++j)
    if (lane + 32 * j < HS) out[(b * T + t) * C + h * HS + lane + 32 * j] = result[j] / sum;
  if (lane == 0) lse[(b * NH + h) * T + t] = most + logf(sum);
}

}  // namespace

void attention_thread_per_query(float* out, float* lse, const float* qkv, int64_t B, int64_t T, int64_t C, int64_t NH,
                                cudaStream_t stream) {
  thread_per_query<<<static_cast<unsigned>((B * NH * T + 127) / 128), 128, 0, stream>>>(out, lse, qkv, B, T, C, NH);
}
void attention_warp_per_query(float* out, float* lse, const float* qkv, int64_t B, int64_t T, int64_t C, int64_t NH, cudaStream_t stream) {
  warp_per_query<<<static_cast<unsigned>((B * NH * T + 7) / 8), 256, 0, stream>>>(out, lse, qkv, B, T, C, NH);
}
void attention_key_tiles(float* out, float* lse, const float* qkv, int64_t B, int64_t T, int64_t C, int64_t NH, cudaStream_t stream) {
  const int64_t HS = C / NH;
  const size_t bytes = static_cast<size_t>(kKeys * (HS + 1) + kKeys * HS + kQueries * HS) * sizeof(float);  // 49,280 at HS = 128
  cudaFuncSetAttribute(key_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  const dim3 grid(static_cast<unsigned>((T + kQueries - 1) / kQueries), static_cast<unsigned>(B * NH));
  key_tiles<<<grid, 32 * kQueries, bytes, stream>>>(out, lse, qkv, T, C, NH);
}

}  // namespace learn
