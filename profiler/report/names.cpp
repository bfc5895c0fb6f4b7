#include "profiler/report/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "profiler/report/text_table.h"
#include "profiler/report/utf8.h"

namespace profiler {
namespace {

// As demanglers spell it: libiberty's, and Nsight Compute's.
constexpr std::string_view kAnonymous = "(anonymous namespace)::", kUnnamed = "<unnamed>::";

// First `c` outside <…> and (…); npos when there is none.
size_t top_level(std::string_view s, char c) {
  int depth = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (depth == 0 && s[i] == c) return i;
    if (s[i] == '<' || s[i] == '(') ++depth;
    if ((s[i] == '>' || s[i] == ')') && depth > 0) --depth;
  }
  return std::string_view::npos;
}

std::string without(std::string_view s, std::string_view part) {
  std::string out;
  for (size_t at; (at = s.find(part)) != std::string_view::npos; s.remove_prefix(at + part.size())) out += s.substr(0, at);
  return out += s;
}

// Whether a template argument names something that can be wrapped. cuBLAS has a `gemvx::kernel<int, int, float, …>`, and a kernel of one's own
// may be a `kernel<128>`: shown by their first argument they would be "int" and "128".
bool names_something(std::string_view argument) {
  constexpr std::string_view kTypes[] = {"bool",   "char", "short",  "int",           "long",  "unsigned", "signed", "float",
                                         "double", "half", "__half", "__nv_bfloat16", "const", "true",     "false"};
  const std::string_view word = argument.substr(0, argument.find_first_of(" *&"));
  const bool is_value = argument.empty() || argument.find_first_of("0123456789-(") == 0;
  return !is_value && std::find(std::begin(kTypes), std::end(kTypes), word) == std::end(kTypes);
}

// A wrapper within a wrapper is peeled like the first one. No library nests more of them; a file that does, thousands of levels deep, would
// otherwise end the stack.
constexpr int kMostWrappers = 10;

std::string_view unwrapped_name(std::string_view name, int wrappers) {
  name = name.substr(0, top_level(name, '('));  // parameters
  if (const size_t space = top_level(name, ' '); space != std::string_view::npos && !name.starts_with("copy"))
    name.remove_prefix(space + 1);  // return type
  const size_t open = top_level(name, '<');
  std::string_view base = name.substr(0, open);
  if (const size_t colons = base.rfind("::"); colons != std::string_view::npos) base.remove_prefix(colons + 2);
  if (wrappers == kMostWrappers) return base;
  for (const char* wrapper : {"Kernel", "Kernel2", "kernel", "device_kernel"})
    if (base == wrapper && open != std::string_view::npos && name.back() == '>') {
      const std::string_view arguments = name.substr(open + 1, name.size() - open - 2);
      const std::string_view first = arguments.substr(0, top_level(arguments, ',')), inner = unwrapped_name(first, wrappers + 1);
      if (names_something(first)) return inner.empty() ? first : inner;
    }
  return base;
}

}  // namespace

std::string short_kernel_name(std::string_view full) {
  const std::string name = without(without(full, kAnonymous), kUnnamed);
  const std::string_view base = unwrapped_name(name, 0);
  return std::string(base.empty() ? full : base);
}

std::string elide(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  // The longest beginning of at most `columns`; the end is what remains behind the shortest beginning that
  // leaves at most so many.
  const auto beginning = [&](size_t columns) {
    size_t at = 0, taken = 0;
    while (at < text.size()) {
      const Utf8Character c = utf8_character(text, at);
      if (taken + c.columns > columns) break;
      taken += c.columns;
      at += c.bytes;
    }
    return at;
  };
  if (width <= 4) return std::string(text.substr(0, beginning(width)));
  const size_t tail = (width - 2) / 3, head = width - 2 - tail;
  size_t from = 0, left = display_width(text);
  while (left > tail) {
    const Utf8Character c = utf8_character(text, from);
    left -= c.columns;
    from += c.bytes;
  }
  return std::string(text.substr(0, beginning(head))) + ".." + std::string(text.substr(from));
}

std::string place_words(std::string_view pass, std::string_view op) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> letters = {{{"encoder", "enc"},
                                                                                     {"forward", "fwd"},
                                                                                     {"classifier", "cls"},
                                                                                     {"backward", "bwd"},
                                                                                     {"optimizer", "opt"},
                                                                                     {"communication", "com"},
                                                                                     {"other", "oth"}}};
  std::string out(pass);
  for (const auto& [word, three] : letters)
    if (pass == word) out = std::string(three);
  return op.empty() ? out : out + " " + std::string(op);
}

}  // namespace profiler
