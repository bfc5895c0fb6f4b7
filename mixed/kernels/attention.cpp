// Which family computes a variant.
#include "mixed/kernels/attention.cuh"

#include <stdexcept>

#include "gpt2/ops/attention_unfused.cuh"
#include "gpt2/ops/column_sums.cuh"
#include "mixed/attention_cudnn.h"
#include "mixed/hopper/attention.h"

namespace mixed {
namespace {

using gpt2::ops::HeadProduct;

CudnnAttentionShape cudnn_shape(const AttentionShape& s) { return {s.B, s.T, s.C, s.NH}; }

CudnnPlan cudnn_plan(AttentionPlan plan) {
  switch (plan) {
    case AttentionPlan::heuristic:
      return CudnnPlan::heuristic;
    case AttentionPlan::measured:
      return CudnnPlan::measured;
  }
  return {};
}

gpt2::ops::RunHeadProduct<bf16> products(MatmulEngine& engine, cudaStream_t stream) {
  return [&engine, stream](const HeadProduct<bf16>& p) {
    Gemm g;
    g.transpose_a = p.transpose_a, g.transpose_b = p.transpose_b;
    g.m = p.m, g.n = p.n, g.k = p.k;
    g.a = p.a, g.lda = p.lda, g.stride_a = p.stride_a;
    g.b = p.b, g.ldb = p.ldb, g.stride_b = p.stride_b;
    g.c = p.c, g.ldc = p.ldc, g.stride_c = p.stride_c;
    g.c_storage = p.c_is_fp32 ? Storage::fp32 : Storage::as_bf16;
    g.batch = p.batch;
    engine.run(g, stream);
  };
}

}  // namespace

void attention_forward(AttentionForward variant, AttentionPlan plan, MatmulEngine& engine, bf16* out, float* lse, const bf16* qkv,
                       const AttentionShape& shape, void* scratch, cudaStream_t stream) {
  switch (variant) {
    case AttentionForward::cudnn:
      cudnn_attention_forward(out, lse, qkv, cudnn_shape(shape), cudnn_plan(plan), scratch, stream);
      break;
    case AttentionForward::hopper:
      hopper::attention_forward(out, lse, qkv, shape, stream);
      break;
    case AttentionForward::flash:
      flash_attention_forward(out, lse, qkv, shape, stream);
      break;
    case AttentionForward::unfused:
      gpt2::ops::unfused_attention_forward(products(engine, stream), out, lse, qkv, shape, gpt2::ops::kCausalBlocks, scratch, stream);
      break;
  }
}

int64_t attention_forward_scratch_bytes(AttentionForward variant, AttentionPlan plan, const AttentionShape& shape) {
  switch (variant) {
    case AttentionForward::cudnn:
      return cudnn_forward_workspace_bytes(cudnn_shape(shape), cudnn_plan(plan));
    case AttentionForward::hopper:
    case AttentionForward::flash:
      return 0;
    case AttentionForward::unfused:
      return gpt2::ops::unfused_forward_scratch_bytes<bf16>(shape);
  }
  return 0;
}

void attention_backward(AttentionBackward variant, AttentionPlan plan, MatmulEngine& engine, bf16* dqkv, const bf16* dout, const bf16* qkv,
                        const bf16* out, const float* lse, const AttentionShape& shape, void* scratch, cudaStream_t stream,
                        const hopper::ColumnSums& sums) {
  if (sums != nullptr && variant != AttentionBackward::hopper) throw std::logic_error("only attention_backward=hopper sums columns");
  switch (variant) {
    case AttentionBackward::cudnn:
    case AttentionBackward::cudnn_deterministic:
      cudnn_attention_backward(dqkv, dout, qkv, out, lse, cudnn_shape(shape), variant == AttentionBackward::cudnn_deterministic,
                               cudnn_plan(plan), scratch, stream);
      break;
    case AttentionBackward::hopper:
      hopper::attention_backward(dqkv, dout, qkv, out, lse, shape, scratch, stream, sums);
      break;
    case AttentionBackward::flash:
      flash_attention_backward(dqkv, dout, qkv, out, lse, shape, scratch, stream);
      break;
    case AttentionBackward::unfused:
      gpt2::ops::unfused_attention_backward(products(engine, stream), dqkv, dout, qkv, out, lse, shape, gpt2::ops::kCausalBlocks, scratch,
                                            stream);
      break;
  }
}

int64_t attention_backward_scratch_bytes(AttentionBackward variant, AttentionPlan plan, const AttentionShape& shape) {
  switch (variant) {
    case AttentionBackward::cudnn:
    case AttentionBackward::cudnn_deterministic:
      return cudnn_backward_workspace_bytes(cudnn_shape(shape), variant == AttentionBackward::cudnn_deterministic, cudnn_plan(plan));
    case AttentionBackward::hopper:
      return hopper::attention_backward_scratch_bytes(shape);
    case AttentionBackward::flash:
      return flash_backward_scratch_bytes(shape);
    case AttentionBackward::unfused:
      return gpt2::ops::unfused_backward_scratch_bytes<bf16>(shape);
  }
  return 0;
}

bool sums_columns(BiasGradient bias) {
  switch (bias) {
    case BiasGradient::softmax_identities:
    case BiasGradient::attention_fold:
      return true;
    case BiasGradient::layernorm_fold:
    case BiasGradient::column_sums:
    case BiasGradient::matmul_epilogue:
      break;
  }
  return false;
}

int64_t attention_sums_bytes(BiasGradient bias, const AttentionShape& shape) {
  return sums_columns(bias) ? hopper::attention_sum_rows(shape) * 3 * shape.C * static_cast<int64_t>(sizeof(float)) : 0;
}

hopper::ColumnSums attention_sums(BiasGradient bias, AttentionBackward variant, AttentionPlan plan, const AttentionShape& shape,
                                  void* scratch) {
  if (!sums_columns(bias)) return nullptr;
  unsigned char* behind = static_cast<unsigned char*>(scratch) + attention_backward_scratch_bytes(variant, plan, shape);
  return {reinterpret_cast<float*>(behind), bias == BiasGradient::softmax_identities};
}

void attention_bias_gradient(float* dbias, const hopper::ColumnSums& sums, const LinearBehind& behind, const AttentionShape& shape,
                             bool accumulate, cudaStream_t stream) {
  if (!sums.of_q_alone) return add_attention_sums(dbias, sums.rows, shape, accumulate, stream);
  softmax_bias_gradient(dbias, sums.rows, hopper::attention_sum_rows(shape), 3 * shape.C, behind, shape.C, accumulate, stream);
}

void add_attention_sums(float* dbias, const float* sums, const AttentionShape& shape, bool accumulate, cudaStream_t stream) {
  gpt2::ops::reduce_partials(dbias, sums, hopper::attention_sum_rows(shape), 3 * shape.C, 3 * shape.C, accumulate, stream);
}

}  // namespace mixed
