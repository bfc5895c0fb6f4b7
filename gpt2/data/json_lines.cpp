#include "gpt2/data/json_lines.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "base/json_read.h"

namespace gpt2 {

JsonLine::JsonLine(std::string_view text, const std::string& source, size_t number) : where_(fmt::format("{}:{}", source, number)) {
  object_ = stepscope::read_json<nlohmann::json>(text);
  if (object_.is_object()) return;
  fail(text.empty() ? "an empty line" : "no JSON object: " + stepscope::why_no_object_in_line(text, source), "one JSON object per line");
}

const nlohmann::json& JsonLine::member(const std::string& name) const {
  const auto found = object_.find(name);
  if (found == object_.end()) {
    std::string names;
    for (const auto& [key, value] : object_.items()) names += (names.empty() ? "" : ", ") + key;
    fail(fmt::format("no \"{}\"", name), fmt::format("it among the members, which are {}", names.empty() ? "none" : names));
  }
  return *found;
}

const std::string& JsonLine::text(const std::string& name) const {
  const nlohmann::json& v = member(name);
  if (!v.is_string()) fail(fmt::format("\"{}\" is {}", name, stepscope::shown_json(v)), "a text");
  return v.get_ref<const std::string&>();
}

void JsonLine::fail(const std::string& found, const std::string& expected) const {
  throw stepscope::InputError(fmt::format("{}: {}, expected {}", where_, found, expected));
}

void for_each_json_line(std::string_view text, const std::string& source, const std::function<void(const JsonLine&)>& visit) {
  text = text.substr(0, text.find_last_not_of("\r\n") + 1);
  if (text.starts_with('['))
    throw stepscope::InputError(
        fmt::format("{}: a JSON list, expected one JSON object per line; `jq -c '.[]' {} > NEW.jsonl` writes it so", source, source));
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(JsonLine(line, source, ++number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace gpt2
