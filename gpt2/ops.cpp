#include "gpt2/ops.h"

#include <fmt/format.h>

#include <array>

namespace gpt2 {
namespace {
constexpr std::array<std::string_view, kPassCount> kPasses{"encoder",   "forward",       "classifier", "backward",
                                                           "optimizer", "communication", "other"};
constexpr std::array<std::string_view, kOpCount> kOps{"embedding", "ln1",    "qkv",       "attention", "attproj",   "residual1",
                                                      "ln2",       "mlp_up", "gelu",      "mlp_down",  "residual2", "lnf",
                                                      "lm_head",   "loss",   "zero_grad", "grad_norm", "adamw",     "copy"};
}  // namespace

std::string_view name(Pass pass) { return kPasses[static_cast<size_t>(pass)]; }
std::string_view name(Op op) { return kOps[static_cast<size_t>(op)]; }

std::optional<Pass> pass_from_name(std::string_view text) {
  for (size_t i = 0; i < kPasses.size(); ++i)
    if (kPasses[i] == text) return static_cast<Pass>(i);
  return std::nullopt;
}

std::optional<Op> op_from_name(std::string_view text) {
  for (size_t i = 0; i < kOps.size(); ++i)
    if (kOps[i] == text) return static_cast<Op>(i);
  return std::nullopt;
}

std::string leaf_path(Pass pass, int layer, Op op) {
  return layer == kNoLayer ? fmt::format("{}/-/{}", name(pass), name(op)) : fmt::format("{}/{}/{}", name(pass), layer, name(op));
}

}  // namespace gpt2
