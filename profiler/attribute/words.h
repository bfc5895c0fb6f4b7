// Reads range paths "step/PASS/LAYER/OP", whose words are those of base/range_words.h.
//
// Attribution reads these words and nothing else: never a kernel's name, never its place in the launch order.
#pragma once
#include <optional>
#include <span>
#include <string_view>

namespace profiler {

std::span<const std::string_view> pass_words();  // in the order in which reports show them
std::span<const std::string_view> op_words();

// Where in a training step an operation was launched.
struct Place {
  int pass = 0;              // index into pass_words()
  std::optional<int> layer;  // absent: outside the layers ("-")
  int op = 0;                // index into op_words()
  auto operator<=>(const Place&) const = default;
};

enum class PathKind { place, no_leaf, unknown_words };
struct ParsedPath {
  PathKind kind = PathKind::no_leaf;
  std::optional<Place> place;  // present exactly when kind == place
};

// Ranges around "step" (a program's own) and ranges inside the leaf (a library's own) are allowed. no_leaf:
// nothing, or nothing below "step"; unknown_words: something below "step" that is not PASS/LAYER/OP.
ParsedPath parse_range_path(std::string_view path);

// "backward/11/attention", with or without a leading "step/": the spelling of run.json's work entries.
std::optional<Place> parse_leaf(std::string_view path);

}  // namespace profiler
