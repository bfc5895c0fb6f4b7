#include "profiler/report/utf8.h"

#include <algorithm>
#include <iterator>

namespace profiler {
namespace {

struct Block {
  char32_t first, last;
};

constexpr Block kCombining[] = {{0x300, 0x36F},   {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F},
                                {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
constexpr Block kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
                           {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6C5},
                           {0x1F6F4, 0x1F6FC}, {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};

template <size_t N>
bool in(const Block (&blocks)[N], char32_t c) {
  return std::any_of(std::begin(blocks), std::end(blocks), [&](const Block& b) { return c >= b.first && c <= b.last; });
}

}  // namespace

Utf8Character utf8_character(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 1;
  if (length == 1 || at + length > text.size()) return {};
  char32_t code = first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(at + i) & 0x3Fu);
  }
  return {length, in(kCombining, code) ? size_t{0} : in(kWide, code) ? size_t{2} : size_t{1}};
}

}  // namespace profiler
