// One character of UTF-8 text at a time, with the columns it takes on a screen. Kernel names, GPU names and
// paths come from elsewhere: whatever is no UTF-8 is one byte wide and stays as it is.
#pragma once
#include <cstddef>
#include <string_view>

namespace profiler {

struct Utf8Character {
  size_t bytes = 1;
  size_t columns = 1;  // 0 combining, 2 wide
};

// `at` < text.size(). Never reads behind the text. Widths follow Unicode's East Asian Width (W, F) by block.
Utf8Character utf8_character(std::string_view text, size_t at);

}  // namespace profiler
