// What each op must give, in double, at any size and in either space: one element, or one chunk of a sum, per
// call of for_each_index. It shares no code with a trainer, and op_answers_test holds it against the plain
// loops of op_oracle.h. Sums of exponentials are taken without a maximum: in double nothing overflows below
// 700.
#pragma once
#include <cstdint>

#include "experiments/gate/op_memory.h"
#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace gate::answer {

Memory doubles(Space space, int64_t n);
// Values as `element` stores them.
Memory stored(Space space, View values, Element element, int64_t n);
// The nearest numbers of so many significant bits.
Memory of_bits(Space space, View values, int bits, int64_t n);
Memory sum(Space space, View a, View b, int64_t n);

Memory embedding_forward(Space space, const int32_t* tokens, View wte, View wpe, int64_t rows, int64_t T, int64_t C);
struct EmbeddingGradients {
  Memory dwte, dwpe;  // dwte starts from `before`
};
EmbeddingGradients embedding_backward(Space space, View dwte_before, View dout, const Memory& tokens, int64_t B, int64_t T, int64_t C,
                                      int64_t Vp, int64_t max_seq_len);

struct Normed {
  Memory out, mean, rstd;
};
Normed layernorm_forward(Space space, View x, View weight, View bias, int64_t rows, int64_t C);
struct NormGradients {
  Memory dx, dweight, dbias;
};
NormGradients layernorm_backward(Space space, View dout, View x, View mean, View rstd, View weight, int64_t rows, int64_t C);

// out (m,n) = sum over k of a(m,k) b(n,k) [+ bias(n)]; element (i,k) of a lies at i * row + k * term.
struct Factor {
  View values;
  int64_t row = 1, term = 1;
};
Memory product(Space space, const Factor& a, const Factor& b, int64_t m, int64_t n, int64_t k, View bias = {});
inline Memory linear_forward(Space space, View x, View weight, View bias, int64_t rows, int64_t in, int64_t out) {
  return product(space, {x, in, 1}, {weight, in, 1}, rows, out, in, bias);
}
inline Memory linear_backward_input(Space space, View dout, View weight, int64_t rows, int64_t in, int64_t out) {
  return product(space, {dout, out, 1}, {weight, 1, in}, rows, in, out);
}
inline Memory linear_backward_weight(Space space, View dout, View x, int64_t rows, int64_t in, int64_t out) {
  return product(space, {dout, 1, out}, {x, 1, in}, out, in, rows);
}
Memory column_sums(Space space, View values, int64_t rows, int64_t columns);

struct Attended {
  Memory out, lse;
};
Attended attention_forward(Space space, View qkv, int64_t B, int64_t T, int64_t C, int64_t NH);
// From the given out and lse, as the kernels get them.
Memory attention_backward(Space space, View dout, View qkv, View out, View lse, int64_t B, int64_t T, int64_t C, int64_t NH);

Memory gelu_forward(Space space, View x, int64_t n);
Memory gelu_backward(Space space, View dout, View x, int64_t n);

struct Classified {
  Memory losses, dlogits;  // dlogits (rows, Vp), padding zero
};
Classified classifier(Space space, View logits, const int32_t* targets, int64_t rows, int64_t V, int64_t Vp, double gradient_scale);

double total(Space space, View values, int64_t n);
double norm(Space space, View values, int64_t n);

struct Updated {
  Memory parameters, m, v;
};
Updated adamw(Space space, View parameters, View m, View v, View gradients, const gpt2::TensorLayout& layout, const gpt2::AdamW& settings,
              int64_t step, double gradient_scale);
// Its last part: parameters by their new moments.
Memory moved(Space space, View parameters, View m, View v, const gpt2::TensorLayout& layout, const gpt2::AdamW& settings, int64_t step);

}  // namespace gate::answer
