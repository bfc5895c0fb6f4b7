#include "base/json_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/encoding.h"

namespace stepscope {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// Visits the signs of a JSON text that are not inside strings, and each string as a whole: visit(at, one past its end).
template <class Visit>
void for_each_token(std::string_view text, const Visit& visit) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (text[at] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    }
    visit(at, end);
    at = end;
  }
}

struct Shape {
  size_t levels = 0, members = 0;
};
Shape shape_of(std::string_view text) {
  Shape shape;
  size_t level = 0;
  for_each_token(text, [&](size_t at, size_t) {
    const char c = text[at];
    if (c == '{' || c == '[') shape.levels = std::max(shape.levels, ++level);
    if (c == '}' || c == ']') --level;
    if (c == ':') ++shape.members;
  });
  return shape;
}

// Calls itself: only for a value of few levels.
template <class Json>
size_t members_of(const Json& j) {
  if (!j.is_structured()) return 0;
  size_t members = j.is_object() ? j.size() : 0;
  for (const Json& e : j) members += members_of(e);
  return members;
}

// How a message names a place, and the whole.
struct Words {
  bool one_line;
  const char* whole() const { return one_line ? "line" : "file"; }
  std::string place(std::string_view text, size_t at) const {
    const std::string_view before = text.substr(0, at);
    const size_t newline = before.rfind('\n'), column = at - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
    if (one_line) return fmt::format("column {}", column);
    return fmt::format("line {}, column {}", 1 + std::ranges::count(before, '\n'), column);
  }
};

// Of a text that parse() takes.
std::string refusal_of(std::string_view text, Words words) {
  std::string found;
  std::vector<std::set<std::string>> keys;
  for_each_token(text, [&](size_t at, size_t end) {
    if (!found.empty()) return;
    const char c = text[at];
    if (c == '{' || c == '[') keys.emplace_back();
    if (keys.size() > kMostJsonLevels) found = fmt::format("{}: a value more than {} levels deep", words.place(text, at), kMostJsonLevels);
    if (c == '}' || c == ']') keys.pop_back();
    const size_t next = text.find_first_not_of(kBlank, end);
    if (c != '"' || next == std::string_view::npos || text[next] != ':') return;
    if (const auto key = nlohmann::json::parse(text.substr(at, end - at)).get<std::string>(); !keys.back().insert(key).second)
      found = fmt::format("{}: \"{}\" stands twice in one object", words.place(text, at), key);
  });
  return found;
}

std::string problem_of(std::string_view text, std::string_view file, Words words) {
  if (text.find_first_not_of(kBlank) == std::string_view::npos) return fmt::format("the {} is empty", words.whole());
  if (const std::string problem = not_utf8(text, file); !problem.empty()) return problem;
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    return fmt::format("{}: a byte of value 0, as files have that were cut off or were never text", words.place(text, zero));
  try {
    const auto j = nlohmann::json::parse(text);
    if (const std::string refusal = refusal_of(text, words); !refusal.empty()) return refusal;
    return fmt::format("JSON of type {}, expected an object", j.type_name());
  } catch (const nlohmann::json::parse_error& e) {
    const size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, text.size());  // `byte` counts from 1, and is one past a text that ends early
    const std::string_view before = text.substr(0, at);
    if (text.substr(at).find_first_not_of(kBlank) == std::string_view::npos)
      return fmt::format("{}: the {} ends within the JSON", words.place(text, at), words.whole());
    if (const size_t newline = before.find('\n'); newline != std::string_view::npos && nlohmann::json::accept(before.substr(0, newline)))
      return fmt::format("line {}: a second value follows; this is a file of one JSON object per line",
                         1 + std::ranges::count(before, '\n'));
    return words.place(text, at) + ": no JSON from here on";
  } catch (const nlohmann::json::out_of_range& e) {
    // Only a number that no double holds; the exception has it at the end of its text, in quotes, and no place.
    const std::string_view what = e.what();
    const size_t open = what.find('\''), close = what.rfind('\'');
    const std::string_view number = open < close ? what.substr(open + 1, close - open - 1) : "";
    return fmt::format("{}: {} is too large for a number", words.place(text, std::min(text.find(number), text.size())), number);
  }
}

}  // namespace

template <class Json>
Json read_json(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return Json(Json::value_t::discarded);
  Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded()) return j;
  const Shape shape = shape_of(text);
  if (shape.levels > kMostJsonLevels || shape.members != members_of(j)) return Json(Json::value_t::discarded);
  return j;
}
template nlohmann::json read_json(std::string_view);
template nlohmann::ordered_json read_json(std::string_view);

std::string why_no_object(std::string_view text, std::string_view file) { return problem_of(text, file, {false}); }
std::string why_no_object_in_line(std::string_view line, std::string_view file) { return problem_of(line, file, {true}); }

}  // namespace stepscope
