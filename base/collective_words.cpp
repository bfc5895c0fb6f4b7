#include "base/collective_words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace stepscope {
namespace {

std::optional<int64_t> count_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

template <size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

std::string collective_range(const CollectiveWords& w) {
  const std::string text = w.kind + " " + w.type + " " + std::to_string(w.elements);
  return w.bucket < 0 ? text : text + " bucket " + std::to_string(w.bucket);
}

std::optional<CollectiveWords> parse_collective_range(std::string_view text) {
  static constexpr std::array<std::string_view, 3> kKinds{"all_reduce", "reduce_scatter", "all_gather"}, kTypes{"fp32", "bf16", "fp64"};
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    parts.push_back(text.substr(0, space));
    text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
  }
  const bool of_bucket = parts.size() == 5 && parts[3] == "bucket";
  if ((parts.size() != 3 && !of_bucket) || !is_one_of(parts[0], kKinds) || !is_one_of(parts[1], kTypes)) return std::nullopt;
  const auto elements = count_of(parts[2]), bucket = of_bucket ? count_of(parts[4]) : -1;
  if (!elements || !bucket) return std::nullopt;
  return CollectiveWords{std::string(parts[0]), std::string(parts[1]), *elements, *bucket};
}

}  // namespace stepscope
