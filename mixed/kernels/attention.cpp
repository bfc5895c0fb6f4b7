// Which family computes a variant.
#include "mixed/kernels/attention.cuh"

#include "mixed/attention_cudnn.h"

namespace mixed {
namespace {

CudnnAttentionShape cudnn_shape(const AttentionShape& s) { return {s.B, s.T, s.C, s.NH}; }

}  // namespace

void attention_forward(AttentionForward variant, MatmulEngine& engine, bf16* out, float* lse, const bf16* qkv, const AttentionShape& shape,
                       void* scratch, cudaStream_t stream) {
  switch (variant) {
    case AttentionForward::cudnn:
      cudnn_attention_forward(out, lse, qkv, cudnn_shape(shape), scratch, stream);
      break;
    case AttentionForward::flash:
      flash_attention_forward(out, lse, qkv, shape, stream);
      break;
    case AttentionForward::unfused:
      unfused_attention_forward(engine, out, lse, qkv, shape, scratch, stream);
      break;
  }
}

int64_t attention_forward_scratch_bytes(AttentionForward variant, const AttentionShape& shape) {
  switch (variant) {
    case AttentionForward::cudnn:
      return cudnn_forward_workspace_bytes(cudnn_shape(shape));
    case AttentionForward::flash:
      return 0;
    case AttentionForward::unfused:
      return unfused_forward_scratch_bytes(shape);
  }
  return 0;
}

void attention_backward(AttentionBackward variant, MatmulEngine& engine, bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out,
                        const float* lse, const AttentionShape& shape, void* scratch, cudaStream_t stream) {
  switch (variant) {
    case AttentionBackward::cudnn:
    case AttentionBackward::cudnn_deterministic:
      cudnn_attention_backward(dqkv, dout, qkv, out, lse, cudnn_shape(shape), variant == AttentionBackward::cudnn_deterministic, scratch,
                               stream);
      break;
    case AttentionBackward::flash:
      flash_attention_backward(dqkv, dout, qkv, out, lse, shape, scratch, stream);
      break;
    case AttentionBackward::unfused:
      unfused_attention_backward(engine, dqkv, dout, qkv, out, lse, shape, scratch, stream);
      break;
  }
}

int64_t attention_backward_scratch_bytes(AttentionBackward variant, const AttentionShape& shape) {
  switch (variant) {
    case AttentionBackward::cudnn:
    case AttentionBackward::cudnn_deterministic:
      return cudnn_backward_workspace_bytes(cudnn_shape(shape), variant == AttentionBackward::cudnn_deterministic);
    case AttentionBackward::flash:
      return flash_backward_scratch_bytes(shape);
    case AttentionBackward::unfused:
      return unfused_backward_scratch_bytes(shape);
  }
  return 0;
}

}  // namespace mixed
