// The gradient norm and the loss of a step of several ranks, and the storage in which gradients travel. Everything works on whole blocks
// of the arena (gpt2/distributed/bucket_plan.h), so that every sum is the same bits on each rank and at any number of ranks.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/distributed/bucket_plan.h"
#include "gpt2/ops/gradient_arenas.h"
#include "gpt2/ops/step_scalars.h"
#include "gpt2/ops/storage.cuh"

namespace gpt2::ops {

// sums[i] = sum of squares, in double, of the valid gradients of blocks[i]; *loss_out = stats->loss. `count` blocks.
void block_squares(double* sums, double* loss_out, const BlockGradients& gradients, const distributed::ArenaBlock* blocks, int64_t count,
                   const StepStats* stats, cudaStream_t stream);

// What block_squares of all ranks left: stats->grad_norm, stats->clip_scale as grad_norm() defines them, and stats->loss = the sum over
// ranks. `order` names in `sums` the `count` blocks that hold parameters, in the order of the arena; the loss of rank r lies at
// losses[r * loss_stride].
struct RankSums {
  const double* sums = nullptr;
  const int32_t* order = nullptr;
  int64_t count = 0;
  const double* losses = nullptr;
  int64_t loss_stride = 1;
  int ranks = 1;
};
void finish_rank_norm(StepStats* stats, const RankSums& sums, const StepScalars* scalars, cudaStream_t stream);

// `count` values rounded to nearest; and back. Both begin at multiples of 16 bytes.
void narrow_gradients(bf16* out, const float* in, int64_t count, cudaStream_t stream);
void widen_gradients(float* out, const bf16* in, int64_t count, cudaStream_t stream);

}  // namespace gpt2::ops
