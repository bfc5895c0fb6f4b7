// llm.c's evaluation sets (dev/data/data_common.py, write_evalfile): questions with a shared context and several completions, one of them
// right. 256 x int32 header: magic 20240522, version 1, examples, bytes of the longest example. Then per example, in uint16:
//   65535, bytes of this example (these included), index, label, completions, n, n context tokens, then n, n tokens per completion
//
// llm.c reads sets of four completions only; here an example may have any number from two on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace gpt2 {

struct EvalExample {
  int64_t label = 0;                               // the completion that is right
  std::vector<uint16_t> context;                   // at least one token: its last position predicts a completion's first
  std::vector<std::vector<uint16_t>> completions;  // at least two, each of at least one token

  bool operator==(const EvalExample&) const = default;
};

inline constexpr int64_t kEvalTokens = 65535;  // ids lie below: 65535 itself marks where an example starts

// Trusts no byte: throws stepscope::InputError naming `source`, the example, the offset, what was found and what was expected. Ids must
// lie below `vocabulary` (at most kEvalTokens).
std::vector<EvalExample> parse_eval_set(std::span<const std::byte> file, const std::string& source, int64_t vocabulary = kEvalTokens);
std::vector<EvalExample> load_eval_set(const std::filesystem::path& path, int64_t vocabulary = kEvalTokens);

// Atomic. Throws stepscope::InputError for what the format cannot hold: no example or more than 65535, an example of more than 65535
// bytes, and whatever parse_eval_set refuses.
void write_eval_set(const std::filesystem::path& path, std::span<const EvalExample> examples);

}  // namespace gpt2
