// Where the gradient of each parameter lies when not all are stored alike: most in an fp32 arena, those of some weights, which their
// product rounded once, in a bf16 arena beside it. Each arena holds its tensors one after the other: with one rank in the order of the
// tensor table (GradientLayout), with several in that of their buckets (BlockGradients).
// Host arithmetic; the kernels that read both arenas get them as GradientArenas or BlockGradients.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>

#include "gpt2/ops/storage.cuh"
#include "gpt2/tensor_table.h"

namespace gpt2::ops {

struct GradientLayout {
  std::array<int64_t, kTensorCount> offset{};  // of a tensor's first element in its arena
  unsigned narrow = 0;                         // bit of a tensor's row: it lies in the bf16 arena
  int64_t wide_elements = 0, narrow_elements = 0;

  bool is_narrow(Tensor t) const { return (narrow >> static_cast<unsigned>(t) & 1u) != 0; }
  int64_t operator[](Tensor t) const { return offset[static_cast<size_t>(t)]; }
};

inline GradientLayout gradient_layout(const TensorLayout& layout, std::initializer_list<Tensor> in_bf16) {
  GradientLayout out;
  for (const Tensor t : in_bf16) out.narrow |= 1u << static_cast<unsigned>(t);
  for (const TensorRow& row : kTensorTable) {
    int64_t& arena = out.is_narrow(row.id) ? out.narrow_elements : out.wide_elements;
    out.offset[static_cast<size_t>(row.id)] = arena;
    arena += layout[row.id].size;
  }
  return out;
}

struct GradientArenas {
  const float* wide;
  const bf16* narrow;
  const GradientLayout& layout;
};

// Of several ranks. The gradient of element i of the arena of parameters (gpt2/distributed/bucket_plan.h) is narrow[i] where i is below
// narrow_elements, else wide[i - narrow_elements].
struct BlockGradients {
  float* wide = nullptr;
  bf16* narrow = nullptr;
  int64_t narrow_elements = 0;
};

}  // namespace gpt2::ops
