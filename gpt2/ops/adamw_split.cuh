// AdamW on masters that are split: a master is its bf16 weight and the 17 bits that this lacks.
#pragma once
#include "gpt2/ops/adamw.cuh"

namespace gpt2::ops {

// Masters that are their bf16 weight and what it lacks (split_master.cuh). Of n elements; `up` holds one bit each, that of element i in
// byte i / 8, bit i % 8.
struct SplitMasters {
  bf16* weights;
  uint16_t* low;
  uint8_t* up;
};
constexpr int64_t split_up_bytes(int64_t n) { return (n + 7) / 8; }

// As adamw with the kernel all_tensors, on split masters: the same masters, weights and moments, bit for bit.
template <class Moments, class Gradients>
void adamw_split(Rounding rounding, const SplitMasters& masters, const Moments& moments, const Gradients& gradients,
                 const TensorLayout& layout, const StepScalars* scalars, const float* clip_scale, cudaStream_t stream);
// out = the masters of elements [first, first + count) in fp32; first is a multiple of 8.
void join_masters(float* out, const SplitMasters& masters, int64_t first, int64_t count, cudaStream_t stream);
// The other way, with weights rounded to nearest; first is a multiple of 8, and so is count unless the elements end there.
void split_masters(const SplitMasters& masters, const float* in, int64_t first, int64_t count, cudaStream_t stream);
// Rounds the weights of all masters again, as round_parameters does; the masters stay what they are.
void round_split_masters(Rounding rounding, const SplitMasters& masters, int64_t n, const StepScalars* scalars, cudaStream_t stream);

}  // namespace gpt2::ops
