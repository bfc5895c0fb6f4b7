// A flag whose value is one of a few words.
#pragma once
#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/errors.h"

namespace cli {

// Throws stepscope::InputError that lists the words.
template <class T, size_t N>
T choose(const std::array<std::pair<std::string_view, T>, N>& words, const std::string& text, const char* flag) {
  std::string known;
  for (const auto& [word, value] : words) {
    if (word == text) return value;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  throw stepscope::InputError(fmt::format("{} '{}': expected one of {}", flag, text, known));
}

}  // namespace cli
