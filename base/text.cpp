#include "base/text.h"

#include <fmt/format.h>

namespace stepscope {

std::string ms_text(double ns) { return fmt::format("{:.3f}", ns * 1e-6); }
std::string signed_ms_text(double ns) { return fmt::format("{:+.3f}", ns * 1e-6); }

std::string markdown_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '\\' || c == '`' || c == '*' || c == '_') out += '\\';
    if (c == '<')
      out += "&lt;";
    else
      out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

}  // namespace stepscope
