#include "base/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace stepscope {

std::string as_json_holds(const std::string& text) {
  // Names are ASCII nearly always, and a report has many.
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return text;
  return nlohmann::json::parse(json_text(nlohmann::json(text), -1)).get<std::string>();
}

}  // namespace stepscope
