// Values as they lie in memory, for kernels that ask for much at once and compute later.
#pragma once
#include "gpt2/ops/storage.cuh"

#ifdef __CUDACC__

namespace gpt2::ops {

// Eight consecutive values as they lie in memory: half the registers of floats while they wait.
template <class S>
struct Raw {
  uint4 word[sizeof(S) / 2];
};
template <class S>
__device__ __forceinline__ Raw<S> load_raw(const S* p) {
  Raw<S> raw;
#pragma unroll
  for (size_t i = 0; i < sizeof(S) / 2; ++i) raw.word[i] = reinterpret_cast<const uint4*>(p)[i];
  return raw;
}
template <class S>
__device__ __forceinline__ Pack<8> floats(const Raw<S>& raw) {
  return load<8>(reinterpret_cast<const S*>(&raw));
}

// The same of values in storage R; `up` as in load_value.
template <class R, class S>
__device__ __forceinline__ auto load_raw(const R* values, const S* up, int64_t at) {
  if constexpr (kIsSplit<R>)
    return load_split(values + at, up + at);
  else
    return load_raw(values + at);
}
template <class R, class S>
using RawValue = decltype(load_raw<R, S>(nullptr, nullptr, 0));

}  // namespace gpt2::ops

#endif  // __CUDACC__
