#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace stepscope {

std::string ms_text(double ns) { return fmt::format("{:.3f}", ns * 1e-6); }
std::string signed_ms_text(double ns) { return fmt::format("{:+.3f}", ns * 1e-6); }

std::string named_ranks(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    if (j - i < 2) j = i;
    out += fmt::format("{} {}", i == 0 ? "" : ",", ranks[i]);
    if (j > i) out += fmt::format("-{}", ranks[j]);
    i = j + 1;
  }
  return out;
}

namespace {

// Bytes that the control character at the beginning of `text` takes; 0 where none stands there.
size_t control_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  if (byte(0) < 0x20 || byte(0) == 0x7F) return 1;
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) <= 0x9F) return 2;
  const bool turns = byte(0) == 0xE2 && ((byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) ||  // U+202A to U+202E
                                         (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9));   // U+2066 to U+2069
  return turns ? 3 : 0;
}

std::string without_controls(std::string_view text, bool keep_line_ends) {
  std::string out;
  while (!text.empty()) {
    const size_t control = keep_line_ends && text[0] == '\n' ? 0 : control_bytes(text);
    out += control > 0 ? '?' : text[0];
    text.remove_prefix(control > 0 ? control : 1);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return without_controls(text, false); }
std::string printable_lines(std::string_view text) { return without_controls(text, true); }

std::string markdown_escaped(std::string_view text) {
  std::string out;
  std::string lines(text);
  std::replace(lines.begin(), lines.end(), '\r', '\n');
  const std::string shown = printable_lines(lines);
  for (size_t i = 0; i < shown.size(); ++i) {
    const char c = shown[i];
    const bool links = c == ']' && i + 1 < shown.size() && shown[i + 1] == '(';  // "[text](place)"; brackets alone stay readable
    if (c == '|' || c == '\\' || c == '`' || c == '*' || c == '_' || links) out += '\\';
    if (c == '<' || c == '&')  // a name that holds "&lt;" is not one that holds '<'
      out += c == '<' ? "&lt;" : "&amp;";
    else
      out += c == '\n' ? ' ' : c;
  }
  return out;
}

namespace {

// Slips between two words: the row-by-row table of Levenshtein's distance, with neighbours that changed places as one slip.
size_t slips_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string nearest_word(std::string_view typed, const std::vector<std::string>& words) {
  size_t fewest = typed.size() < 6 ? 2 : 3;  // one more than is allowed
  std::string nearest;
  for (const std::string& word : words)
    if (const size_t slips = slips_between(typed, word); slips < fewest) {
      fewest = slips;
      nearest = word;
    }
  return nearest;
}

}  // namespace stepscope
