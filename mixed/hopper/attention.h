// Causal attention (gpt2/ops/attention.h) for Hopper: heads of 64 channels, bf16 in and out, sums and softmax in fp32. Any number of batches,
// heads and tokens. Results repeat bit for bit: every sum has one owner and one order.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

#include "gpt2/ops/attention.h"
#include "mixed/hopper/column_sums.h"

namespace hopper {

// Warpgroups of a CTA that compute, each with 64 rows: 2 or 3. The kernel for dk and dv has 2. Forward 0: 3 where every multiprocessor has many
// items, else 2, because fewer and longer items fill a small grid badly: on an H200, 12 heads of T = 1024, 296 us against 313 at B = 64 and
// 25.2 against 24.6 at B = 4. For dq it is 2 at both (350 us against 351; 27.5 against 29.3).
struct AttentionCut {
  int forward = 0, queries = 2;
};

// Why a device of this capability cannot compute heads of this size; empty when it can.
std::optional<std::string> why_no_attention(int compute_capability_major, int64_t head_size, int compute_capability_minor = 0);

// qkv (B,T,3C) -> out (B,T,C), lse (B,NH,T). Throws stepscope::MachineError where the current device is no Hopper,
// stepscope::InputError for other heads than of 64 channels and for tensors that do not begin at multiples of 16 bytes. So do the others.
void attention_forward(__nv_bfloat16* out, float* lse, const __nv_bfloat16* qkv, const gpt2::ops::AttentionShape& shape,
                       cudaStream_t stream, const AttentionCut& cut = {});

// dqkv (B,T,3C) is written. scratch: attention_backward_scratch_bytes. sums: null, or attention_sum_rows rows of 3C floats, which receive the
// sums of dqkv's columns over 64 positions of a batch each, as they are stored; the sum of the rows (ops::reduce_partials) is the bias gradient
// of the layer that made qkv. Where those of q alone are wanted, the kernel for dk and dv leaves its own out.
void attention_backward(__nv_bfloat16* dqkv, const __nv_bfloat16* dout, const __nv_bfloat16* qkv, const __nv_bfloat16* out,
                        const float* lse, const gpt2::ops::AttentionShape& shape, void* scratch, cudaStream_t stream,
                        const ColumnSums& sums = {}, const AttentionCut& cut = {});
int64_t attention_backward_scratch_bytes(const gpt2::ops::AttentionShape& shape);  // a multiple of 512
int64_t attention_sum_rows(const gpt2::ops::AttentionShape& shape);

// The backward's two kernels alone, for who times them: dq and the rows' statistics; then dk and dv, which read those.
void attention_backward_queries(__nv_bfloat16* dqkv, const __nv_bfloat16* dout, const __nv_bfloat16* qkv, const __nv_bfloat16* out,
                                const float* lse, const gpt2::ops::AttentionShape& shape, void* scratch, cudaStream_t stream,
                                float* sums = nullptr, const AttentionCut& cut = {});
void attention_backward_keys(__nv_bfloat16* dqkv, const __nv_bfloat16* dout, const __nv_bfloat16* qkv,
                             const gpt2::ops::AttentionShape& shape, const void* scratch, cudaStream_t stream, float* sums = nullptr);

}  // namespace hopper
