// Each op variant of the mixed-precision trainer on its own, for op-by-op checks and timings. CUDA-free signatures: all pointers are
// DEVICE pointers (row-major, contiguous, shapes in the comments; B T C V Vp NH as in gpt2/config.h, rows = B * T). R is the storage of
// the residual stream or of its gradient: Bf16 or float, both instantiated.
//
// Contract of every op: as in fp32/op_api.h. A fused form that the library does not have for a shape throws stepscope::InputError with
// nothing queued, where the trainer runs the parts one by one. Two forms cannot be told from outside and are replaced as in the
// trainer: linear_forward's bias_epilogue and linear_backward's matmul_epilogue (both say so in mixed/matmul.h).
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace mixed::op {

using DeviceStream = void*;  // a cudaStream_t

// A bfloat16 in memory: the upper half of a float.
struct Bf16 {
  uint16_t bits;
};

// cuBLASLt handle and workspace (algorithms by the library's first choice), step scalars and stats on the device.
class Context {
 public:
  explicit Context(DeviceStream stream);
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
template <class R>
void embedding_forward(Context&, R* out, const int* tokens, const Bf16* wte, const Bf16* wpe, const Shape&);
// dwte (Vp,C): adds. dwpe (max_seq_len,C): all rows written (zero from T on), or added to when `accumulate`.
template <class R>
void embedding_backward(Context&, float* dwte, float* dwpe, const R* dout, const int* tokens, bool accumulate, const Shape&,
                        void* scratch);
int64_t embedding_backward_scratch_bytes(const Shape&);

// Slot "layernorm_forward". out (rows,C), mean, rstd (rows) of inp (rows,C). mean and rstd may be null together. kept (rows,C): null, or
// receives inp rounded.
template <class R>
void layernorm_forward(Context&, std::string_view variant, Bf16* out, float* mean, float* rstd, const R* inp, Bf16* kept,
                       const Bf16* weight, const Bf16* bias, int64_t rows, int64_t C);
// sum = a + branch, rounded to R; out, mean, rstd: layernorm of that rounded sum; kept: null, or the sum rounded.
template <class R>
void residual_layernorm_forward(Context&, R* sum, Bf16* kept, Bf16* out, float* mean, float* rstd, const R* a, const Bf16* branch,
                                const Bf16* weight, const Bf16* bias, int64_t rows, int64_t C);
// Slot "layernorm_backward". dinp (rows,C) is written, or added to when `add_to_dinp`; dinp_copy: null, or dinp rounded; dweight, dbias
// and dinp_column_sums (C; the last may be null: column sums of dinp as stored) are written, or added to when `accumulate`.
template <class R>
void layernorm_backward(Context&, std::string_view variant, R* dinp, Bf16* dinp_copy, float* dweight, float* dbias,
                        float* dinp_column_sums, const Bf16* dout, const Bf16* inp, const float* mean, const float* rstd,
                        const Bf16* weight, int64_t rows, int64_t C, bool add_to_dinp, bool accumulate, void* scratch);
int64_t layernorm_backward_scratch_bytes(std::string_view variant, int64_t rows, int64_t C);

// Slot "linear_forward". out (rows,OUT) = inp (rows,IN) * weight (OUT,IN)^T + bias (OUT; null = none).
void linear_forward(Context&, std::string_view variant, Bf16* out, const Bf16* inp, const Bf16* weight, const Bf16* bias,
                    int64_t rows, int64_t in, int64_t out_channels);
// Slot "gelu_forward". before (rows,OUT) = inp * weight^T + bias; after = its gelu: of the sum before it is rounded ("matmul_epilogue"),
// or of the rounded one ("kernel").
void linear_gelu_forward(Context&, std::string_view variant, Bf16* after, Bf16* before, const Bf16* inp, const Bf16* weight,
                         const Bf16* bias, int64_t rows, int64_t in, int64_t out_channels);
// Slot "residual": "matmul_epilogue". out (rows,OUT) = addend (rows,OUT) + inp * weight^T + bias.
template <class R>
void linear_residual_forward(Context&, R* out, const R* addend, const Bf16* inp, const Bf16* weight, const Bf16* bias, int64_t rows,
                             int64_t in, int64_t out_channels);
// Slot "gelu_backward". dbefore (rows,IN) = (dout (rows,OUT) * weight (OUT,IN)) * gelu'(before (rows,IN)); "kernel" rounds the product.
void linear_gelu_backward_input(Context&, std::string_view variant, Bf16* dbefore, const Bf16* dout, const Bf16* weight,
                                const Bf16* before, int64_t rows, int64_t in, int64_t out_channels);
// Slot "bias_gradient": "column_sums" or "matmul_epilogue". dinp (rows,IN; null = not wanted) is written; dweight (OUT,IN) and dbias
// (OUT; null = none) are written, or added to when `accumulate`.
void linear_backward(Context&, std::string_view variant, Bf16* dinp, float* dweight, float* dbias, const Bf16* dout, const Bf16* inp,
                     const Bf16* weight, int64_t rows, int64_t in, int64_t out_channels, bool accumulate, void* scratch);
int64_t linear_backward_scratch_bytes(int64_t rows, int64_t out_channels);

// Slots "attention_forward", "attention_backward": tensors as in fp32/op_api.h. The cuDNN variants throw stepscope::MachineError for
// shapes that cuDNN has no plan for.
void attention_forward(Context&, std::string_view variant, Bf16* out, float* lse, const Bf16* qkv, const Shape&, void* scratch);
int64_t attention_forward_scratch_bytes(std::string_view variant, const Shape&);
void attention_backward(Context&, std::string_view variant, Bf16* dqkv, const Bf16* dout, const Bf16* qkv, const Bf16* out,
                        const float* lse, const Shape&, void* scratch);
int64_t attention_backward_scratch_bytes(std::string_view variant, const Shape&);

// GELU in its tanh form. dinp may be dout.
void gelu_forward(Context&, Bf16* out, const Bf16* inp, int64_t n);
void gelu_backward(Context&, Bf16* dinp, const Bf16* dout, const Bf16* inp, int64_t n);

template <class R>
void residual_forward(Context&, R* out, const R* a, const Bf16* b, int64_t n);

// Slot "classifier". As in fp32/op_api.h; losses are fp32.
void classifier(Context&, std::string_view variant, Bf16* logits, float* losses, const int* targets, int64_t rows, int64_t V,
                int64_t Vp, float gradient_scale, bool write_gradient);
// *loss = sum of losses * scale, or added to when `accumulate`.
void mean_loss(Context&, double* loss, const float* losses, int64_t rows, double scale, bool accumulate);
// *norm = |gradients|; *clip_scale = min(1, clip / norm), 1 when clip <= 0.
void grad_norm(Context&, double* norm, float* clip_scale, const float* gradients, int64_t n, float clip, void* scratch);
int64_t grad_norm_scratch_bytes(int64_t n);

// Slot "adamw". Flat vectors of layout.total elements; parameters = the new master rounded. `seed` of stochastic rounding is that of
// the step; the update draws with seed + 1.
void adamw(Context&, std::string_view variant, bool stochastic, Bf16* parameters, float* master, float* m, float* v,
           const float* gradients, const gpt2::TensorLayout& layout, const gpt2::AdamW& settings, int64_t step, uint32_t seed,
           const float* clip_scale);
// parameters = master rounded.
void round_parameters(Context&, bool stochastic, Bf16* parameters, const float* master, int64_t n, uint32_t seed);

}  // namespace mixed::op
