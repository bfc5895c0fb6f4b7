#include "experiments/gate/op_launch.h"

#include <fmt/format.h>

#include <stdexcept>

#include "base/errors.h"

namespace gate {
namespace {

[[noreturn]] void absent(const char* op) { throw std::logic_error(std::string("this trainer has no op ") + op); }

}  // namespace

std::unique_ptr<OpContext> OpTrainer::searching_context(OpContext&) const { return nullptr; }
void OpTrainer::take_candidate(OpContext&, size_t) const {}
OpTrainer::Candidates OpTrainer::most_candidates(OpContext&) const { return {}; }

void OpTrainer::residual_layernorm(OpContext&, Variant, Element, void*, const Normed&, const void*, const void*, const void*, const void*,
                                   int64_t, int64_t) const {
  absent("residual_layernorm");
}
void OpTrainer::fused_residual_layernorm(OpContext&, Variant, Element, void*, const Normed&, const void*, const void*, const void*,
                                         const void*, int64_t, int64_t) const {
  absent("fused_residual_layernorm");
}
void OpTrainer::linear_gelu_forward(OpContext&, Variant, void*, void*, const void*, const void*, const void*, const LinearShape&) const {
  absent("linear_gelu_forward");
}
void OpTrainer::linear_residual(OpContext&, Variant, Element, void*, const void*, const void*, const void*, const void*, const LinearShape&,
                                void*) const {
  absent("linear_residual");
}
void OpTrainer::linear_gelu_backward_input(OpContext&, Variant, void*, const void*, const void*, const void*, const LinearShape&) const {
  absent("linear_gelu_backward_input");
}
void OpTrainer::linear_gelu_slope_forward(OpContext&, Variant, void*, void*, const void*, const void*, const void*, const void*,
                                          const LinearShape&, void*) const {
  absent("linear_gelu_slope_forward");
}
void OpTrainer::linear_gelu_slope_backward(OpContext&, Variant, void*, float*, const void*, const void*, const void*, const void*,
                                           const LinearShape&, bool, void*) const {
  absent("linear_gelu_slope_backward");
}
int64_t OpTrainer::linear_gelu_slope_scratch(const LinearShape&) const { absent("linear_gelu_slope_forward"); }
void OpTrainer::lm_head(OpContext&, Variant, float*, void*, float*, const void*, const int*, const HeadShape&, float, bool, void*) const {
  absent("lm_head");
}
int64_t OpTrainer::lm_head_scratch(const HeadShape&) const { absent("lm_head"); }
void OpTrainer::adamw_masters(OpContext&, Variant, bool, const UpdateTensors&, const gpt2::TensorLayout&, const gpt2::AdamW&, int64_t,
                              void*) const {
  absent("adamw_masters");
}
int64_t OpTrainer::adamw_masters_scratch(Variant, int64_t) const { absent("adamw_masters"); }
void OpTrainer::grad_norm_arenas(OpContext&, Variant, const std::string&, const std::string&, double*, float*, const float*,
                                 const gpt2::TensorLayout&, float, void*) const {
  absent("grad_norm_arenas");
}
int64_t OpTrainer::grad_norm_arenas_scratch(Variant, const std::string&, const std::string&, const gpt2::TensorLayout&) const {
  absent("grad_norm_arenas");
}
void OpTrainer::adamw_arenas(OpContext&, Variant, const std::string&, const std::string&, bool, const UpdateTensors&,
                             const gpt2::TensorLayout&, const gpt2::AdamW&, int64_t, void*) const {
  absent("adamw_arenas");
}
int64_t OpTrainer::adamw_arenas_scratch(Variant, const std::string&, const std::string&, const gpt2::TensorLayout&) const {
  absent("adamw_arenas");
}
void OpTrainer::adamw_moments(OpContext&, Variant, const std::string&, const std::string&, bool, const UpdateTensors&,
                              const gpt2::TensorLayout&, const gpt2::AdamW&, int64_t, void*) const {
  absent("adamw_moments");
}
int64_t OpTrainer::adamw_moments_scratch(Variant, const std::string&, const std::string&, const gpt2::TensorLayout&) const {
  absent("adamw_moments");
}
void OpTrainer::linear_backward_weight(OpContext&, Variant, const std::string&, void*, float*, const void*, const void*, const LinearShape&,
                                       void*) const {
  absent("linear_backward_weight");
}
int64_t OpTrainer::linear_backward_weight_scratch(Variant, const LinearShape&) const { absent("linear_backward_weight"); }
void OpTrainer::attention_bias_gradient(OpContext&, Variant, void*, float*, const void*, const void*, const void*, const float*,
                                        const Behind&, const OpShape&, bool, void*) const {
  absent("attention_bias_gradient");
}
int64_t OpTrainer::attention_bias_gradient_scratch(Variant, const OpShape&) const { absent("attention_bias_gradient"); }
void OpTrainer::planned_attention_forward(OpContext&, Variant, void*, float*, const void*, const OpShape&, void*) const {
  absent("planned_attention_forward");
}
int64_t OpTrainer::planned_attention_forward_scratch(Variant, const OpShape&) const { absent("planned_attention_forward"); }
void OpTrainer::planned_attention_backward(OpContext&, Variant, void*, const void*, const void*, const void*, const float*, const OpShape&,
                                           void*) const {
  absent("planned_attention_backward");
}
int64_t OpTrainer::planned_attention_backward_scratch(Variant, const OpShape&) const { absent("planned_attention_backward"); }
void OpTrainer::round_parameters(OpContext&, bool, void*, const float*, int64_t) const { absent("round_parameters"); }

const OpTrainer& ops_of(const std::string& trainer) {
  if (trainer == "fp32") return fp32_ops();
  if (trainer == "mixed") return mixed_ops();
  throw stepscope::InputError(fmt::format("no op checks for trainer '{}': expected fp32 or mixed", trainer));
}

}  // namespace gate
