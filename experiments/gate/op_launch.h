// The ops of a trainer as op cases launch them: one function per op over device addresses, so that one list
// of cases serves both trainers. Who implements it (op_launch_fp32.cpp, op_launch_mixed.cpp) only casts and
// calls the launchers of kernels/ and matmul. Queries of scratch and everything but the launches need no
// device.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/gate/op_memory.h"
#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace gate {

// What a trainer's ops keep between launches: stream, cuBLASLt handle and workspace, scalars on the device.
class OpContext {
 public:
  virtual ~OpContext() = default;
};

struct OpShape {
  int64_t B = 1, T = 1, C = 1, NH = 1, V = 1, Vp = 1, max_seq_len = 1;
  int64_t rows() const { return B * T; }
};
struct LinearShape {
  int64_t rows = 1, in = 1, out = 1;
};
struct HeadShape {
  int64_t rows = 1, C = 1, V = 1, Vp = 1;
};

// What a trainer keeps its tensors in.
struct OpStorage {
  Element activation = Element::f32, weight = Element::f32;
  std::vector<Element> streams{Element::f32};  // of the residual stream and of its gradient: each is a choice
                                               // of a slot, if there is one
  bool one_way_out() const { return activation == Element::f32; }
};

class OpTrainer {
 public:
  using Variant = const std::string&;
  virtual ~OpTrainer() = default;
  virtual std::string name() const = 0;
  virtual std::vector<std::string> rates() const = 0;  // of matrix products; ops without any are judged in the first
  virtual std::vector<gpt2::VariantInfo> variants() const = 0;
  virtual OpStorage storage() const = 0;
  // Whether the trainer promises the same bits in every run.
  virtual bool repeats(std::string_view slot, std::string_view variant) const = 0;
  virtual std::unique_ptr<OpContext> context(const std::string& rate, void* stream) const = 0;
  // The same for products as a trainer has them that chooses among algorithms by their times; null for a trainer that has no search. Beside `other`,
  // which outlives it and whose workspace it uses.
  virtual std::unique_ptr<OpContext> searching_context(OpContext& other) const;
  // Of such a context: a product of n candidates that it meets for the first time is computed by candidate number % n. What the library
  // offers comes first.
  virtual void take_candidate(OpContext& searching, size_t number) const;
  struct Candidates {
    int all = 0, offered = 0;
  };
  virtual Candidates most_candidates(OpContext& searching) const;  // of the products that it met for the first time since then

  virtual void embedding_forward(OpContext&, Element stream, void* out, const int* tokens, const void* wte, const void* wpe,
                                 const OpShape&) const = 0;
  // dwte adds, stored as `wte` says; dwpe is written, or added to when `accumulate`.
  virtual void embedding_backward(OpContext&, Element gradient, Element wte, void* dwte, float* dwpe, const void* dout, const int* tokens,
                                  bool accumulate, const OpShape&, void* scratch) const = 0;
  virtual int64_t embedding_backward_scratch(const OpShape&) const = 0;

  struct Normed {
    void* out;
    float *mean, *rstd;  // may be null together where `keeps_rounded_stream`
    void* kept;          // null, or receives the row rounded to the activations' storage
  };
  virtual void layernorm_forward(OpContext&, Variant, Element stream, const Normed&, const void* inp, const void* weight, const void* bias,
                                 int64_t rows, int64_t C) const = 0;
  struct NormGradients {
    void *dinp, *dinp_copy;                // copy: null, or receives dinp rounded
    float *dweight, *dbias, *column_sums;  // column_sums: null, or those of dinp as stored
  };
  virtual void layernorm_backward(OpContext&, Variant, Element gradient, const NormGradients&, const void* dout, const void* inp,
                                  const float* mean, const float* rstd, const void* weight, int64_t rows, int64_t C, bool add_to_dinp,
                                  bool accumulate, void* scratch) const = 0;
  virtual int64_t layernorm_backward_scratch(Variant, int64_t rows, int64_t C) const = 0;

  virtual void linear_forward(OpContext&, Variant, void* out, const void* inp, const void* weight, const void* bias,
                              const LinearShape&) const = 0;
  // Slot "bias_gradient" or "linear_backward", which the trainer has. dbias may be null.
  virtual void linear_backward(OpContext&, Variant, void* dinp, float* dweight, float* dbias, const void* dout, const void* inp,
                               const void* weight, const LinearShape&, bool accumulate, void* scratch) const = 0;
  virtual int64_t linear_backward_scratch(Variant, const LinearShape&) const = 0;

