// Norm of the whole gradient and the clip factor that follows from it, both left on the device.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/ops/gradient_arenas.h"
#include "gpt2/ops/step_scalars.h"
#include "gpt2/ops/storage.cuh"
#include "gpt2/tensor_table.h"

namespace gpt2::ops {

// stats->grad_norm = sqrt(sum of squares of n fp32 gradients), stats->clip_scale = clip > 0 ? min(1, clip / norm) : 1 with the clip of
// `scalars`, or kLeftOut where the norm or stats->loss is above its limit there. Sums in double, in a fixed order, which S decides: a thread takes kPack<S> gradients at a time. S is the storage type of the
// trainer's weights, float or bf16, both instantiated.
template <class S>
void grad_norm(StepStats* stats, const float* gradients, int64_t n, const StepScalars* scalars, void* scratch, cudaStream_t stream);
template <class S>
int64_t grad_norm_scratch_bytes(int64_t n);
// The same of gradients in two arenas, in one launch; scratch holds grad_norm_scratch_bytes<bf16> of all elements.
void grad_norm(StepStats* stats, const GradientArenas& gradients, const StepScalars* scalars, void* scratch, cudaStream_t stream);

// Pieces of the gradient, for a norm whose parts are summed as they become final.
struct GradientSpans {
  int count = 0;
  int64_t first[kTensorCount] = {};
  int64_t size[kTensorCount] = {};
  unsigned narrow = 0;  // bit of a span: it lies in the bf16 arena
};
// How many partial sums one piece has, whatever its size.
inline constexpr int64_t kPartialsOfSpans = 264;  // two for each of an H200's 132 multiprocessors
// partial[0, kPartialsOfSpans) = sums of squares of the spans, in double and in a fixed order. `narrow`: the bf16 arena, null where no span
// lies in it.
void squares_of_spans(double* partial, const float* gradients, const GradientSpans& spans, cudaStream_t stream,
                      const bf16* narrow = nullptr);
// stats as grad_norm leaves them, from partial sums of all pieces.
void finish_grad_norm(StepStats* stats, const double* partial, int64_t partials, const StepScalars* scalars, cudaStream_t stream);

}  // namespace gpt2::ops
