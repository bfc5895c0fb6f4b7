#include "experiments/gate/op_launch.h"

#include <fmt/format.h>

#include <stdexcept>

#include "base/errors.h"

namespace gate {
namespace {

[[noreturn]] void absent(const char* op) { throw std::logic_error(std::string("this trainer has no op ") + op); }

}  // namespace

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
void OpTrainer::round_parameters(OpContext&, bool, void*, const float*, int64_t) const { absent("round_parameters"); }

const OpTrainer& ops_of(const std::string& trainer) {
  if (trainer == "fp32") return fp32_ops();
  if (trainer == "mixed") return mixed_ops();
  throw stepscope::InputError(fmt::format("no op checks for trainer '{}': expected fp32 or mixed", trainer));
}

}  // namespace gate
