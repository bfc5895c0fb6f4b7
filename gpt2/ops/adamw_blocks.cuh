// AdamW of several ranks: over blocks of the arena (gpt2/distributed/bucket_plan.h), all of it or the slices that a rank owns. The update of
// an element is that of adamw.cuh, bit for bit; random bits are drawn by its place in the file order.
//
// Weights and gradients are whole arenas. Whatever else belongs to a block lies block after block, in the order in which `blocks` names them:
// the first of `blocks` has elements [0, kBlock) of moments and masters, and so on.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/distributed/bucket_plan.h"
#include "gpt2/ops/adamw_split.cuh"

namespace gpt2::ops {

// What is updated.
struct Fp32Weights {  // their own masters
  float* weights;
};
struct Fp32Masters {  // `weights` are rounded from them
  bf16* weights;
  float* masters;
};
// Or SplitMasters, whose `low` and `up` are of the blocks.

// `count` blocks. Moments: WholeMoments, SplitMoments or ShortMoments; only the first with Fp32Weights, which round nothing.
template <class Parameters, class Moments>
void adamw_blocks(Rounding rounding, const Parameters& parameters, const Moments& moments, const BlockGradients& gradients,
                  const distributed::ArenaBlock* blocks, int64_t count, const StepScalars* scalars, const float* clip_scale,
                  cudaStream_t stream);

// The weights of the blocks from their masters, as round_parameters. Parameters: Fp32Masters or SplitMasters.
template <class Parameters>
void round_blocks(Rounding rounding, const Parameters& parameters, const distributed::ArenaBlock* blocks, int64_t count,
                  const StepScalars* scalars, cudaStream_t stream);

// The same vectors from an element of their blocks on, a multiple of kBlock.
inline Fp32Weights behind(const Fp32Weights& p, int64_t) { return p; }
inline Fp32Masters behind(const Fp32Masters& p, int64_t elements) { return {p.weights, p.masters + elements}; }
inline SplitMasters behind(const SplitMasters& p, int64_t elements) { return {p.weights, p.low + elements, p.up + elements / 8}; }
inline WholeMoments behind(const WholeMoments& s, int64_t elements) { return {s.m + elements, s.v + elements}; }
inline ShortMoments behind(const ShortMoments& s, int64_t elements) { return {s.m + elements, s.v + elements}; }
inline SplitMoments behind(const SplitMoments& s, int64_t elements) {
  return {s.m_up + elements, s.v_up + elements, s.m_low + elements, s.v_low + elements};
}

}  // namespace gpt2::ops
