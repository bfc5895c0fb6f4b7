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
#include "gpt2/ops/split_value.cuh"

namespace gpt2::ops {

using bf16 = __nv_bfloat16;

// The lower byte of a value that is kept split (split_value.cuh): its upper half, the value rounded to bf16, lies in a tensor of its own,
// which others read too.
struct LowByte {
  int8_t rest;
};
template <class R>
inline constexpr bool kIsSplit = std::is_same_v<R, LowByte>;
// Whether storage R keeps more of a value than S, so that a copy rounded to S is worth having beside it.
template <class R, class S>
inline constexpr bool kKeepsMore = kIsSplit<R> || sizeof(R) != sizeof(S);

// instance(S, R) for each form of the mixed trainer's residual stream: S is the storage of activations, R that of the stream.
#define STEPSCOPE_FOR_EACH_MIXED_STREAM(instance) instance(bf16, bf16) instance(bf16, float) instance(bf16, LowByte)

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

// Eight values of split storage as they lie there; `upper` lies at a multiple of 16 bytes, `lower` at one of 8.
__device__ __forceinline__ SplitPack load_split(const LowByte* lower, const bf16* upper) {
  const uint4 u = *reinterpret_cast<const uint4*>(upper);
  const uint2 l = *reinterpret_cast<const uint2*>(lower);
  return {{u.x, u.y, u.z, u.w}, {l.x, l.y}};
}
__device__ __forceinline__ void store_split(LowByte* lower, bf16* upper, const SplitPack& packed) {
  *reinterpret_cast<uint4*>(upper) = make_uint4(packed.upper[0], packed.upper[1], packed.upper[2], packed.upper[3]);
  *reinterpret_cast<uint2*>(lower) = make_uint2(packed.lower[0], packed.lower[1]);
}
// One of split_bits or split_bits_randomly; no alignment.
__device__ __forceinline__ void store_split(LowByte* lower, bf16* upper, uint32_t split) {
  const SplitValue v = parts_of_split(split);
  *upper = __ushort_as_bfloat16(v.upper);
  lower->rest = v.lower;
}
__device__ __forceinline__ Pack<8> floats(const SplitPack& packed) {
  Pack<8> out;
  unpack_split(packed, out.v);
  return out;
}

// Values of storage R. `up`: with LowByte the upper halves; not read otherwise.
template <int N, class R, class S>
__device__ __forceinline__ Pack<N> load_value(const R* values, const S* up, int64_t at) {
  if constexpr (!kIsSplit<R>) {
    return load<N>(values + at);
  } else if constexpr (N == 8) {
    return floats(load_split(values + at, up + at));
  } else {
    Pack<N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out.v[k] = join_value({__bfloat16_as_ushort(up[at + k]), values[at + k].rest});
    return out;
  }
}

// Stores x, and x rounded to S in `copy`: with LowByte that is its upper half, with a wider R it may be null. Returns what load_value will
// find.
template <int N, class R, class S>
__device__ __forceinline__ Pack<N> store_value(R* values, S* copy, int64_t at, const Pack<N>& x) {
  Pack<N> out;
  if constexpr (kIsSplit<R>) {
    uint32_t split[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      split[k] = split_bits(x.v[k]);
      out.v[k] = value_of_split(split[k]);
    }
    if constexpr (N == 8) {
      store_split(values + at, copy + at, pack_split(split));
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) store_split(values + at + k, copy + at + k, split[k]);
    }
  } else {
    store(values + at, x);
    if (kKeepsMore<R, S> && copy != nullptr) store(copy + at, x);
#pragma unroll
    for (int k = 0; k < N; ++k) out.v[k] = rounded<R>(x.v[k]);
  }
  return out;
}

// The value that store_value leaves in `copy`.
template <class R, class S>
__device__ __forceinline__ float copied(float x) {
  if constexpr (kIsSplit<R>)
    return upper_of_split(split_bits(x));
  else
    return rounded<S>(x);
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
