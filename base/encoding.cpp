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

struct Container {
  size_t at;  // where its mark stands
  std::string_view mark, name, unpack;
};
// The marks are no text in any encoding, or, of tar, stand where a text has them by no accident: behind zero bytes.
constexpr std::string_view kParquet =
    "python3 -c \"import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient='records', lines=True)\" {} NEW.jsonl";
constexpr Container kContainers[] = {{0, "\x1F\x8B\x08", "compressed by gzip", "gzip -dk {}"},
                                     {0, "\x28\xB5\x2F\xFD", "compressed by zstd", "zstd -d {}"},
                                     {0,
                                      "\xFD"
                                      "7zXZ",
                                      "compressed by xz", "xz -dk {}"},
                                     {4, "1AY&SY", "compressed by bzip2", "bzip2 -dk {}"},
                                     {0, "PK\x03\x04", "a zip archive", "unzip {}"},
                                     {257, "ustar", "a tar archive", "tar xf {}"},
                                     {0, "PAR1", "in the Parquet format", kParquet}};

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
  for (const auto& [at, mark, name, unpack] : kContainers)
    if (text.size() > at && text.substr(at).starts_with(mark))
      return fmt::format("the file is {}, expected text; `{}` unpacks it", name, fmt::format(fmt::runtime(unpack), file));
  const std::string_view other = other_encoding(text);
  if (other.empty()) return "";
  return fmt::format("the text is {0}, expected UTF-8; convert it with `iconv -f {0} -t UTF-8 {1} > NEW`", other, file);
}

}  // namespace stepscope
