// The ops of a GPT-2 by their definitions, in double, one plain loop each: slow on purpose, shares no code
// with any trainer. Inputs are the fp32 values that the kernel gets. Shapes as in op_launch.h.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace gate::oracle {

using Floats = std::span<const float>;
using Ints = std::span<const int32_t>;
using Doubles = std::vector<double>;

Doubles embedding_forward(Ints tokens, Floats wte, Floats wpe, int64_t T, int64_t C);
struct EmbeddingGradients {
  Doubles dwte, dwpe;  // dwte starts from `before`
};
EmbeddingGradients embedding_backward(Floats dwte_before, Floats dwpe_before, Floats dout, Ints tokens, int64_t T, int64_t C);

struct Normed {
  Doubles out, mean, rstd;
};
Normed layernorm_forward(Floats x, Floats weight, Floats bias, int64_t rows, int64_t C);
struct NormGradients {
  Doubles dx, dweight, dbias;
};
NormGradients layernorm_backward(Floats dout, Floats x, Floats mean, Floats rstd, Floats weight, int64_t rows, int64_t C);

Doubles linear_forward(Floats x, Floats weight, Floats bias, int64_t rows, int64_t in,
                       int64_t out);  // empty bias: none
struct LinearGradients {
  Doubles dx, dweight, dbias;
};
LinearGradients linear_backward(Floats dout, Floats x, Floats weight, int64_t rows, int64_t in, int64_t out);

struct Attended {
  Doubles out, lse;
};
Attended attention_forward(Floats qkv, int64_t B, int64_t T, int64_t C, int64_t NH);
// From the given out and lse, as the kernels get them.
Doubles attention_backward(Floats dout, Floats qkv, Floats out, Floats lse, int64_t B, int64_t T, int64_t C, int64_t NH);

Doubles gelu_forward(Floats x);
Doubles gelu_backward(Floats dout, Floats x);
// The same of values that no kernel is given: results of another op, not yet rounded.
Doubles gelu_forward_of(Doubles x);
Doubles gelu_backward_of(Doubles dout, Floats x);

struct Classified {
  Doubles losses, dlogits;  // dlogits (rows, Vp), padding zero
};
Classified classifier(Floats logits, Ints targets, int64_t V, int64_t Vp, double gradient_scale);

// AdamW as gpt2/trainer.h defines it, in place; `gradient_scale` is what the clip makes of the gradients. All of
// layout.total values.
void adamw(std::span<double> parameters, std::span<double> m, std::span<double> v, std::span<const double> gradients,
           const gpt2::TensorLayout& layout, const gpt2::AdamW& settings, int64_t step, double gradient_scale);
struct Updated {
  Doubles parameters, m, v;
};
Updated adamw(Floats parameters, Floats m, Floats v, Floats gradients, const gpt2::TensorLayout& layout, const gpt2::AdamW& settings,
              int64_t step, float gradient_scale);

}  // namespace gate::oracle
