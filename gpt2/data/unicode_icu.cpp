// The only file that sees ICU; unicode_absent.cpp stands in for it where ICU was not found.
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>

#include "gpt2/data/pretokenizer.h"

namespace gpt2 {

bool unicode_tables_built_in() { return true; }
void require_unicode_tables() {}

Character first_character(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  const int32_t length = static_cast<int32_t>(std::min<size_t>(text.size(), U8_MAX_LENGTH));
  int32_t at = 0;
  UChar32 c = 0;
  U8_NEXT(bytes, at, length, c);
  const size_t used = static_cast<size_t>(at);
  if (c < 0) return {CharacterClass::other, used};  // not UTF-8
  const uint32_t category = U_GET_GC_MASK(c);
  if (category & U_GC_L_MASK) return {CharacterClass::letter, used};
  if (category & U_GC_N_MASK) return {CharacterClass::number, used};
  // Not u_isspace: \s is the property White_Space, which U+001C to U+001F lack.
  return {u_isUWhiteSpace(c) ? CharacterClass::space : CharacterClass::other, used};
}

}  // namespace gpt2
