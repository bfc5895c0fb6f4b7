#include "profiler/document/not_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace profiler {

std::string why_no_object(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "the file is empty";
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) return "UTF-16 text, expected UTF-8";
  try {
    const auto j = nlohmann::json::parse(text);
    return fmt::format("JSON of type {}, expected an object", j.type_name());
  } catch (const nlohmann::json::parse_error& e) {
    const size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());  // `byte` counts from 1, and is one past a text that ends early
    const std::string_view before = text.substr(0, at);
    const size_t line = 1 + static_cast<size_t>(std::ranges::count(before, '\n')), newline = before.rfind('\n');
    const size_t column = at - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
    if (text.substr(at).find_first_not_of(" \t\r\n") == std::string_view::npos)
      return fmt::format("line {}, column {}: the file ends within the JSON", line, column);
    if (line > 1 && nlohmann::json::accept(before.substr(0, before.find('\n'))))
      return fmt::format("line {}: a second value follows; this is a file of one JSON object per line", line);
    return fmt::format("line {}, column {}: no JSON from here on", line, column);
  }
}

}  // namespace profiler