  virtual void attention_forward(OpContext&, Variant, void* out, float* lse, const void* qkv, const OpShape&, void* scratch) const = 0;
  virtual int64_t attention_forward_scratch(Variant, const OpShape&) const = 0;
  virtual void attention_backward(OpContext&, Variant, void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                                  const OpShape&, void* scratch) const = 0;
  virtual int64_t attention_backward_scratch(Variant, const OpShape&) const = 0;

  virtual void gelu_forward(OpContext&, void* out, const void* inp, int64_t n) const = 0;
  virtual void gelu_backward(OpContext&, void* dinp, const void* dout, const void* inp, int64_t n) const = 0;
  virtual void residual_forward(OpContext&, Element stream, void* out, const void* a, const void* b, int64_t n) const = 0;

  virtual void classifier(OpContext&, Variant, void* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
                          float gradient_scale, bool write_gradient) const = 0;
  virtual void mean_loss(OpContext&, double* loss, const float* losses, int64_t rows, double scale, bool accumulate) const = 0;
  virtual void grad_norm(OpContext&, Variant, double* norm, float* clip_scale, const float* gradients, int64_t n, float clip,
                         void* scratch) const = 0;
  virtual int64_t grad_norm_scratch(Variant, int64_t n) const = 0;

  struct UpdateTensors {
    void* rounded;  // null where parameters are their own masters
    float *parameters, *m, *v;
    const float *gradients, *clip_scale;
  };
  virtual void adamw(OpContext&, Variant, bool stochastic, const UpdateTensors&, const gpt2::TensorLayout&, const gpt2::AdamW&,
                     int64_t step) const = 0;

