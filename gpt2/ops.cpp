#include "gpt2/ops.h"

#include <fmt/format.h>

#include "base/range_words.h"

namespace gpt2 {
namespace {
using stepscope::kOpWords;
using stepscope::kPassWords;
static_assert(kPassWords.size() == kPassCount && kPassWords[static_cast<size_t>(Pass::other)] == "other",
              "base/range_words.h names other passes than Pass");
static_assert(kOpWords.size() == kOpCount && kOpWords[static_cast<size_t>(Op::copy)] == "copy",
              "base/range_words.h names other ops than Op");
}  // namespace

std::string_view name(Pass pass) { return kPassWords[static_cast<size_t>(pass)]; }
std::string_view name(Op op) { return kOpWords[static_cast<size_t>(op)]; }

std::optional<Pass> pass_from_name(std::string_view text) {
  for (size_t i = 0; i < kPassWords.size(); ++i)
    if (kPassWords[i] == text) return static_cast<Pass>(i);
  return std::nullopt;
}

std::optional<Op> op_from_name(std::string_view text) {
  for (size_t i = 0; i < kOpWords.size(); ++i)
    if (kOpWords[i] == text) return static_cast<Op>(i);
  return std::nullopt;
}

std::string leaf_path(Pass pass, int layer, Op op) {
  return layer == kNoLayer ? fmt::format("{}/-/{}", name(pass), name(op)) : fmt::format("{}/{}/{}", name(pass), layer, name(op));
}

}  // namespace gpt2
