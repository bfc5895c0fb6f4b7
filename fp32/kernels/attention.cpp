// Which family computes a variant.
#include "fp32/kernels/attention.cuh"

#include <fmt/format.h>

#include "gpt2/ops/attention_unfused.cuh"

namespace fp32 {
namespace {

using gpt2::ops::HeadProduct;

gpt2::ops::RunHeadProduct<float> products(MatmulEngine& engine, cudaStream_t stream) {
  return [&engine, stream](const HeadProduct<float>& p) {
    Gemm g;
    g.transpose_a = p.transpose_a, g.transpose_b = p.transpose_b;
    g.m = p.m, g.n = p.n, g.k = p.k;
    g.a = p.a, g.lda = p.lda, g.stride_a = p.stride_a;
    g.b = p.b, g.ldb = p.ldb, g.stride_b = p.stride_b;
    g.c = static_cast<float*>(p.c), g.ldc = p.ldc, g.stride_c = p.stride_c;
    g.batch = p.batch;
    engine.run(g, stream);
  };
}

}  // namespace

void attention_forward(AttentionForward variant, MatmulEngine& engine, float* out, float* lse, const float* qkv,
                       const AttentionShape& shape, void* scratch, cudaStream_t stream) {
  switch (variant) {
    case AttentionForward::unfused_causal_blocks:
      gpt2::ops::unfused_attention_forward(products(engine, stream), out, lse, qkv, shape, gpt2::ops::kCausalBlocks, scratch, stream);
      break;
    case AttentionForward::unfused:
      gpt2::ops::unfused_attention_forward(products(engine, stream), out, lse, qkv, shape, 1, scratch, stream);
      break;
    case AttentionForward::flash:
      switch (engine.rate()) {
        case MatmulRate::fp32:
          return fp32_flash_forward(out, lse, qkv, shape, stream);
        case MatmulRate::tf32:
          return tf32_flash_forward(out, lse, qkv, shape, stream);
      }
      break;
  }
}

int64_t attention_forward_scratch_bytes(AttentionForward variant, const AttentionShape& shape) {
  switch (variant) {
    case AttentionForward::unfused_causal_blocks:
    case AttentionForward::unfused:
      return gpt2::ops::unfused_forward_scratch_bytes<float>(shape);
    case AttentionForward::flash:
      return 0;
  }
  return 0;
}

void attention_backward(AttentionBackward variant, MatmulEngine& engine, float* dqkv, const float* dout, const float* qkv, const float* out,
                        const float* lse, const AttentionShape& shape, void* scratch, cudaStream_t stream) {
  switch (variant) {
    case AttentionBackward::unfused_causal_blocks:
      gpt2::ops::unfused_attention_backward(products(engine, stream), dqkv, dout, qkv, out, lse, shape, gpt2::ops::kCausalBlocks, scratch,
                                            stream);
      break;
    case AttentionBackward::unfused:
      gpt2::ops::unfused_attention_backward(products(engine, stream), dqkv, dout, qkv, out, lse, shape, 1, scratch, stream);
      break;
    case AttentionBackward::flash:
      switch (engine.rate()) {
        case MatmulRate::fp32:
          return fp32_flash_backward(dqkv, dout, qkv, out, lse, shape, scratch, stream);
        case MatmulRate::tf32:
          return tf32_flash_backward(dqkv, dout, qkv, out, lse, shape, scratch, stream);
      }
      break;
  }
}

int64_t attention_backward_scratch_bytes(AttentionBackward variant, const AttentionShape& shape) {
  switch (variant) {
    case AttentionBackward::unfused_causal_blocks:
    case AttentionBackward::unfused:
      return gpt2::ops::unfused_backward_scratch_bytes<float>(shape);
    case AttentionBackward::flash:
      return flash_backward_scratch_bytes(shape);
  }
  return 0;
}

int64_t flash_backward_scratch_bytes(const AttentionShape& s) { return s.B * s.NH * s.T * static_cast<int64_t>(sizeof(float)); }

std::optional<std::string> why_not_flash(MatmulRate rate, int64_t head_size, int64_t shared_bytes_per_block) {
  const int64_t most = rate == MatmulRate::tf32 ? 64 : 128;
  if (head_size > most)
    return fmt::format("it holds heads of up to {} channels{}, the model has {}; use unfused_causal_blocks", most,
                       rate == MatmulRate::tf32 ? " on TF32 tensor cores" : "", head_size);
  // In TF32 69 KiB at most, which every GPU with TF32 tensor cores has.
  if (const int64_t bytes = fp32_flash_shared_bytes(head_size); rate == MatmulRate::fp32 && bytes > shared_bytes_per_block)
    return fmt::format(
        "its tiles of heads of {} channels take {} KiB of shared memory, a block of this GPU has {}; use unfused_causal_blocks", head_size,
        bytes / 1024, shared_bytes_per_block / 1024);
  return std::nullopt;
}

}  // namespace fp32
