// Each op variant of the FP32 trainer on its own, for op-by-op checks and timings. CUDA-free signatures: `float*` and `int*` are
// DEVICE pointers (row-major, contiguous, shapes in the comments; B T C V Vp NH as in gpt2/config.h, rows = B * T).
//
// Contract of every op: outputs are written element by element (never read before, except where "adds" is said), inputs are not
// written, scratch needs no particular content and at least the bytes of its query. Launches are queued on the context's stream;
// nothing waits. Nothing opens a range. Wrong arguments throw stepscope::InputError, failed launches gpt2::cuda::CallError.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace fp32::op {

using DeviceStream = void*;  // a cudaStream_t

// cuBLASLt handle, workspace and matmul rate ("fp32" | "tf32"); everything that the ops keep between calls.
class Context {
 public:
  Context(std::string_view matmul, DeviceStream stream);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

struct Shape {
  int64_t B = 1, T = 1, C = 1, NH = 1, V = 1, Vp = 1, max_seq_len = 1;
  int64_t rows() const { return B * T; }
};

// out (B,T,C) = wte[token] + wpe[t].
void embedding_forward(Context&, float* out, const int* tokens, const float* wte, const float* wpe, const Shape&);
// dwte (Vp,C): adds. dwpe (max_seq_len,C): all rows written (zero from T on), or added to when `accumulate`. Tokens in [0, V).
void embedding_backward(Context&, float* dwte, float* dwpe, const float* dout, const int* tokens, bool accumulate,
                        const Shape&, void* scratch);
int64_t embedding_backward_scratch_bytes(const Shape&);

// Slot "layernorm_forward". out (rows,C), mean (rows), rstd (rows) of inp (rows,C); eps 1e-5.
void layernorm_forward(Context&, std::string_view variant, float* out, float* mean, float* rstd, const float* inp,
                       const float* weight, const float* bias, int64_t rows, int64_t C);
// Slot "layernorm_backward". dinp (rows,C) is written, or added to when `add_to_dinp`; dweight and dbias (C) are written, or added
// to when `accumulate`.
void layernorm_backward(Context&, std::string_view variant, float* dinp, float* dweight, float* dbias, const float* dout,
                        const float* inp, const float* mean, const float* rstd, const float* weight, int64_t rows,
                        int64_t C, bool add_to_dinp, bool accumulate, void* scratch);
int64_t layernorm_backward_scratch_bytes(std::string_view variant, int64_t rows, int64_t C);

// Slot "linear_forward". out (rows,OUT) = inp (rows,IN) * weight (OUT,IN)^T + bias (OUT; nullptr = none).
void linear_forward(Context&, std::string_view variant, float* out, const float* inp, const float* weight,
                    const float* bias, int64_t rows, int64_t in, int64_t out_channels);
// dinp (rows,IN; nullptr = not wanted) is written; dweight (OUT,IN) and dbias (OUT; nullptr = none) are written, or added to when
// `accumulate`.
void linear_backward(Context&, float* dinp, float* dweight, float* dbias, const float* dout, const float* inp,
                     const float* weight, int64_t rows, int64_t in, int64_t out_channels, bool accumulate,
                     void* scratch);
int64_t linear_backward_scratch_bytes(int64_t rows, int64_t in, int64_t out_channels);

// Slot "attention_forward". Causal. qkv (B,T,3C): q, k, v each as NH heads; out (B,T,C); lse (B,NH,T) = natural logarithm of the sum
// of exp(scaled scores) of each query. Forward and backward variants may be mixed: they share only out and lse.
void attention_forward(Context&, std::string_view variant, float* out, float* lse, const float* qkv, const Shape&,
                       void* scratch);
int64_t attention_forward_scratch_bytes(std::string_view variant, const Shape&);
// Slot "attention_backward". dqkv (B,T,3C).
void attention_backward(Context&, std::string_view variant, float* dqkv, const float* dout, const float* qkv,
                        const float* out, const float* lse, const Shape&, void* scratch);
int64_t attention_backward_scratch_bytes(std::string_view variant, const Shape&);

// GELU in its tanh form. dinp may be dout.
void gelu_forward(Context&, float* out, const float* inp, int64_t n);
void gelu_backward(Context&, float* dinp, const float* dout, const float* inp, int64_t n);

void residual_forward(Context&, float* out, const float* a, const float* b, int64_t n);

// Slot "classifier". logits (rows,Vp) -> losses (rows), cross entropy over the V real columns. When `write_gradient` logits are
// replaced by (softmax - onehot) * gradient_scale, padded columns by zero; otherwise they are left as they are.
void classifier(Context&, std::string_view variant, float* logits, float* losses, const int* targets, int64_t rows,
                int64_t V, int64_t Vp, float gradient_scale, bool write_gradient);
// *loss (double) = sum of losses * scale, or added to when `accumulate`.
void mean_loss(Context&, double* loss, const float* losses, int64_t rows, double scale, bool accumulate);

// *norm (double) = |gradients|; *clip_scale = min(1, clip / norm), 1 when clip <= 0.
void grad_norm(Context&, double* norm, float* clip_scale, const float* gradients, int64_t n, float clip, void* scratch);
int64_t grad_norm_scratch_bytes(int64_t n);

// Slot "adamw". Flat vectors of layout.total elements in the order of the tensor table; *clip_scale multiplies the gradients.
void adamw(Context&, std::string_view variant, float* parameters, const float* gradients, float* m, float* v,
           const gpt2::TensorLayout& layout, const gpt2::AdamW& settings, int64_t step, const float* clip_scale);

}  // namespace fp32::op
