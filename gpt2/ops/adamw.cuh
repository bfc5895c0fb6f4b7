// AdamW as defined in gpt2/trainer.h, on fp32 parameters; weights that are stored narrower are rounded from them in the same pass. All
// settings and the clip factor are read from the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/ops/gradient_arenas.h"
#include "gpt2/ops/step_scalars.h"
#include "gpt2/ops/storage.cuh"
#include "gpt2/ops/variants.h"
#include "gpt2/tensor_table.h"

namespace gpt2::ops {

enum class Rounding { nearest, stochastic };

// Both moments of all elements in fp32.
struct WholeMoments {
  float *m, *v;
};
// The same in three bytes each (split_value.cuh), upper halves and lower bytes apart. They are rounded to their 16 significant bits at random,
// away from zero with the probability of what is cut off, and parameters move by what was rounded, which the next step finds. To nearest
// would lose steps: with beta2 = 0.999 one moves v by 0.001 (g^2 - v), and less than half of the 1.5e-5 to 3.1e-5 of v between neighbours
// would be none. v would stop 0.8 to 1.5% away from a g^2 that stays; with beta2 = 0.9999 8 to 15%, and from 0.99999 on it would stand or
// fall at twice the pace. At random its mean is right for every beta2, and the draws of the 500 steps that it remembers leave 1.4e-4 to
// 2.8e-4 of v, half as much of an update (tests/mixed/moments_test.cpp plays both). The bytes drawn are a function of
// scalars->rounding_seed and of the element (random_bits.cuh).
struct SplitMoments {
  bf16 *m_up, *v_up;
  LowByte *m_low, *v_low;
};
// The same in two bytes each (short_moment.cuh), rounded to 8 and 9 significant bits at random, as SplitMoments are to 16. The draws of the
// steps that it remembers leave 2 to 3% of v where beta2 = 0.999, half as much of an update, and half a percent of m where beta1 = 0.9.
struct ShortMoments {
  bf16* m;
  uint16_t* v;
};

// Flat vectors of layout.total elements, fp32 but for `weights`; rows of the tensor table that are `decayed` get weight decay.
// weights: where S is bf16, the master weights rounded to it. Where S is float they are their own masters: null, and `rounding` is
// not looked at.
// stochastic: a master weight between two bf16 numbers goes up with the probability of its distance from the lower one. The random bits
// are a function of a seed and the element's index: scalars->rounding_seed names the weights that this step reads, so the update draws
// with rounding_seed + 1 what the next step reads.
template <class S>
void adamw(AdamWKernel variant, Rounding rounding, S* weights, float* masters, float* m, float* v, const float* gradients,
           const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale, cudaStream_t stream);

// As adamw with the kernel all_tensors, with moments in either form and on gradients in one fp32 vector (const float*) or in two arenas
// (GradientArenas): a gradient in bf16 is the fp32 number that it stands for.
template <class Moments, class Gradients>
void adamw(Rounding rounding, bf16* weights, float* masters, const Moments& moments, const Gradients& gradients, const TensorLayout& layout,
           const StepScalars* scalars, const float* clip_scale, cudaStream_t stream);

// out = a split moment's elements [first, first + count) in fp32, and the other way, rounded to nearest: what was read comes back exactly.
void join_values(float* out, const bf16* up, const LowByte* low, int64_t first, int64_t count, cudaStream_t stream);
void split_values(bf16* up, LowByte* low, const float* in, int64_t first, int64_t count, cudaStream_t stream);
// The same with a short moment, m or v.
template <class Short>
void widen_moment(float* out, const Short* moment, int64_t first, int64_t count, cudaStream_t stream);
template <class Short>
void shorten_moment(Short* moment, const float* in, int64_t first, int64_t count, cudaStream_t stream);

// weights = masters rounded, after the masters were written from outside. stochastic: with scalars->rounding_seed, so that a run that
// goes on from saved master weights computes with the same bf16 weights as one that was never stopped. scalars may be null for nearest.
void round_parameters(Rounding rounding, bf16* weights, const float* masters, int64_t n, const StepScalars* scalars, cudaStream_t stream);

}  // namespace gpt2::ops
