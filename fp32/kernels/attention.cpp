// Chooses the family of an attention variant.
#include "fp32/kernels/attention.cuh"

namespace fp32 {
namespace {

constexpr int64_t kCausalBlocks = 4;

}  // namespace

void attention_forward(AttentionForward variant, MatmulEngine& engine, float* out, float* lse, const float* qkv,
                       const AttentionShape& shape, float* scratch, cudaStream_t stream) {
  switch (variant) {
    case AttentionForward::unfused_causal_blocks:
      unfused_attention_forward(engine, out, lse, qkv, shape, kCausalBlocks, scratch, stream);
      break;
    case AttentionForward::unfused:
      unfused_attention_forward(engine, out, lse, qkv, shape, 1, scratch, stream);
      break;
    case AttentionForward::flash:
      fused_attention_forward(out, lse, qkv, shape, stream);
      break;
  }
}

int64_t attention_forward_scratch_floats(AttentionForward variant, const AttentionShape& shape) {
  switch (variant) {
    case AttentionForward::unfused_causal_blocks:
    case AttentionForward::unfused:
      return unfused_forward_scratch_floats(shape);
    case AttentionForward::flash:
      return 0;
  }
  return 0;
}

void attention_backward(AttentionBackward variant, MatmulEngine& engine, float* dqkv, const float* dout, const float* qkv, const float* out,
                        const float* lse, const AttentionShape& shape, float* scratch, cudaStream_t stream) {
  switch (variant) {
    case AttentionBackward::unfused_causal_blocks:
      unfused_attention_backward(engine, dqkv, dout, qkv, out, lse, shape, kCausalBlocks, scratch, stream);
      break;
    case AttentionBackward::unfused:
      unfused_attention_backward(engine, dqkv, dout, qkv, out, lse, shape, 1, scratch, stream);
      break;
    case AttentionBackward::flash:
      fused_attention_backward(dqkv, dout, qkv, out, lse, shape, scratch, stream);
      break;
  }
}

int64_t attention_backward_scratch_floats(AttentionBackward variant, const AttentionShape& shape) {
  switch (variant) {
    case AttentionBackward::unfused_causal_blocks:
    case AttentionBackward::unfused:
      return unfused_backward_scratch_floats(shape);
    case AttentionBackward::flash:
      return fused_backward_scratch_floats(shape);
  }
  return 0;
}

}  // namespace fp32
