// Token and position embedding, forward and backward.
//
// The backward sums all rows of one token in a fixed order without atomics: rows are sorted by token on the device (a stable radix
// sort, so equal tokens stay in row order), cut into chunks of sorted positions, and summed per chunk; runs that cross a chunk border
// go through a partial sum each and are joined by a second kernel. Sums are fp32; all rows of a token are summed before they are added to
// its row of dwte, so a dwte in bf16 is rounded once here.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "gpt2/ops/storage.cuh"

namespace gpt2::ops {

// S is the storage type of the weights, which decides the width of a pack; R that of the residual stream or of its gradient. Instances
// <S, R>: <float, float>, <bf16, bf16>, <bf16, float>, <bf16, LowByte>. out_up, dout_up: the upper halves with LowByte, else null.

// out (B,T,C) = wte[tokens] + wpe[t]
template <class S, class R>
void embedding_forward(R* out, const int* tokens, const S* wte, const S* wpe, int64_t B, int64_t T, int64_t C, cudaStream_t stream,
                       std::type_identity_t<S>* out_up = nullptr);
// The backward's order, from the tokens of `rows` rows alone, so long before there is a gradient: in `scratch`, which embedding_backward
// then takes.
void sort_by_token(const int* tokens, int64_t rows, int64_t C, int64_t V, void* scratch, cudaStream_t stream);
// dwte: adds; G is float, or bf16 where S is. dwpe (max_seq_len,C): written, zero from row T on; added to when `accumulate`. scratch: as sort_by_token of the B * T tokens left
// it.
template <class S, class R, class G>
void embedding_backward(G* dwte, float* dwpe, const R* dout, int64_t B, int64_t T, int64_t C, int64_t max_seq_len, bool accumulate,
                        void* scratch, cudaStream_t stream, const S* dout_up = nullptr);
// Host arithmetic only; an upper bound that sort_by_token checks against what the sort asks for.
int64_t embedding_backward_scratch_bytes(int64_t rows, int64_t C);

}  // namespace gpt2::ops
