// Gradients in two arenas for op cases, whose gradients come in one fp32 vector.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/cuda/check.h"
#include "gpt2/ops/adamw_split.cuh"
#include "gpt2/ops/grad_norm.cuh"
#include "mixed/memory_plan.h"

namespace gate {

constexpr int64_t padded(int64_t n) { return (n + 127) / 128 * 128; }  // what comes behind n values of 2 bytes begins at 256 bytes

// Gradients as a step with weight_gradients=bf16 and this wte_gradient has them, made of `flat` in `scratch`, which has bytes() for them.
class Arenas {
 public:
  Arenas(const gpt2::TensorLayout& layout, mixed::WteGradient wte)
      : arenas_(*mixed::gradient_arenas(mixed::WeightGradients::as_bf16, wte, layout)) {}
  int64_t bytes() const { return 2 * wide_halves() + 2 * padded(arenas_.narrow_elements); }
  gpt2::ops::GradientArenas made_of(const float* flat, const gpt2::TensorLayout& layout, void* scratch, cudaStream_t stream) const {
    auto* wide = static_cast<float*>(scratch);
    gpt2::ops::bf16* narrow = static_cast<gpt2::ops::bf16*>(scratch) + wide_halves();
    for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
      const gpt2::TensorSpan& span = layout[row.id];
      if (arenas_.is_narrow(row.id))
        gpt2::ops::round_parameters(gpt2::ops::Rounding::nearest, narrow + arenas_[row.id], flat + span.offset, span.size, nullptr, stream);
      else
        STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(wide + arenas_[row.id], flat + span.offset, static_cast<size_t>(span.size) * sizeof(float),
                                             cudaMemcpyDeviceToDevice, stream));
    }
    return {wide, narrow, arenas_};
  }
  // What a layer has of every tensor, and with `layer` = `layers` what is outside the layers.
  gpt2::ops::GradientSpans spans(const gpt2::TensorLayout& layout, int64_t layer, int64_t layers) const {
    gpt2::ops::GradientSpans spans;
    for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
      if (row.per_layer != (layer < layers)) continue;
      const int64_t each = layout[row.id].per_layer;
      if (arenas_.is_narrow(row.id)) spans.narrow |= 1u << spans.count;
      spans.first[spans.count] = arenas_[row.id] + (row.per_layer ? layer * each : 0);
      spans.size[spans.count++] = each;
    }
    return spans;
  }

 private:
  int64_t wide_halves() const { return padded(2 * arenas_.wide_elements); }
  gpt2::ops::GradientLayout arenas_;
};
inline int64_t layers_of(const gpt2::TensorLayout& layout) {
  return layout[gpt2::Tensor::qkvw].size / layout[gpt2::Tensor::qkvw].per_layer;
}

}  // namespace gate
