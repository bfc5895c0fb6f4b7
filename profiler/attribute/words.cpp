#include "profiler/attribute/words.h"

#include <charconv>
#include <string>
#include <vector>

#include "base/range_words.h"

namespace profiler {
namespace {

std::optional<int> find(std::span<const std::string_view> words, std::string_view text) {
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == text) return static_cast<int>(i);
  return std::nullopt;
}

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    parts.push_back(path.substr(0, slash));
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  return parts;
}

std::optional<Place> place_of(std::string_view pass, std::string_view layer, std::string_view op) {
  const auto p = find(stepscope::kPassWords, pass), o = find(stepscope::kOpWords, op);
  if (!p || !o) return std::nullopt;
  Place place{*p, std::nullopt, *o};
  if (layer == "-") return place;
  int number = 0;
  const auto [end, error] = std::from_chars(layer.data(), layer.data() + layer.size(), number);
  if (error != std::errc() || end != layer.data() + layer.size() || number < 0) return std::nullopt;
  place.layer = number;
  return place;
}

}  // namespace

std::span<const std::string_view> pass_words() { return stepscope::kPassWords; }
std::span<const std::string_view> op_words() { return stepscope::kOpWords; }

ParsedPath parse_range_path(std::string_view path) {
  const auto parts = split(path);
  bool something_below = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != "step") continue;
    if (i + 1 < parts.size()) something_below = true;
    if (i + 3 >= parts.size()) continue;
    if (const auto place = place_of(parts[i + 1], parts[i + 2], parts[i + 3])) return {PathKind::place, place};
  }
  return {something_below ? PathKind::unknown_words : PathKind::no_leaf, std::nullopt};
}

std::optional<Place> parse_leaf(std::string_view path) {
  auto parts = split(path);
  if (!parts.empty() && parts.front() == "step") parts.erase(parts.begin());
  return parts.size() == 3 ? place_of(parts[0], parts[1], parts[2]) : std::nullopt;
}

}  // namespace profiler
