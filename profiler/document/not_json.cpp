#include "profiler/document/not_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/encoding.h"

namespace profiler {

std::string why_no_object(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "the file is empty";
  if (const std::string_view other = stepscope::other_encoding(text); !other.empty()) return fmt::format("{} text, expected UTF-8", other);
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
  } catch (const nlohmann::json::out_of_range& e) {
    // Only a number that no double holds; the exception has it at the end of its text, in quotes, and no place.
    const std::string_view what = e.what();
    const size_t open = what.find('\''), close = what.rfind('\'');
    const std::string_view number = open < close ? what.substr(open + 1, close - open - 1) : "";
    const auto line = 1 + std::ranges::count(text.substr(0, text.find(number)), '\n');
    return fmt::format("line {}: {} is too large for a number", line, number);
  }
}

}  // namespace profiler
