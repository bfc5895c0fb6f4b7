// The scalars of a step on the device, and the place for its results, as a trainer's model keeps them, for launching single ops.
#pragma once
#include <cuda_runtime.h>

#include <cstring>
#include <optional>

#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops/classifier.cuh"
#include "gpt2/ops/grad_norm.cuh"
#include "gpt2/ops/step_scalars.h"

namespace gate {

class OpScalars {
 public:
  explicit OpScalars(cudaStream_t stream) : stream_(stream), scalars_(1), stats_(1) {}

  // Copied only when they change, so that a repeated launch is timed alone. Pageable memory: the call returns
  // when the host's bytes were taken.
  const gpt2::ops::StepScalars* set(const gpt2::ops::StepScalars& s) {
    if (!set_before_ || std::memcmp(&s, &*set_before_, sizeof s) != 0) {
      set_before_ = s;
      STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(scalars_.data(), &s, sizeof s, cudaMemcpyHostToDevice, stream_));
    }
    return scalars_.data();
  }
  // So that a value that the kernel leaves out shows.
  gpt2::ops::StepStats* poisoned_stats() {
    STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(stats_.data(), 0xff, sizeof(gpt2::ops::StepStats), stream_));
    return stats_.data();
  }
  void copy(void* to, const void* from, size_t bytes) {
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  // The scalars that a trainer makes of the settings and the step.
  const gpt2::ops::StepScalars* of_step(const gpt2::AdamW& settings, int64_t step) {
    const gpt2::Batch one;
    return set(gpt2::ops::scalars_of({.step = step, .micro_batches = {&one, 1}, .adamw = settings}, 1));
  }

 private:
  cudaStream_t stream_;
  gpt2::cuda::DeviceBuffer<gpt2::ops::StepScalars> scalars_;
  std::optional<gpt2::ops::StepScalars> set_before_;
  gpt2::cuda::DeviceBuffer<gpt2::ops::StepStats> stats_;
};

template <class S>
void launch_classifier(OpScalars& x, gpt2::ops::Classifier variant, S* logits, float* losses, const int* targets, int64_t rows, int64_t V,
                       int64_t Vp, float gradient_scale, bool write_gradient, cudaStream_t stream) {
  gpt2::ops::StepScalars s;
  s.gradient_scale = gradient_scale;
  gpt2::ops::classifier(variant, logits, losses, targets, rows, V, Vp, x.set(s), write_gradient, stream);
}

inline void launch_mean_loss(OpScalars& x, double* loss, const float* losses, int64_t rows, double scale, bool accumulate,
                             cudaStream_t stream) {
  gpt2::ops::StepScalars s;
  s.loss_scale = scale;
  const gpt2::ops::StepScalars* set = x.set(s);
  gpt2::ops::StepStats* stats = x.poisoned_stats();
  if (accumulate) x.copy(&stats->loss, loss, sizeof *loss);
  gpt2::ops::mean_loss(stats, losses, rows, set, accumulate, stream);
  x.copy(loss, &stats->loss, sizeof *loss);
}

// Norm and clip scale as `launch(stats, scalars)` leaves them in the results of a step.
template <class Launch>
void launch_norm(OpScalars& x, double* norm, float* clip_scale, float clip, const Launch& launch) {
  gpt2::ops::StepScalars s;
  s.clip = clip;
  const gpt2::ops::StepScalars* set = x.set(s);
  gpt2::ops::StepStats* stats = x.poisoned_stats();
  launch(stats, set);
  x.copy(norm, &stats->grad_norm, sizeof *norm);
  x.copy(clip_scale, &stats->clip_scale, sizeof *clip_scale);
}

// S decides the order of the sums.
template <class S>
void launch_grad_norm(OpScalars& x, double* norm, float* clip_scale, const float* gradients, int64_t n, float clip, void* scratch,
                      cudaStream_t stream) {
  launch_norm(x, norm, clip_scale, clip, [&](gpt2::ops::StepStats* stats, const gpt2::ops::StepScalars* scalars) {
    gpt2::ops::grad_norm<S>(stats, gradients, n, scalars, scratch, stream);
  });
}

}  // namespace gate
