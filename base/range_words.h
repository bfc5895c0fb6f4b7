// The words of a range path "step/PASS/LAYER/OP" ("-" for LAYER outside the layers). Trainers open ranges by them, and attribution
// reads nothing else. The order is that of gpt2::Pass and gpt2::Op, and that in which reports show them.
#pragma once
#include <array>
#include <string_view>

namespace stepscope {

inline constexpr std::array<std::string_view, 7> kPassWords{"encoder",   "forward",       "classifier", "backward",
                                                            "optimizer", "communication", "other"};
inline constexpr std::array<std::string_view, 21> kOpWords{
    "embedding",      "ln1",         "qkv", "attention", "attproj", "residual1", "ln2",       "mlp_up", "gelu",
    "mlp_down",       "residual2",   "lnf", "lm_head",   "loss",    "zero_grad", "grad_norm", "adamw",  "reduce_gradients",
    "gather_weights", "norm_gather", "copy"};

}  // namespace stepscope
