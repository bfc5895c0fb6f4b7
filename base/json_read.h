// JSON from a text that somebody may have edited.
//
// parse() takes three things that are refused here. A byte of value 0: it ends there, whatever stands behind. Values nested thousands of
// levels deep: dump(), == and every walk over a document call themselves once a level, and end in a crash. And a key that stands twice in
// one object: one of its values would be the answer, the other gone without a word.
#pragma once
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/json_text.h"

namespace stepscope {

inline constexpr size_t kMostJsonLevels = 500;

// `Json` is nlohmann's json or ordered_json. Where the text is no JSON, or is refused, the value is_discarded(); why_no_object() says why.
template <class Json>
Json read_json(std::string_view text);
extern template nlohmann::json read_json(std::string_view);
extern template nlohmann::ordered_json read_json(std::string_view);

// "the file is empty", "the text is UTF-16, expected UTF-8; …", "line 3, column 7: …", or that it holds another kind of value. Only for a
// text of `file` that read_json() did not read as an object; reads it again.
std::string why_no_object(std::string_view text, std::string_view file);
// The same of one line of a file that has an object in each: a place is a column. The caller says which line it is.
std::string why_no_object_in_line(std::string_view line, std::string_view file);

// A value in a message about it: JSON, cut behind 60 bytes or so; lists and objects that hold others as "a list of 3", "an object".
template <class Json>
std::string shown_json(const Json& value) {
  constexpr size_t kMost = 60;
  bool nested = false;
  if (value.is_structured())
    for (const Json& element : value) nested = nested || element.is_structured();
  if (nested) return value.is_array() ? "a list of " + std::to_string(value.size()) : "an object";
  std::string text = json_text(value, -1);
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "...";
}

}  // namespace stepscope
