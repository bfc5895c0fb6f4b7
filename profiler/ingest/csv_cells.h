// The cells of an ncu table: numbers as ncu prints them, sizes, and the NVTX columns.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace profiler::csv {

enum class Cell { none, number, text, decimal_comma, too_large };

// "1,980,000" and "0.74" as ncu prints them in the C locale; "0,74", "1.980.000" and "1.980,5" in others are Cell::decimal_comma. `value` is
// set for Cell::number alone.
Cell parse_number(std::string_view cell, double& value);
std::optional<int64_t> parse_integer(std::string_view s);
// "(256, 1, 1)", in some versions without the blanks.
std::optional<std::array<int64_t, 3>> parse_size(std::string_view s);
// A cell of the NVTX columns: `THREAD "DOMAIN:RANGE:payload type:payload:color type:color:message type:MESSAGE" "…" …`, as the path of its
// ranges.
std::string parse_ranges(std::string_view cell);

}  // namespace profiler::csv
