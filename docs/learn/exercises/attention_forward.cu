// Chapter 4: a warp per query. Let a warp do two neighbouring queries, so that each key and value serves both.
#include <cfloat>
#include <cstdint>

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

}  // namespace

// qkv: (B, T, 3C), queries, keys and values of NH heads; out: (B, T, C); lse: (B, NH, T), the logarithm of each row's sum of exp(score).
extern "C" void attention_forward(float* out, float* lse, const float* qkv, int64_t B, int64_t T, int64_t C, int64_t NH,
                                  cudaStream_t stream) {
  warp_per_query<<<static_cast<unsigned>((B * NH * T + 7) / 8), 256, 0, stream>>>(out, lse, qkv, B, T, C, NH);
}
