// AdamW as defined in gpt2/trainer.h, on fp32 parameters; weights that are stored narrower are rounded from them in the same pass. All
// settings and the clip factor are read from the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/distributed/bucket_plan.h"
#include "gpt2/ops/gradient_arenas.h"
#include "gpt2/ops/step_scalars.h"
#include "gpt2/ops/storage.cuh"
#include "gpt2/ops/variants.h"
#include "gpt2/tensor_table.h"

namespace gpt2::ops {

enum class Rounding { nearest, stochastic };

// Flat vectors of layout.total elements, fp32 but for `weights`; rows of the tensor table that are `decayed` get weight decay.
// weights: where S is bf16, the master weights rounded to it. Where S is float they are their own masters: null, and `rounding` is
// not looked at.
// stochastic: a master weight between two bf16 numbers goes up with the probability of its distance from the lower one. The random bits
// are a function of a seed and the element's index: scalars->rounding_seed names the weights that this step reads, so the update draws
// with rounding_seed + 1 what the next step reads.
template <class S>
void adamw(AdamWKernel variant, Rounding rounding, S* weights, float* masters, float* m, float* v, const float* gradients,
           const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale, cudaStream_t stream);

// As adamw with the kernel all_tensors, on gradients in two arenas: a gradient in bf16 is the fp32 number that it stands for.
void adamw(Rounding rounding, bf16* weights, float* masters, float* m, float* v, const GradientArenas& gradients,
           const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale, cudaStream_t stream);

// weights = masters rounded, after the masters were written from outside. stochastic: with scalars->rounding_seed, so that a run that
// goes on from saved master weights computes with the same bf16 weights as one that was never stopped. scalars may be null for nearest.
void round_parameters(Rounding rounding, bf16* weights, const float* masters, int64_t n, const StepScalars* scalars, cudaStream_t stream);

// The same update of `count` blocks of an arena, element for element. Gradients and `weights` are whole arenas. `m` and `v` hold these
// blocks one after the other; so do `masters` where S is bf16, and where it is float `masters` is the arena of the weights. The index that
// random bits are drawn from is that of the file order.
template <class S>
void adamw_blocks(Rounding rounding, S* weights, float* masters, float* m, float* v, const float* gradients,
                  const distributed::ArenaBlock* blocks, int64_t count, const StepScalars* scalars, const float* clip_scale,
                  cudaStream_t stream);

// round_parameters of blocks: `masters` as above.
void round_blocks(Rounding rounding, bf16* weights, const float* masters, const distributed::ArenaBlock* blocks, int64_t count,
                  const StepScalars* scalars, cudaStream_t stream);

}  // namespace gpt2::ops
