#include "base/encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace stepscope {
namespace {

bool is_printable(char c) { return c >= ' ' && c <= '~'; }
// What stands in binary files and hardly in a text. Zero bytes and line ends are counted elsewhere.
bool is_control(char c) { return (c >= 1 && c <= 8) || (c >= 14 && c <= 31); }

// Characters in a row that are a byte of ASCII and a zero byte, in either order. Fewer stand in binary files by chance.
constexpr size_t kInARow = 4;
// All of a text that is shorter than this.
constexpr size_t kBrackets = 2;

bool has_wide_ascii(std::string_view head) {
  const size_t wanted = head.size() < 2 * kInARow ? kBrackets : kInARow;
  for (const size_t first : {0, 1})       // where a pair begins, which need not be an even place behind other output
    for (const size_t letter : {0, 1}) {  // little endian, big endian
      size_t in_a_row = 0;
      for (size_t at = first; at + 1 < head.size(); at += 2) {
        const bool wide = is_printable(head[at + letter]) && head[at + 1 - letter] == '\0';
        in_a_row = wide ? in_a_row + 1 : 0;
        if (in_a_row == wanted) return true;
      }
    }
  return false;
}

}  // namespace

std::string_view other_encoding(std::string_view text) {
  using namespace std::string_view_literals;
  if (text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32";
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return "UTF-16";
  const std::string_view head = text.substr(0, 1 << 16);
  const auto zeros = std::ranges::count(head, '\0'), controls = std::ranges::count_if(head, is_control);
  constexpr std::ptrdiff_t kZerosPerControl = 8;
  return controls * kZerosPerControl <= zeros && has_wide_ascii(head) ? "UTF-16" : "";
}

std::string not_utf8(std::string_view text, std::string_view file) {
  const std::string_view other = other_encoding(text);
  if (other.empty()) return "";
  return fmt::format("the text is {0}, expected UTF-8; convert it with `iconv -f {0} -t UTF-8 {1} > NEW`", other, file);
}

}  // namespace stepscope