  // Ops that only a trainer with a stream apart from its activations has (storage().one_way_out() is false).
  virtual void residual_layernorm(OpContext&, Variant, Element stream, void* sum, const Normed&, const void* a, const void* branch,
                                  const void* weight, const void* bias, int64_t rows, int64_t C) const;
  virtual void fused_residual_layernorm(OpContext&, Variant layernorm, Element stream, void* sum, const Normed&, const void* a,
                                        const void* branch, const void* weight, const void* bias, int64_t rows, int64_t C) const;
  virtual void linear_gelu_forward(OpContext&, Variant, void* after, void* before, const void* inp, const void* weight, const void* bias,
                                   const LinearShape&) const;
  virtual void linear_residual(OpContext&, Variant, Element stream, void* out, const void* addend, const void* inp, const void* weight,
                               const void* bias, const LinearShape&, void* scratch) const;
  virtual void linear_gelu_backward_input(OpContext&, Variant, void* dbefore, const void* dout, const void* weight, const void* before,
                                          const LinearShape&) const;
  // As linear_gelu_forward, with GELU's gradient kept in place of GELU's input. ones: rows x out. scratch: linear_gelu_slope_scratch bytes.
  virtual void linear_gelu_slope_forward(OpContext&, Variant, void* after, void* slope, const void* inp, const void* weight,
                                         const void* bias, const void* ones, const LinearShape&, void* scratch) const;
  // dbefore, and its column sums, by GELU's gradient, which is made of `before` first where the variant keeps that. ones: rows x in.
  virtual void linear_gelu_slope_backward(OpContext&, Variant, void* dbefore, float* sums, const void* dout, const void* weight,
                                          const void* before, const void* ones, const LinearShape&, bool accumulate, void* scratch) const;
  virtual int64_t linear_gelu_slope_scratch(const LinearShape&) const;
  // The language model head of a step, forward, loss and backward: losses, and the gradients of x, in x's place, and of the weight.
  virtual void lm_head(OpContext&, Variant, float* losses, void* x, float* dweight, const void* weight, const int* targets,
                       const HeadShape&, float gradient_scale, bool accumulate, void* scratch) const;
  virtual int64_t lm_head_scratch(const HeadShape&) const;
  // The update with masters kept as slot "masters" says. Where that is not fp32, they are brought into that form before it and back after
  // it, so that one case judges all.
  virtual void adamw_masters(OpContext&, Variant masters, bool stochastic, const UpdateTensors&, const gpt2::TensorLayout&,
                             const gpt2::AdamW&, int64_t step, void* scratch) const;
  virtual int64_t adamw_masters_scratch(Variant masters, int64_t n) const;
  // What slot "weight_gradients" decides, and wte_gradient beside it. `gradients`: all in fp32, bf16 numbers where a variant keeps them in
  // bf16, which they are brought into first. wte_gradient, grad_norm, masters, bias_gradient: the variant of that slot.
  virtual void grad_norm_arenas(OpContext&, Variant weight_gradients, const std::string& wte_gradient, const std::string& grad_norm,
                                double* norm, float* clip_scale, const float* gradients, const gpt2::TensorLayout&, float clip,
                                void* scratch) const;
  virtual int64_t grad_norm_arenas_scratch(Variant weight_gradients, const std::string& wte_gradient, const std::string& grad_norm,
                                           const gpt2::TensorLayout&) const;
  virtual void adamw_arenas(OpContext&, Variant weight_gradients, const std::string& wte_gradient, const std::string& masters,
                            bool stochastic, const UpdateTensors&, const gpt2::TensorLayout&, const gpt2::AdamW&, int64_t step,
                            void* scratch) const;
  virtual int64_t adamw_arenas_scratch(Variant weight_gradients, const std::string& wte_gradient, const std::string& masters,
                                       const gpt2::TensorLayout&) const;
  // What slot "moments" decides, as adamw_masters; masters, weight_gradients: the variant of that slot. Moments come as numbers
  // that the variant keeps, gradients as for adamw_arenas.
  virtual void adamw_moments(OpContext&, Variant moments, const std::string& masters, const std::string& weight_gradients, bool stochastic,
                             const UpdateTensors&, const gpt2::TensorLayout&, const gpt2::AdamW&, int64_t step, void* scratch) const;
  virtual int64_t adamw_moments_scratch(Variant moments, const std::string& masters, const std::string& weight_gradients,
                                        const gpt2::TensorLayout&) const;
  // dweight in bf16: out of the product, or in fp32 out of it and then rounded. dbias may be null, and then the variant is wte_gradient's,
  // whose names are the same.
  virtual void linear_backward_weight(OpContext&, Variant weight_gradients, const std::string& bias_gradient, void* dweight, float* dbias,
                                      const void* dout, const void* inp, const LinearShape&, void* scratch) const;
  virtual int64_t linear_backward_weight_scratch(Variant weight_gradients, const LinearShape&) const;
  // The linear layer behind attention: its bias gradient (C), of which dout is what it hands down, and its weight (C,C).
  struct Behind {
    const float* dbias;
    const void* weight;
  };
  // attention_backward, and the sums of dqkv's columns: on its way with bias_gradient=attention_fold, q's alone with softmax_identities, which
  // has the others from `Behind`; else by a kernel of their own. With `accumulate` dbias and that of `Behind` hold earlier micro-batches.
  virtual void attention_bias_gradient(OpContext&, Variant bias_gradient, void* dqkv, float* dbias, const void* dout, const void* qkv,
                                       const void* out, const float* lse, const Behind&, const OpShape&, bool accumulate,
                                       void* scratch) const;
  virtual int64_t attention_bias_gradient_scratch(Variant bias_gradient, const OpShape&) const;
  // By the library's attention, whichever of its plans the slot "attention_plan" says.
  virtual void planned_attention_forward(OpContext&, Variant plan, void* out, float* lse, const void* qkv, const OpShape&,
                                         void* scratch) const;
  virtual int64_t planned_attention_forward_scratch(Variant plan, const OpShape&) const;
  virtual void planned_attention_backward(OpContext&, Variant plan, void* dqkv, const void* dout, const void* qkv, const void* out,
                                          const float* lse, const OpShape&, void* scratch) const;
  virtual int64_t planned_attention_backward_scratch(Variant plan, const OpShape&) const;
  virtual void round_parameters(OpContext&, bool stochastic, void* rounded, const float* masters, int64_t n) const;
};

const OpTrainer& fp32_ops();
const OpTrainer& mixed_ops();
// Throws stepscope::InputError for a trainer without op cases.
const OpTrainer& ops_of(const std::string& trainer);

}  // namespace gate
