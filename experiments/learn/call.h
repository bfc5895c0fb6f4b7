// The functions of rungs.h on the tensors of the fp32 trainer's op cases, in the order in which op_cases.cpp lists them.
#pragma once
#include <span>

#include "experiments/learn/ladder.h"
#include "experiments/learn/rungs.h"

namespace learn {

using Pointers = std::span<void* const>;

inline float* f32(void* p) { return static_cast<float*>(p); }

inline void call(LayernormForward* f, const Sizes& z, Pointers p, cudaStream_t s) {
  f(f32(p[0]), f32(p[4]), f32(p[5]), f32(p[1]), f32(p[2]), f32(p[3]), z.rows, z.C, s);
}
inline void call(LayernormBackward* f, const Sizes& z, Pointers p, cudaStream_t s) {
  f(f32(p[0]), f32(p[1]), f32(p[2]), f32(p[3]), f32(p[4]), f32(p[5]), f32(p[6]), f32(p[7]), z.rows, z.C, s);
}
inline void call(LinearForward* f, const Sizes& z, Pointers p, cudaStream_t s) {
  f(f32(p[0]), f32(p[1]), f32(p[2]), z.bias ? f32(p[3]) : nullptr, z.rows, z.in, z.out, s);
}
inline void call(AttentionForward* f, const Sizes& z, Pointers p, cudaStream_t s) {
  f(f32(p[0]), f32(p[1]), f32(p[2]), z.B, z.T, z.C, z.NH, s);
}
// The loss's gradient as the case scales it: of two micro-batches of these rows.
inline void call(Classifier* f, const Sizes& z, Pointers p, cudaStream_t s) {
  const auto scale = static_cast<float>(1.0 / static_cast<double>(2 * z.rows));
  f(f32(p[0]), f32(p[1]), static_cast<const int*>(p[2]), z.rows, z.V, z.Vp, scale, s);
}

// A rung's launch from one of these functions.
template <class Function>
decltype(Rung::launch) launching(Function* f) {
  return [f](const Sizes& z, Pointers p, cudaStream_t s) { call(f, z, p, s); };
}

}  // namespace learn
