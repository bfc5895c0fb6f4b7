// What the storage type of a tensor decides, for kernels written once as templates over it: how many values a 16-byte pack holds, how
// they are moved, and how exact an exponential must be. Sums and launch arithmetic come from gpt2/cuda/launch.cuh.
//
// Every kernel of this folder loads into float, computes in float (long sums in double or in two stages) and rounds once, to nearest
// even, when it stores. A new storage type (fp16, fp8) is a pair of load and store here.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "gpt2/cuda/launch.cuh"

namespace gpt2::ops {

using bf16 = __nv_bfloat16;

// The lower half of a value that is kept in two: the upper one is the value rounded to bf16, which others read too and which lies in a
// tensor of its own, and this one is what that left, in bf16. Both together are off by 2^-17 of the value at most: 17 significant bits.
struct LowHalf {
  bf16 rest;
};
template <class R>
inline constexpr bool kInHalves = std::is_same_v<R, LowHalf>;
// Whether storage R keeps more of a value than S, so that a copy rounded to S is worth having beside it.
template <class R, class S>
inline constexpr bool kKeepsMore = kInHalves<R> || sizeof(R) != sizeof(S);

using cuda::aligned_16;
using cuda::ceil_div;
using cuda::grid_blocks;
using cuda::kWarp;
using cuda::row_threads;

// Values of storage type S in 16 bytes: 4 floats, 8 bf16.
template <class S>
inline constexpr int kPack = static_cast<int>(16 / sizeof(S));

// Whether rows of `columns` values at these addresses can be moved in packs of kPack<S>. S is the narrowest type among them.
template <class S, class... Pointers>
bool can_pack(int64_t columns, const Pointers*... pointers) {
  return columns % kPack<S> == 0 && aligned_16(pointers...);
}

#ifdef __CUDACC__

using cuda::block_max;
using cuda::block_sum;
using cuda::warp_max;
using cuda::warp_sum;

// N consecutive values as floats, whatever they are stored in. N == 1 needs no alignment; a larger N moves 16 bytes per instruction and
// needs 16-byte aligned addresses. Storage wider than the one that N was chosen for takes several instructions.
template <int N>
struct Pack {
  float v[N];
};

template <int N>
__device__ __forceinline__ Pack<N> load(const float* p) {
  Pack<N> out;
  if constexpr (N == 4) {  // not as a loop of one turn: the compiler counts it, and unrolls the caller's loop less
    const float4 f = *reinterpret_cast<const float4*>(p);
    out.v[0] = f.x, out.v[1] = f.y, out.v[2] = f.z, out.v[3] = f.w;
  } else if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const float4 f = reinterpret_cast<const float4*>(p)[i];
      out.v[4 * i] = f.x, out.v[4 * i + 1] = f.y, out.v[4 * i + 2] = f.z, out.v[4 * i + 3] = f.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = p[i];
  }
  return out;
}

template <int N>
__device__ __forceinline__ void store(float* p, const Pack<N>& x) {
  if constexpr (N == 4) {
    *reinterpret_cast<float4*>(p) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
  } else if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i)
      reinterpret_cast<float4*>(p)[i] = make_float4(x.v[4 * i], x.v[4 * i + 1], x.v[4 * i + 2], x.v[4 * i + 3]);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) p[i] = x.v[i];
  }
}

template <int N>
__device__ __forceinline__ Pack<N> load(const bf16* p) {
  Pack<N> out;
  if constexpr (N == 8) {
    const uint4 raw = *reinterpret_cast<const uint4*>(p);
    const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out.v[2 * i] = __uint_as_float(word[i] << 16);  // a bf16 is the upper half of a float
      out.v[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = __bfloat162float(p[i]);
  }
  return out;
}

// Two floats to a word of two bf16, the first in the lower half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <int N>
__device__ __forceinline__ void store(bf16* p, const Pack<N>& x) {
  if constexpr (N == 8) {
    *reinterpret_cast<uint4*>(p) =
        make_uint4(pack_bf16(x.v[0], x.v[1]), pack_bf16(x.v[2], x.v[3]), pack_bf16(x.v[4], x.v[5]), pack_bf16(x.v[6], x.v[7]));
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) p[i] = __float2bfloat16_rn(x.v[i]);
  }
}

template <int N>
__device__ __forceinline__ Pack<N> load(const LowHalf* p) {
  return load<N>(reinterpret_cast<const bf16*>(p));
}
template <int N>
__device__ __forceinline__ void store(LowHalf* p, const Pack<N>& x) {
  store(reinterpret_cast<bf16*>(p), x);
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }

// x rounded to nearest even, as store does it.
template <class S>
__device__ __forceinline__ S from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}

// The value that storage of type S will hold.
template <class S>
__device__ __forceinline__ float rounded(float x) {
  return to_float(from_float<S>(x));
}

template <int N>
__device__ __forceinline__ Pack<N> rounded_to_bf16(const Pack<N>& x) {
  Pack<N> out;
  if constexpr (N % 2 == 0) {
#pragma unroll
    for (int k = 0; k < N; k += 2) {  // in the pairs of store(), so that both need one conversion
      const uint32_t word = pack_bf16(x.v[k], x.v[k + 1]);
      out.v[k] = __uint_as_float(word << 16);
      out.v[k + 1] = __uint_as_float(word & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) out.v[k] = rounded<bf16>(x.v[k]);
  }
  return out;
}

// Values of storage R. `up`: with LowHalf the upper halves; not read otherwise.
template <int N, class R, class S>
__device__ __forceinline__ Pack<N> load_value(const R* values, const S* up, int64_t at) {
  Pack<N> out = load<N>(values + at);
  if constexpr (kInHalves<R>) {
    const Pack<N> upper = load<N>(up + at);
#pragma unroll
    for (int k = 0; k < N; ++k) out.v[k] += upper.v[k];  // exact
  }
  return out;
}

// Stores x, and x rounded to S in `copy`: with LowHalf that is its upper half, with a wider R it may be null. Returns what load_value will
// find. A value is split once, from what was summed: the sum of its halves, rounded, is another upper half where it lies at a tie.
template <int N, class R, class S>
__device__ __forceinline__ Pack<N> store_value(R* values, S* copy, int64_t at, const Pack<N>& x) {
  Pack<N> out;
  if constexpr (kInHalves<R>) {
    const Pack<N> upper = rounded_to_bf16(x);
    Pack<N> rest;
#pragma unroll
    for (int k = 0; k < N; ++k) rest.v[k] = x.v[k] - upper.v[k];
    store(copy + at, x);
    store(values + at, rest);
    const Pack<N> lower = rounded_to_bf16(rest);
#pragma unroll
    for (int k = 0; k < N; ++k) out.v[k] = upper.v[k] + lower.v[k];
  } else {
    store(values + at, x);
    if (kKeepsMore<R, S> && copy != nullptr) store(copy + at, x);
#pragma unroll
    for (int k = 0; k < N; ++k) out.v[k] = rounded<R>(x.v[k]);
  }
  return out;
}

// exp(x) and a/b for results that are stored as S. The fast ones are good to 2^-21, which is far below what bf16 keeps (2^-9); fp32
// results need the exact ones.
template <class S>
__device__ __forceinline__ float exp_for(float x) {
  if constexpr (sizeof(S) < sizeof(float))
    return __expf(x);
  else
    return expf(x);
}
template <class S>
__device__ __forceinline__ float divide_for(float a, float b) {
  if constexpr (sizeof(S) < sizeof(float))
    return __fdividef(a, b);
  else
    return a / b;
}

#endif  // __CUDACC__

}  // namespace gpt2::ops
