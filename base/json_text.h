// JSON as text.
#pragma once
#include <string>

namespace stepscope {

// File names and command lines are bytes: those that are no UTF-8 become U+FFFD, where nlohmann's own default throws.
template <class Json>
std::string json_text(const Json& j, int indent) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// A text as it comes back from such JSON: another one where bytes of it are no UTF-8.
std::string as_json_holds(const std::string& text);

}  // namespace stepscope
