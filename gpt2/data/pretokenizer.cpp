#include "gpt2/data/pretokenizer.h"

#include <array>

namespace gpt2 {
namespace {

constexpr std::array<CharacterClass, 128> kAscii = [] {
  std::array<CharacterClass, 128> table{};
  for (size_t c = 'a'; c <= 'z'; ++c) table[c] = table[c - 'a' + 'A'] = CharacterClass::letter;
  for (size_t c = '0'; c <= '9'; ++c) table[c] = CharacterClass::number;
  for (const char c : {' ', '\t', '\n', '\v', '\f', '\r'}) table[static_cast<size_t>(c)] = CharacterClass::space;
  return table;
}();

Character character_at(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < kAscii.size()) return {kAscii[byte], 1};
  return first_character(text.substr(at));
}

// 0: none begins the text. Lower case only, as in GPT-2: "I'S" is cut otherwise than "i's".
size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char c = text[1];
  if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
  for (const std::string_view two : {"re", "ve", "ll"})
    if (text.substr(1, 2) == two) return 3;
  return 0;
}

// Of one or more spaces the last is left to what follows, which takes it along if it is U+0020 and is a piece
// before it if not ("a\n\nb": "a", "\n", "\n", "b"). At the end of the text nothing follows.
size_t space_piece(std::string_view text) {
  size_t at = 0, last = 0;
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (c.kind != CharacterClass::space) return last > 0 ? last : at;
    last = at;
    at += c.bytes;
  }
  return at;
}

}  // namespace

size_t first_piece(std::string_view text) {
  if (text.empty()) return 0;
  if (const size_t bytes = contraction(text)) return bytes;
  size_t at = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  Character c = character_at(text, at);
  if (c.kind == CharacterClass::space) return space_piece(text);
  const CharacterClass kind = c.kind;
  do at += c.bytes;
  while (at < text.size() && (c = character_at(text, at)).kind == kind);
  return at;
}

}  // namespace gpt2
