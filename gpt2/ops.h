// The vocabulary of ranges: which passes and ops a training step has, and how they are spelled in a range path
// "step/PASS/LAYER/OP" ("-" for ops outside the layers). Whoever attributes time reads only these words.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace gpt2 {

enum class Pass : int { encoder, forward, classifier, backward, optimizer, communication, other };
inline constexpr int kPassCount = 7;

// A semantic op at its place in the model. Forward and backward share the word; the pass tells them apart.
enum class Op : int {
  embedding,
  ln1,
  qkv,
  attention,
  attproj,
  residual1,
  ln2,
  mlp_up,
  gelu,
  mlp_down,
  residual2,
  lnf,
  lm_head,
  loss,
  zero_grad,
  grad_norm,
  adamw,
  reduce_gradients,
  gather_weights,
  norm_gather,
  copy
};
inline constexpr int kOpCount = 21;

inline constexpr int kNoLayer = -1;

std::string_view name(Pass pass);
std::string_view name(Op op);
std::optional<Pass> pass_from_name(std::string_view text);
std::optional<Op> op_from_name(std::string_view text);

// "backward/11/attention"; the leaf under the range "step".
std::string leaf_path(Pass pass, int layer, Op op);

}  // namespace gpt2
