// Files with one JSON object per line, as data sets of text are published.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace gpt2 {

class JsonLine {
 public:
  // Throws stepscope::InputError "SOURCE:LINE: …" unless the text is one JSON object.
  JsonLine(std::string_view text, const std::string& source, size_t number);
  const nlohmann::json& member(const std::string& name) const;  // throws where there is none
  const std::string& text(const std::string& name) const;       // throws where it is no text
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const;

 private:
  std::string where_;
  nlohmann::json object_;
};

// Every line in order; the last one needs no newline. Empty lines at the end are none; an empty line before others is refused.
void for_each_json_line(std::string_view text, const std::string& source, const std::function<void(const JsonLine&)>& visit);

}  // namespace gpt2
