// GPT-2's first cut of a text, before byte-pair merges: the pieces that its regular expression matches,
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// (openai/gpt-2, src/encoder.py). No merge crosses a piece, so ids are right only if the cuts are.
//
// Written out by hand because a general engine backtracks: one run of spaces of n characters would cost it n
// looks ahead. The classes of characters come from ICU.
//
// Bytes that are not UTF-8 count as characters that are neither letter, number nor space, one each. That is
// what the expression does in Python to text decoded with errors="surrogateescape"; nothing is replaced, so
// decoding gives back the input byte for byte.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpt2 {

enum class CharacterClass : uint8_t { other, letter, number, space };  // other: [^\s\p{L}\p{N}]
struct Character {
  CharacterClass kind;
  size_t bytes;  // 1 to 4
};

// False where the program was built without ICU. Then cutting throws what require_unicode_tables throws, a
// stepscope::MachineError that names the package.
bool unicode_tables_built_in();
void require_unicode_tables();
// The character that `text` (not empty) begins with.
Character first_character(std::string_view text);

// Bytes of the first piece of `text`, at least 1 unless it is empty. The end of `text` counts as the end of the
// text: spaces before it stay together, so a text must not be cut just anywhere and handed over in parts.
size_t first_piece(std::string_view text);

}  // namespace gpt2
