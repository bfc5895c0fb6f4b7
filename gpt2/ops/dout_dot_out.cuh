// The part of an attention backward that every way without scores in memory begins with.
#pragma once
#include <cuda_runtime.h>

#include "gpt2/ops/attention.h"
#include "gpt2/ops/storage.cuh"

namespace gpt2::ops {

// D (B,NH,T) = sum(dout * out) over each head; dout and out (B,T,C) in storage S: float or bf16, both instantiated.
template <class S>
void dout_dot_out(float* D, const S* dout, const S* out, const AttentionShape& shape, cudaStream_t stream);

}  // namespace gpt2::ops
