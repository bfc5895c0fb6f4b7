// Causal multi-head attention, forward and backward, as every trainer and variant computes it.
//   s = q k^T / sqrt(HS) for keys up to the query; p = softmax(s); out = p v; lse = log(sum(exp(s)))
//   D = sum(dout * out);  dv = p^T dout;  ds = p * (dout v^T - D) / sqrt(HS);  dq = ds k;  dk = ds^T q
// The forward leaves only out and lse (natural logarithm, fp32); the backward makes p again from lse, so no (T,T) matrix outlives an op
// and forward and backward variants mix freely.
#pragma once
#include <cstdint>

namespace gpt2::ops {

// qkv (B,T,3C): q, k, v, each NH heads of HS. out (B,T,C), lse (B,NH,T).
struct AttentionShape {
  int64_t B, T, C, NH;
  int64_t HS() const { return C / NH; }
};

}  // namespace gpt2::ops
